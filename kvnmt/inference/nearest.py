# SPDX-License-Identifier: Apache-2.0
"""Chooses, among the best translations of a sentence, the nearest to a reference.

Kim and Rush (2016), "Sequence-Level Knowledge Distillation", section 3.3: a teacher's
best translation may be far from the reference, and the reference may be one that no
student can learn. Between the two lies the translation with the highest sentence BLEU
among the teacher's K best.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kvnmt.metrics.bleu import Settings, sentence_bleu, sentence_statistics


class Nearest(NamedTuple):
    """What translations are to come near to."""

    references: Sequence[str | None]  # of every sentence; None: the best is taken
    settings: Settings = Settings()  # how BLEU takes text apart

    def choose(self, sentence: int, translations: Sequence[str]) -> int:
        """The place of the nearest by smoothed sentence BLEU; of equals the first.

        Args:
            sentence: Whose translations these are.
            translations: The best first.
        """
        reference = self.references[sentence]
        if reference is None or len(translations) == 1:
            return 0
        beside = [reference] * len(translations)
        counts = sentence_statistics(translations, beside, self.settings)
        return int(np.argmax(sentence_bleu(counts)))
