# SPDX-License-Identifier: Apache-2.0
"""What is measured after training, one file per measure.

Nothing is re-exported: training asks for BLEU and must not load a plotting library.
"""
