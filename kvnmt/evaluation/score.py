# SPDX-License-Identifier: Apache-2.0
"""BLEU and chrF of every system, with the stars of the papers' tables."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvnmt.evaluation.base import Column, Report, System, Test
from kvnmt.metrics.bleu import corpus_bleu, corpus_chrf, summed_bleu
from kvnmt.metrics.significance import LEVEL, sign_test, stars

COLUMNS = (
    Column("system", "system"),
    Column("starred", "BLEU"),
    Column("chrf", "chrF2", "{:.2f}"),
    Column("length_ratio", "length ratio", "{:.3f}"),
)
STARS = f"sign test, p < {LEVEL}: * better than the row above, + than the first row"


def measure(test: Test, systems: Sequence[System]) -> Report:
    """Corpus scores; a star is the sign test of Meng et al. (2018), table 1."""
    counted = [system.statistics(test) for system in systems]
    rows, notes = [], []
    for n, system in enumerate(systems):
        bleu = corpus_bleu(
            system.hypotheses,
            test.reference,
            more=test.more_references,
            tokenize=test.settings.tokenize,
            lowercase=test.settings.lowercase,
        )
        chrf = corpus_chrf(
            system.hypotheses,
            test.reference,
            more=test.more_references,
            lowercase=test.settings.lowercase,
        )
        marks = ""
        if n:
            above, first = counted[n - 1], counted[0]
            marks = stars(_better(above, counted[n]), _better(first, counted[n]))
        rows.append(
            {
                "system": system.name,
                "bleu": bleu.score,
                "stars": marks,
                "starred": f"{bleu.score:.2f}{marks:<2}" if n else f"{bleu.score:.2f}",
                "chrf": chrf.score,
                "length_ratio": bleu.length_ratio,
                "bleu_signature": bleu.signature,
                "chrf_signature": chrf.signature,
            }
        )
        notes = [f"BLEU: {bleu.signature}", f"chrF2: {chrf.signature}"]
    return Report("scores", COLUMNS, rows, [*notes, STARS] if rows[1:] else notes)


def _better(baseline: NDArray[np.int64], system: NDArray[np.int64]) -> float | None:
    """P of the sign test, if this system is the better one in score too."""
    test = sign_test(baseline, system)
    higher = summed_bleu(system.sum(0)) > summed_bleu(baseline.sum(0))
    return test.p if higher and test.improved > test.worsened else None
