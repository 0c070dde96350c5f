# SPDX-License-Identifier: Apache-2.0
"""The papers' equations once more: NumPy, float64, one sentence, one word at a time.

Nothing here is shared with kvnmt and nothing is fast. A sentence is run alone and
unpadded, so that agreement with a padded batch also proves the padding right.
Matrices are the papers': rows are outputs, ``W x`` is ``W @ x``.
"""
