# SPDX-License-Identifier: Apache-2.0
"""Tables of experiments/findings/papers.md, with columns for each setting."""

from collections.abc import Sequence

from kvnmt.evaluation.base import Column

# The test sets of NIST, if their files are named mt03.zh and so on.
NIST = tuple(Column(f"bleu_mt0{n}", f"MT0{n}", "{:.2f}") for n in range(3, 7))
SETTINGS = ("paper", "small", "made-up")  # the last: small, on the made-up language


def by_setting(columns: Sequence[Column]) -> list[Column]:
    """The columns once for each setting."""
    return [
        Column((setting, column.key), f"{column.heading}, {setting}", column.form)
        for setting in SETTINGS
        for column in columns
        if isinstance(column.key, str)
    ]
