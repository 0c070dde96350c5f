# SPDX-License-Identifier: Apache-2.0
"""Perplexity: the exponential of the mean negative log-probability."""

import math

MOST = 700  # nats: the exponential of more is no number


def perplexity(log_prob: float, tokens: int) -> float:
    """Perplexity of a text, finite whatever the text.

    Args:
        log_prob: Of the whole text, in nats.
        tokens: How many tokens it has; 0 counts as 1.
    """
    return math.exp(min(-log_prob / max(tokens, 1), MOST))
