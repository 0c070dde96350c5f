# SPDX-License-Identifier: Apache-2.0
"""Lists of the n best translations as Moses and Marian write them.

::

    number ||| translation ||| logP= log-probability ||| score

Numbers count lines of the input from 0; log-probabilities are in nats, and scores are
what the search ranked by.
"""

import math
from collections.abc import Sequence

from kvnmt.inference.trained import Trained
from kvnmt.inference.translate import Translation


def nbest_list(
    run: Trained, number: int, parts: Sequence[Sequence[Translation]]
) -> list[str]:
    """The entries of a line, best first.

    Of a line that was split, an entry has what stands at its place for every part, and
    the sums of the log-probabilities and of the scores. Where there was nothing to
    translate both are 0.

    Args:
        run: The trained model.
        number: Of the line, from 0.
        parts: The translations of every part, as many for each.
    """
    entries = []
    for ways in zip(*parts):
        texts = (run.vocabularies.target.decode(way.ids) for way in ways)
        log_prob = sum(_finite(way.log_prob) for way in ways)
        score = sum(_finite(way.score) for way in ways)
        text = " ".join(filter(None, texts))
        entries.append(f"{number} ||| {text} ||| logP= {log_prob:.6f} ||| {score:.6f}")
    return entries


def _finite(number: float) -> float:
    return number if math.isfinite(number) else 0.0
