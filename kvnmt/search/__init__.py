# SPDX-License-Identifier: Apache-2.0
"""Searches over a step function; none of them knows a model."""

from kvnmt.search.base import DecodeStep, Hypotheses, length_penalty
from kvnmt.search.beam import beam_search
from kvnmt.search.greedy import greedy_search
from kvnmt.search.sampling import sample_search

__all__ = [
    "DecodeStep",
    "Hypotheses",
    "beam_search",
    "greedy_search",
    "length_penalty",
    "sample_search",
]
