# SPDX-License-Identifier: Apache-2.0
"""Lists of the n best translations as Moses and Marian write them.

::

    number ||| translation ||| logP= log-probability ||| score

Numbers count lines of the input from 0; log-probabilities are in nats, and scores are
what the search ranked by. ``|||`` in a translation is written ``&#124;&#124;&#124;``,
as Moses escapes it.
"""

from collections.abc import Sequence

from kvnmt.inference.trained import Trained
from kvnmt.inference.translate import Translation

BAR, ESCAPED = "|||", "&#124;" * 3


def nbest_list(
    run: Trained, number: int, parts: Sequence[Sequence[Translation]]
) -> list[str]:
    """The entries of a line, best first.

    Of a line that was split, an entry has what stands at its place for every part, the
    last of a part that has fewer, and the sums of the log-probabilities and of the
    scores. Where there was nothing to translate both are 0, where there is no
    translation ``-inf``.

    Args:
        run: The trained model.
        number: Of the line, from 0.
        parts: The translations of every part, one at least for each.
    """
    entries = []
    for place in range(max(map(len, parts))):
        ways = [part[min(place, len(part) - 1)] for part in parts]
        texts = (run.vocabularies.target.decode(way.ids) for way in ways)
        log_prob, score = sum(way.log_prob for way in ways), sum(w.score for w in ways)
        text = " ".join(filter(None, texts)).replace(BAR, ESCAPED)
        entries.append(f"{number} ||| {text} ||| logP= {log_prob:.6f} ||| {score:.6f}")
    return entries
