# SPDX-License-Identifier: Apache-2.0
"""What `kvnmt evaluate` measures: the catalogue, one file per measure."""

from kvnmt.evaluation import (
    adequacy,
    alignment,
    frequency,
    length,
    perplexity,
    score,
    self_attention,
    significance,
)
from kvnmt.evaluation.base import LackingError, Measure, Report, System, Test, table

__all__ = ["MEASURES", "LackingError", "Measure", "Report", "System", "Test", "table"]

MEASURES: dict[str, Measure] = {
    "score": score.measure,  # BLEU, chrF, length ratio, stars
    "significance": significance.measure,  # four tests against the first system
    "perplexity": perplexity.measure,  # and unknown words
    "alignment": alignment.measure,  # AER against --gold
    "adequacy": adequacy.measure,  # over- and under-translation
    "length": length.measure,  # BLEU by length of the source
    "frequency": frequency.measure,  # BLEU and words by frequency in training
    "self-attention": self_attention.measure,  # relative positions, trees
}
