# SPDX-License-Identifier: Apache-2.0
"""BLEU and chrF of every system, with the stars of the papers' tables."""

from collections.abc import Sequence

from kvnmt.evaluation.bleu import corpus_bleu, corpus_chrf
from kvnmt.evaluation.significance import sign_test, stars
from kvnmt.measures.base import Column, Report, System, Test

COLUMNS = (
    Column("system", "system"),
    Column("starred", "BLEU"),
    Column("chrf", "chrF2", "{:.2f}"),
    Column("length_ratio", "length ratio", "{:.3f}"),
)
STARS = "sign test, p < 0.01: * better than the row above, + than the first row"


def measure(test: Test, systems: Sequence[System]) -> Report:
    """Corpus scores; a star is the sign test of Meng et al. (2018), table 1."""
    counted = [test.statistics(system) for system in systems]
    rows, notes = [], []
    for n, system in enumerate(systems):
        given = system.hypotheses, test.reference
        bleu = corpus_bleu(*given, **test.settings._asdict())
        chrf = corpus_chrf(*given, lowercase=test.settings.lowercase)
        better = [
            sign.p if sign.improved > sign.worsened else None
            for sign in (sign_test(counted[k], counted[n]) for k in (n - 1, 0) if n)
        ]
        marks = stars(better[0], better[1]) if better else ""
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
