# SPDX-License-Identifier: Apache-2.0
"""The harness: rows, who works on them, what they leave behind, and their tables."""
