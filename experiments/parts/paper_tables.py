# SPDX-License-Identifier: Apache-2.0
"""Tables of experiments/findings/papers.md, with columns for each setting."""

from collections.abc import Mapping, Sequence

from experiments.harness.summaries import Summary
from kvnmt.evaluation.base import Column

# The test sets of NIST, if their files are named mt03.zh and so on.
NIST = tuple(Column(f"bleu_mt0{n}", f"MT0{n}", "{:.2f}") for n in range(3, 7))
SETTINGS = ("paper", "small", "made-up")  # the last: small, on the made-up language


def summary(
    name: str,
    columns: Sequence[Column],
    published: Mapping[str, str],
    published_as: str,
    *,
    by: Sequence[str] = ("system", "start"),
    published_with: str = "",
    differences: Mapping[str, str] | None = None,
    folder: str = "",
) -> Summary:
    """A table of experiments/findings/papers.md, with columns for each setting."""
    return Summary(
        name=name,
        columns=[
            Column((setting, column.key), f"{column.heading}, {setting}", column.form)
            for setting in SETTINGS
            for column in columns
            if isinstance(column.key, str)
        ],
        folder=folder,
        by=tuple(by),
        published=published,
        published_as=published_as,
        published_with=published_with,
        differences=differences or {},
    )
