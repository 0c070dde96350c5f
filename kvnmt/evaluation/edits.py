# SPDX-License-Identifier: Apache-2.0
"""Edits that translations need to become a reference, and chrF that counts words."""

from collections.abc import Sequence
from typing import Any

from kvnmt.console import counting
from kvnmt.data.scripts import eastern, unspaced
from kvnmt.evaluation.base import Column, Report, System, Test
from kvnmt.metrics.bleu import corpus_chrf, corpus_ter

COLUMNS = (
    Column("system", "system"),
    Column("ter", "TER", "{:.2f}"),
    Column("chrf", "chrF2++", "{:.2f}"),
)
NOTE = (
    "TER: insertions, deletions, substitutions and shifts for 100 words of the "
    "reference; less is better"
)
UNSPACED = "reference: no spaces between words; {}, chrF2++ lines"


def check(test: Test, systems: Sequence[System]) -> None:
    """Needs nothing."""


def measure(test: Test, systems: Sequence[System]) -> Report:
    """A row for each system; TER takes its time."""
    rows, notes = [], []
    more: Any = {"more": test.more_references, "lowercase": test.settings.lowercase}
    for system in systems:
        texts = system.hypotheses, test.reference
        with counting(f"counting edits of {system.name}", len(texts[1])) as advance:
            ter = corpus_ter(*texts, advance=advance, **more)
        chrf = corpus_chrf(*texts, word_order=2, **more)
        rows.append(
            {
                "system": system.name,
                "ter": ter.score,
                "chrf": chrf.score,
                "ter_signature": ter.signature,
                "chrf_signature": chrf.signature,
            }
        )
        notes = [f"TER: {ter.signature}", f"chrF2++: {chrf.signature}"]
    if unspaced(test.reference):
        parts = "ideographs" if eastern(test.reference) else "what spaces part"
        notes.append(UNSPACED.format(f"TER takes {parts} for words"))
    return Report("edits", COLUMNS, rows, [*notes, NOTE])
