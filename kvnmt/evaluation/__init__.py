# SPDX-License-Identifier: Apache-2.0
"""What `kvnmt evaluate` measures: the catalogue, one file per measure."""

from kvnmt.evaluation import (
    adequacy,
    alignment,
    edits,
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

OF_STRINGS = "lowercase", "more_references"
OF_BLEU = "tokenize", *OF_STRINGS

MEASURES: dict[str, Measure] = {
    # BLEU with what chance spans, chrF, length ratio, stars
    "score": Measure(score.measure, score.check, OF_BLEU, lambda *_: True),
    # four tests against the first system
    "significance": Measure(
        significance.measure, significance.check, OF_BLEU, lambda _, s: len(s) > 1
    ),
    # those of --sentence-scores: their means, and tests
    "sentence-scores": Measure(
        sentence_scores.measure,
        sentence_scores.check,
        ("sentence_scores",),
        lambda test, _: bool(test.sentence_scores),
        translates=False,
    ),
    # and unknown words
    "perplexity": Measure(perplexity.measure, perplexity.check),
    # AER against --gold
    "alignment": Measure(
        alignment.measure,
        alignment.check,
        ("gold", "links", "reverse"),
        lambda test, _: test.gold is not None,
        translates=False,
    ),
    # over- and under-translation
    "adequacy": Measure(adequacy.measure, adequacy.check, ("gold", "stem")),
    # BLEU by length of the source
    "length": Measure(length.measure, length.check, OF_BLEU),
    # BLEU and words by frequency in training
    "frequency": Measure(frequency.measure, frequency.check, OF_BLEU),
    # relative positions, trees
    "self-attention": Measure(
        self_attention.measure,
        self_attention.check,
        ("brackets",),
        lambda test, _: test.brackets is not None,
        translates=False,
    ),
    # TER and chrF++; last, since it is slow
    "edits": Measure(edits.measure, edits.check, OF_STRINGS),
}
