# SPDX-License-Identifier: Apache-2.0
"""Recurrent neural machine translation with memory-augmented attention, in JAX."""

__version__ = "0.1.0"
