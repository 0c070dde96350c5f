# SPDX-License-Identifier: Apache-2.0
"""Whether an attention keeps its laws, as a report for people to read."""

import html
from collections.abc import Collection
from typing import Literal, NamedTuple

from kvnmt.attention import Attention, Options
from kvnmt.catalogue import Mechanism
from kvnmt.errors import UserError, unknown_name
from kvnmt.laws.attention import LAWS, Law
from kvnmt.laws.trial import SIZES, Trial, make_trial
from kvnmt.typing import Sizes

LONGEST = 240  # characters of what somebody else's error says
RUNS, STATEMENT = "runs", "it is built, prepares a sentence, reads and writes"


class Verdict(NamedTuple):
    """One law: whether it holds, and if not, what breaks it."""

    law: str
    statement: str
    outcome: Literal["holds", "FAILS", "excused", "untried"]
    reason: str = ""  # of a failure


class Verdicts(NamedTuple):
    """All laws of one attention; the last line of a notebook's cell shows them."""

    laws: list[Verdict]

    @property
    def hold(self) -> bool:
        """Whether all laws hold, but for those that are excused."""
        return not self.failed

    @property
    def failed(self) -> list[str]:
        """The names of the laws that do not hold."""
        return [verdict.law for verdict in self.laws if verdict.outcome == "FAILS"]

    def __repr__(self) -> str:
        width = max(len(verdict.law) for verdict in self.laws)
        return "\n".join(
            f"{verdict.outcome:8} {verdict.law:{width}}  {_sentence(verdict)}"
            for verdict in self.laws
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(verdict.outcome)}</td>"
            f"<td><code>{html.escape(verdict.law)}</code></td>"
            f"<td style='text-align: left'>{html.escape(_sentence(verdict))}</td></tr>"
            for verdict in self.laws
        )
        return f"<table>{rows}</table>"


def check(
    mechanism: Mechanism | Attention,
    options: Options | None = None,
    *,
    excused: Collection[str] = (),
    sizes: Sizes | None = None,
) -> Verdicts:
    """Tries the laws that every attention of the catalogue keeps, on small numbers.

    A law that does not hold is in the report with what breaks it; so is an error of
    the mechanism itself.

    Args:
        mechanism: What has ``Options`` and ``build``, such as a module, or the
            `Attention` that ``build`` returns.
        options: Its choices; by default ``Options()``.
        excused: Names of laws that need not hold: a mechanism that knows the order
            of the source does not keep ``order``.
        sizes: The widths to try; by default all of them differ or, if the mechanism
            refuses that, state and annotations are equally wide.

    Raises:
        UserError: There is no law of a name that is excused.

    Example::

        >>> from kvnmt.attention import additive
        >>> verdicts = kvnmt.check(additive)
        >>> verdicts.hold, verdicts.failed
        (True, [])
    """
    names = [law.name for law in LAWS]
    for name in excused:
        if name not in names:
            raise unknown_name("law", name, names)
    try:
        trial = _trial(mechanism, options, sizes)
        trial.course()
    except Exception as error:  # a mechanism may raise anything
        failure = Verdict(RUNS, STATEMENT, "FAILS", _reason(error))
        untried = [Verdict(law.name, law.statement, "untried") for law in LAWS]
        return Verdicts([failure, *untried])
    verdicts = [_verdict(law, trial, law.name in excused) for law in LAWS]
    return Verdicts([Verdict(RUNS, STATEMENT, "holds"), *verdicts])


def _trial(
    mechanism: Mechanism | Attention, options: Options | None, sizes: Sizes | None
) -> Trial:
    if isinstance(mechanism, Attention):
        attention = mechanism
    else:
        attention = mechanism.build(options or mechanism.Options())
    if sizes is not None:
        return make_trial(attention, sizes)
    try:
        return make_trial(attention)
    except UserError:  # a product of query and annotation needs them equally wide
        return make_trial(attention, SIZES._replace(state=SIZES.annotation))


def _verdict(law: Law, trial: Trial, excused: bool) -> Verdict:
    try:
        reasons = list(law.violations(trial))
    except Exception as error:  # likewise
        reasons = [_reason(error)]
    if not reasons:
        return Verdict(law.name, law.statement, "holds")
    outcome = "excused" if excused else "FAILS"
    return Verdict(law.name, law.statement, outcome, reasons[0])


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    return f"{type(error).__name__}: {text}"


def _sentence(verdict: Verdict) -> str:
    if not verdict.reason:
        return verdict.statement
    return f"{verdict.statement}: {verdict.reason}"
