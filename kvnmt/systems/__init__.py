# SPDX-License-Identifier: Apache-2.0
"""The named systems: what they are, what they cost."""
