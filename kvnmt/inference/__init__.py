# SPDX-License-Identifier: Apache-2.0
"""Using a trained model: translate, score, align, look inside."""
