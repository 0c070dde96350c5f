# SPDX-License-Identifier: Apache-2.0
"""Figures of translations and alignments, computed from plain data.

No file here knows a model. Nothing is re-exported: who asks for BLEU loads no more.
"""
