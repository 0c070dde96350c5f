# SPDX-License-Identifier: Apache-2.0
"""Whether a mechanism keeps its laws, as a report for people to read."""

import html
import inspect
import os
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import beartype
import flax
import jax
import jaxtyping
import numpy as np

from kvnmt import attention, decoder, target_context
from kvnmt.attention import Attention, kv_memory
from kvnmt.catalogue import Mechanism
from kvnmt.decoder import Decoder
from kvnmt.errors import UserError, unknown_name
from kvnmt.fields import check_fields
from kvnmt.laws import attention as attention_laws
from kvnmt.laws import decoder as decoder_laws
from kvnmt.laws import decoder_trial
from kvnmt.laws import target_context as context_laws
from kvnmt.laws import trial as trials
from kvnmt.laws.law import Law
from kvnmt.target_context import TargetContext
from kvnmt.typing import Sizes

LONGEST = 500  # characters of what somebody else's error says
# Where the errors of a mechanism surface; its author looks elsewhere.
OURS = str(Path(__file__).parents[1])
PACKAGES = jax, flax, np, jaxtyping, beartype
LIBRARIES = tuple(
    f"{folder}{os.sep}"
    for folder in (OURS, *(path for package in PACKAGES for path in package.__path__))
)
ALIKE = 12, 40  # widths for all parts; most numbers below 11 divide one of them
RUNS, STATEMENT = "runs", "it is built, and works on a few sentences"


class Verdict(NamedTuple):
    """One law: whether it holds, and if not, what breaks it."""

    law: str
    statement: str
    outcome: Literal["holds", "FAILS", "excused", "untried"]
    reason: str = ""  # of a failure


class Verdicts(NamedTuple):
    """All laws of one mechanism; the last line of a notebook's cell shows them."""

    laws: list[Verdict]

    @property
    def hold(self) -> bool:
        """Whether all laws hold, but for those that are excused."""
        return not self.failed

    def __bool__(self) -> bool:
        """Whether all laws hold, so that a test can assert it."""
        return self.hold

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


def _attending(attention: Attention, *sizes: Sizes) -> trials.Trial:
    """Makes a trial, with equal widths if the attention refuses others."""
    if sizes:
        return trials.make_trial(attention, *sizes)
    try:
        return trials.make_trial(attention)
    except UserError:
        alike = trials.SIZES._replace(state=trials.SIZES.annotation)
        return trials.make_trial(attention, alike)


class Kind(NamedTuple):
    """What is checked in the same way."""

    Options: type  # base of those of every such mechanism
    Built: type
    laws: Sequence[Law[Any]]
    make_trial: Callable[..., Any]  # of what was built, perhaps of other sizes
    around: tuple[Any, ...] = ()  # what ``build`` takes beside the options


KINDS = (
    Kind(attention.Options, Attention, attention_laws.LAWS, _attending),
    Kind(
        target_context.Options,
        TargetContext,
        context_laws.LAWS,
        context_laws.make_trial,
    ),
    Kind(
        decoder.Options,
        Decoder,
        decoder_laws.LAWS,
        decoder_trial.make_trial,
        around=(decoder_trial.heeding(kv_memory.build(kv_memory.Options())),),
    ),
)


def check(
    mechanism: Mechanism | Attention | TargetContext | Decoder,
    options: Any = None,
    *,
    excused: Collection[str] = (),
    sizes: Sizes | None = None,
) -> Verdicts:
    """Tries the laws that all such mechanisms of the catalogue keep, on small numbers.

    A law that does not hold is in the report with what breaks it; so is an error of
    the mechanism itself.

    Args:
        mechanism: An attention, a target context or a decoder: what has ``Options``
            and ``build``, such as a module, or the `Attention`, `TargetContext` or
            `Decoder` that ``build`` returns. A decoder is built around a key memory,
            which writes. If it works differently around an attention that writes
            nothing, also check it as built around one.
        options: Its choices; by default ``Options()``.
        excused: Names of laws that need not hold: a mechanism that knows the order
            of the source does not keep ``order``.
        sizes: The widths to try; by default all of them differ or, if an attention
            refuses that, state and annotations are equally wide.

    Raises:
        UserError: There is no law of a name that is excused, what is to be checked is
            none of these, or the options are those of another.

    Example::

        >>> from kvnmt.attention import additive
        >>> verdicts = kvnmt.check(additive)
        >>> verdicts.hold, verdicts.failed
        (True, [])
    """
    kind = _kind_of(mechanism, options)
    laws, names = kind.laws, [law.name for law in kind.laws]
    for name in [excused] if isinstance(excused, str) else excused:
        if name not in names:
            raise unknown_name("law", name, names)
    file = _file_of(mechanism)
    built: Any = mechanism
    try:
        if not isinstance(mechanism, kind.Built):
            chosen = built.Options() if options is None else options
            check_fields(chosen)
            built = built.build(chosen, *kind.around)
        trial = kind.make_trial(built, *([] if sizes is None else [sizes]))
        trial.course()
    except Exception as error:  # a mechanism may raise anything
        reason = _reason(error, file)
        if sizes is None and isinstance(built, kind.Built) and _runs(kind, built):
            reason += "; it runs where all widths are alike: give sizes that fit"
        failure = Verdict(RUNS, STATEMENT, "FAILS", reason)
        untried = [Verdict(law.name, law.statement, "untried") for law in laws]
        return Verdicts([failure, *untried])
    verdicts = [_verdict(law, trial, law.name in excused, file) for law in laws]
    return Verdicts([Verdict(RUNS, STATEMENT, "holds"), *verdicts])


def _kind_of(mechanism: Any, options: Any) -> Kind:
    """What is to be checked.

    Raises:
        UserError: It is nothing that can be, or the options are not its.
    """
    listed = getattr(mechanism, "Options", None)
    if options is not None and type(options) is not listed:
        raise UserError(
            f"the options are {type(options).__module__}.{type(options).__qualname__}; "
            "give those of the mechanism, or none."
        )
    for kind in KINDS:
        derived = isinstance(listed, type) and issubclass(listed, kind.Options)
        if isinstance(mechanism, kind.Built) or derived:
            return kind
    names = ", ".join(f"{kind.Options.__module__}.Options" for kind in KINDS)
    name = getattr(mechanism, "__name__", f"what is of type {type(mechanism).__name__}")
    raise UserError(
        f"{name} is of no kind that has laws; give a module, or what has build and an "
        f"Options like one, derived from one of {names}."
    )


def _runs(kind: Kind, built: Any) -> bool:
    """Whether it works where all widths are alike."""
    for width in ALIKE:
        with suppress(Exception):  # likewise
            kind.make_trial(built, Sizes(*[width] * 5)).course()
            return True
    return False


def _file_of(mechanism: Any) -> str:
    """Where a mechanism was written, perhaps among ours."""
    function = getattr(mechanism, "build", None) or getattr(mechanism, "init", None)
    while isinstance(function, partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None) if function else None
    return code.co_filename if code else ""


def _verdict(law: Law[Any], trial: Any, excused: bool, file: str) -> Verdict:
    try:
        reasons = list(law.violations(trial))
    except Exception as error:  # likewise
        reasons = [_reason(error, file)]
    if not reasons:
        return Verdict(law.name, law.statement, "holds")
    outcome = "excused" if excused else "FAILS"
    return Verdict(law.name, law.statement, outcome, reasons[0])


def _reason(error: Exception, file: str) -> str:
    text = " ".join(str(error).split())
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    return f"{type(error).__name__}: {text.rstrip('.')}{_place(error, file)}"


def _place(error: Exception, file: str) -> str:
    """The last line of the mechanism's own, if any.

    Most errors surface in a library. Where all frames are of one, the mechanism may be
    one of ours, and its file tells.
    """
    frames = traceback.extract_tb(error.__traceback__)
    others = (*LIBRARIES, "<")
    lines = [frame for frame in frames if not frame.filename.startswith(others)]
    lines = lines or [frame for frame in frames if frame.filename == file]
    if not lines:
        return ""
    return f" (line {lines[-1].lineno}, in {lines[-1].name}: {lines[-1].line})"


def _sentence(verdict: Verdict) -> str:
    if not verdict.reason:
        return verdict.statement
    return f"{verdict.statement}: {verdict.reason}"
