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
    sentence_scores,
    significance,
)
from kvnmt.evaluation.base import (
    LackingError,
    Measure,
    Report,
    System,
    Test,
    table,
)

__all__ = ["MEASURES", "LackingError", "Measure", "Report", "System", "Test", "table"]

MEASURES: dict[str, Measure] = {
    # BLEU with what chance spans, chrF, length ratio, stars
    "score": Measure(score.measure, score.check),
    # four tests against the first system
    "significance": Measure(significance.measure, significance.check),
    # those of --sentence-scores: their means, and tests
    "sentence-scores": Measure(sentence_scores.measure, sentence_scores.check),
    # and unknown words
    "perplexity": Measure(perplexity.measure, perplexity.check),
    # AER against --gold
    "alignment": Measure(alignment.measure, alignment.check),
    # over- and under-translation
    "adequacy": Measure(adequacy.measure, adequacy.check),
    # BLEU by length of the source
    "length": Measure(length.measure, length.check),
    # BLEU and words by frequency in training
    "frequency": Measure(frequency.measure, frequency.check),
    # relative positions, trees
    "self-attention": Measure(self_attention.measure, self_attention.check),
}
