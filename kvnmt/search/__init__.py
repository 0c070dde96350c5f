# SPDX-License-Identifier: Apache-2.0
"""Searches over a step function; none of them knows a model."""

from kvnmt.search.base import (
    DecodeStep,
    Hypotheses,
    Loops,
    Ranking,
    Sentences,
    last_tokens,
    length_divisors,
)
from kvnmt.search.beam import beam_search
from kvnmt.search.repeats import repeating
from kvnmt.search.sampling import sample_search
from kvnmt.search.walk import greedy_search
from kvnmt.search.words import Words, normalise

__all__ = [
    "DecodeStep",
    "Hypotheses",
    "Loops",
    "Ranking",
    "Sentences",
    "Words",
    "beam_search",
    "greedy_search",
    "last_tokens",
    "length_divisors",
    "normalise",
    "repeating",
    "sample_search",
]
