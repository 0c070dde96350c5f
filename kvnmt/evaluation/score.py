# SPDX-License-Identifier: Apache-2.0
"""BLEU and chrF of every system, with the stars of the papers' tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvnmt.evaluation.base import Column, Report, System, Test, check_bleu
from kvnmt.metrics.bleu import (
    Score,
    corpus_bleu,
    corpus_chrf,
    mistaken,
    summed_bleu,
)
from kvnmt.metrics.significance import (
    LEVEL,
    RESAMPLES,
    interval,
    seed_of_environment,
    sign_test,
)

COLUMNS = (
    Column("system", "system"),
    Column("starred", "BLEU"),
    Column("half_interval", "±", "{:.2f}"),
    Column("chrf", "chrF2", "{:.2f}"),
    Column("length_ratio", "length ratio", "{:.3f}"),
)
SPREAD = (
    "±: half of what BLEU spans in 95 of 100 resamples of the sentences (bootstrap, "
    f"{RESAMPLES:,} resamples)"
)
STARS = f"sign test, p < {LEVEL}: * better than the row above, + than the first row"


def check(test: Test, systems: Sequence[System]) -> None:
    """Needs sacreBLEU's tokenizer, and a seed for the resamples."""
    check_bleu(test, systems)
    seed_of_environment()  # complains before anything is translated


def measure(test: Test, systems: Sequence[System]) -> Report:
    """Corpus scores; a star is the sign test of Meng et al. (2018), table 1."""
    counted = [system.statistics(test) for system in systems]
    rows, notes = [], []
    for n, system in enumerate(systems):
        bleu, chrf = _scores(test, system)
        marks = ""
        if n:
            above, first = counted[n - 1], counted[0]
            marks = "*" * _is_better(counted[n], above)
            marks += "+" * _is_better(counted[n], first)
        bounds = interval(counted[n])
        length, wanted = counted[n].sum(0)[-2:].tolist()
        rows.append(
            {
                "system": system.name,
                "bleu": bleu.score,
                "stars": marks,
                "starred": f"{bleu.score:.2f}{marks:<2}" if n else f"{bleu.score:.2f}",
                "interval": bounds,
                "half_interval": bounds and (bounds[1] - bounds[0]) / 2,
                "chrf": chrf.score,
                "length_ratio": length / wanted if wanted else 0.0,
                "bleu_signature": bleu.signature,
                "chrf_signature": chrf.signature,
            }
        )
        notes = [f"BLEU: {bleu.signature}", f"chrF2: {chrf.signature}"]
        notes += [SPREAD] if bounds else []
    if mistake := mistaken(test.reference, test.settings.tokenize):
        notes.append("{}: give --tokenize {}".format(*mistake))
    return Report("scores", COLUMNS, rows, [*notes, STARS] if rows[1:] else notes)


def _scores(test: Test, system: System) -> tuple[Score, Score]:
    """BLEU and chrF."""
    said, right, settings = system.hypotheses, test.reference, test.settings
    more: Any = {"more": test.more_references, "lowercase": settings.lowercase}
    bleu = corpus_bleu(said, right, tokenize=settings.tokenize, **more)
    return bleu, corpus_chrf(said, right, **more)


def _is_better(system: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    """Whether the sign test says so, and the score too."""
    test = sign_test(other, system)
    higher = summed_bleu(system.sum(0)) > summed_bleu(other.sum(0))
    return higher and test.improved > test.worsened and test.p < LEVEL
