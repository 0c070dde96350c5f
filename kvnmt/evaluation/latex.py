# SPDX-License-Identifier: Apache-2.0
"""Tables as LaTeX, to be put into a paper."""

import re
from collections.abc import Sequence

from kvnmt.evaluation.base import Report, cells_of

ESCAPES = {
    "±": r"$\pm$",
    "|": r"\textbar{}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{sign: f"\\{sign}" for sign in "%_&#${}"},
}


def latex(report: Report) -> str:
    """A report as LaTeX; its title and notes stand below it, as comments."""
    headings = [column.heading for column in report.columns]
    at_right = [place > 0 for place in range(len(headings))]  # all behind the name
    notes = [report.title, *report.notes]
    return tabular(headings, at_right, cells_of(report), notes)


def tabular(
    headings: Sequence[str],
    at_right: Sequence[bool],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
) -> str:
    r"""A ``tabular``, with `code` of Markdown as ``\texttt``.

    Args:
        headings: Of the columns.
        at_right: Which columns stand at the right, as numbers do.
        rows: Cells, as text.
        notes: Comments behind it.
    """
    lines = [" & ".join(map(_escaped, row)) + r" \\" for row in (headings, *rows)]
    columns = "".join("r" if right else "l" for right in at_right)
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{columns}}}",
            r"\hline",
            lines[0],
            r"\hline",
            *lines[1:],
            r"\hline",
            r"\end{tabular}",
            *(f"% {note}" for note in notes),
        ]
    )


def _escaped(cell: str) -> str:
    special = "|".join(map(re.escape, ESCAPES))
    cell = re.sub(special, lambda match: ESCAPES[match[0]], cell)
    return re.sub(r"`([^`]*)`", r"\\texttt{\1}", cell)
