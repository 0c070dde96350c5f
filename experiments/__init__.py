# SPDX-License-Identifier: Apache-2.0
"""Experiments: one module per claim, and the quickstart."""
