# SPDX-License-Identifier: Apache-2.0
"""The command that looks at text before training: validate."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.table import Table
from rich.text import Text

from kvnmt.cli_tables import FLAT, print_table
from kvnmt.data.corpus import load_vocabularies
from kvnmt.data.findings import named
from kvnmt.data.validate import FileFigures, Report, ValidateConfig, validate
from kvnmt.experiment import load_experiment

COLOURS = {"error": "bold red", "warning": "yellow", "note": "dim"}


@dataclass(frozen=True)
class Validate:
    """Look parallel text over before training; status 1 if anything is serious.

    Told are lines that are missing, shifted, empty, not UTF-8 or hold odd characters,
    pairs that are uneven, too long, identical or there twice, overlap of the parts and
    unknown words.
    """

    config: Annotated[ValidateConfig, FLAT]
    run: Path | None = None  # count tokens and unknown ones as this run does
    json: bool = False  # print a JSON object instead of tables

    def __call__(self) -> None:
        """Looks."""
        trained = None
        if self.run:
            load_experiment(self.run)  # tells a folder that is none
            trained = load_vocabularies(self.run / "vocabulary")
        report = validate(self.config, trained)
        if self.json:
            print(json.dumps(report.as_plain()))
        else:
            _print(report)
        if report.serious:
            raise SystemExit(1)


def _print(report: Report) -> None:
    names = ("part", "side", "lines", "empty", "tokens", "unknown", "file")
    files = Table(*names, box=None, caption=_kept(report), caption_justify="left")
    for file in report.files:
        files.add_row(*_row(file))
    print_table(files)
    if not report.findings:
        return
    findings = Table("", "found", "count", "where", box=None)
    for found in report.findings:
        severity = Text(found.severity, COLOURS[found.severity])
        # A sentence may hold the name of a file, which is no markup.
        row = found.name, f"{found.count:,}", Text(found.message)
        findings.add_row(severity, *row)
    print_table(findings)


def _kept(report: Report) -> str:
    if report.kept is None:
        return "no pairs, as long as the numbers of lines differ"
    kept = report.kept
    dropped = f"{kept.too_long:,} too long, {kept.empty:,} empty"
    return f"{named(kept.pairs, 'training pair')} ({dropped})"


def _row(file: FileFigures) -> tuple[str | Text, ...]:
    share = f"{file.unknown / max(file.tokens, 1):.2%}"
    numbers = (f"{n:,}" for n in (file.lines, file.empty, file.tokens))
    return file.part, file.side, *numbers, share, Text(file.file)
