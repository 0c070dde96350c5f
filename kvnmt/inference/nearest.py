# SPDX-License-Identifier: Apache-2.0
"""Of the best translations of a sentence the one that is nearest to a reference.

Kim and Rush (2016), "Sequence-Level Knowledge Distillation", section 3.3: a teacher's
best translation may be far from the reference, and the reference may be one that no
student learns; between them lies, of the teacher's K best, the one with the highest
sentence BLEU.
"""

from collections.abc import Callable, Sequence
from typing import Unpack

import numpy as np

from kvnmt.inference.config import SearchConfig
from kvnmt.inference.trained import Trained
from kvnmt.inference.translate import Request, translate_nbest
from kvnmt.metrics.bleu import Settings, sentence_bleu, sentence_statistics


def translate_nearest(
    run: Trained,
    lines: Sequence[str],
    references: Sequence[str | None],
    config: SearchConfig,
    advance: Callable[[int], None] = lambda sentences: None,
    *,
    settings: Settings = Settings(),
    **request: Unpack[Request],
) -> list[list[int]]:
    """Translates lines, each with the help of its reference.

    Args:
        run: The trained model.
        lines: What is translated.
        references: What each is to come near; None: its best translation is taken.
        config: How to search; of ``config.nbest`` translations one is taken.
        advance: Called after every batch with how many sentences it held.
        settings: How BLEU takes text apart.
        **request: What else is asked for.

    Returns:
        Of each line target ids without EOS. Of translations that are equally near, the
        one that the search holds for better.
    """
    source = [run.vocabularies.source.encode(line) for line in lines]
    translations = translate_nbest(
        run.model, run.params, source, config, advance, **request
    )
    decode = run.vocabularies.target.decode
    chosen = []
    for ways, reference in zip(translations, references, strict=True):
        place = 0
        if reference is not None and len(ways) > 1:
            texts = [decode(way.ids) for way in ways]
            counts = sentence_statistics(texts, [reference] * len(texts), settings)
            place = int(np.argmax(sentence_bleu(counts)))
        chosen.append(ways[place].ids)
    return chosen
