# SPDX-License-Identifier: Apache-2.0
"""The mechanisms that systems are made of, read off the catalogues.

Nothing is declared: what a mechanism says of itself, its options, their defaults and
their bounds come from its module.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args, get_type_hints

from rich.table import Table
from rich.text import Text

from kvnmt import attention, decoder, target_context
from kvnmt.fields import bounds_of

CATALOGUES = attention.CATALOGUE, decoder.CATALOGUE, target_context.CATALOGUE


class Option(NamedTuple):
    """One option of a mechanism."""

    name: str
    default: Any
    choices: tuple[Any, ...]  # of names; else none
    bounds: str  # of a number, as people read them


class Row(NamedTuple):
    """One member of a catalogue."""

    kind: str
    mechanism: str
    summary: str  # the first line of its module
    options: list[Option]


def mechanisms() -> list[Row]:
    """Every member of the three catalogues, in the order of listing."""
    return [
        Row(catalogue.kind, name, _summary(member), options_of(member.Options))
        for catalogue in CATALOGUES
        for name, member in catalogue.items()
    ]


def options_of(kind: type) -> list[Option]:
    """What can be chosen of a mechanism.

    Args:
        kind: Its options, a dataclass with a default for every field.
    """
    hints, bounds, defaults = get_type_hints(kind), bounds_of(kind), kind()
    return [
        Option(
            name=field.name,
            default=_plain(getattr(defaults, field.name)),
            choices=tuple(c for c in get_args(hints[field.name]) if type(c) is str),
            bounds=str(bounds.get(field.name, "")),
        )
        for field in dataclasses.fields(kind)
    ]


def _plain(value: Any) -> Any:
    """The options of another mechanism, held inside, by their names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def table(rows: Sequence[Row]) -> Table:
    """The mechanisms as people read them; a line for every option."""
    result = Table(
        "kind",
        "mechanism",
        "what it is",
        "option",
        "default",
        "allowed",
        title="mechanisms: --attention, --decoder and --target-context of training",
        box=None,
    )
    for row in rows:
        cells = [Text(row.kind), Text(row.mechanism), Text(row.summary)]
        for option in row.options:
            allowed = ", ".join(option.choices) or option.bounds
            values = (option.name, str(option.default), allowed)
            result.add_row(*cells, *(Text(value) for value in values))
            cells = [Text(), Text(), Text()]
        if not row.options:
            result.add_row(*cells)
    return result


def _summary(member: Any) -> str:
    """The first line of the module in which the options of a member stand."""
    lines = (sys.modules[member.Options.__module__].__doc__ or "").splitlines()
    return lines[0] if lines else ""
