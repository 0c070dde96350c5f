# SPDX-License-Identifier: Apache-2.0
"""Which measures are taken of systems, and taking them."""

from collections.abc import Callable, Iterator, Sequence

from kvnmt.errors import UserError, unknown_name
from kvnmt.evaluation import MEASURES
from kvnmt.evaluation.base import LackingError, Report, System, Test

ALL = "all"


def check_names(names: Sequence[str]) -> None:
    """Refuses a measure that there is not.

    Raises:
        UserError: There is none of that name; the nearest is suggested.
    """
    for name in names:
        if name not in (*MEASURES, ALL):
            raise unknown_name("measure", name, [*MEASURES, ALL])


def choose(names: Sequence[str], test: Test, systems: Sequence[System]) -> list[str]:
    """The measures to take: those that are named, else what the input is for.

    Raises:
        UserError: A measure that is named lacks something, or one cannot be taken here.
    """
    lenient = ALL in names
    if lenient:
        names = list(MEASURES)
    elif not names:
        names = [name for name, one in MEASURES.items() if one.wanted(test, systems)]
    for name in names:
        try:
            MEASURES[name].check(test, systems)
        except LackingError as lacking:
            if not lenient:
                raise _unmeasured(name, lacking) from None
    return list(names)


def take(
    names: Sequence[str],
    test: Test,
    systems: Sequence[System],
    leave_out: Callable[[str], None] | None = None,
) -> Iterator[tuple[str, list[Report]]]:
    """The reports of every measure, by its name, each as soon as it is taken.

    Args:
        names: Of the measures.
        test: What the systems are measured on.
        systems: The baseline first.
        leave_out: Called with a sentence for every measure that lacks something; None:
            that is an error.

    Raises:
        UserError: A measure lacks something.
    """
    for name in names:
        try:
            result = MEASURES[name](test, systems)
        except LackingError as lacking:
            if leave_out is None:
                raise _unmeasured(name, lacking) from None
            leave_out(f"left out {name}: {lacking}.")
            result = []
        yield name, result


def _unmeasured(name: str, lacking: LackingError) -> UserError:
    return UserError(f"{name} cannot be measured: {lacking}.")
