# SPDX-License-Identifier: Apache-2.0
"""What the fields of a config may hold, wherever the config comes from.

The kind of a field is its annotation, and so are the bounds of a number::

    @dataclass(frozen=True)
    class Options:
        values: Literal["fixed", "rewritten"] = "fixed"
        rounds: Annotated[int, at_least(1)] = 1
        window: Annotated[int | None, at_least(1)] = None
        rate: Annotated[float, between(0, 0.99)] = 0.0
        tau: Annotated[float, idle_while(gate="abc")] = 8.0
        slots: Annotated[int, at_least(1), EXTENDS] = 8

`check_fields` finds these annotations in every config, so a new option needs no other
check. The command line makes no other kinds of values. A notebook may do so, and an
unchecked value would mean something else, or fail after hours. `check_used` refuses a
field that was given although another field makes it useless. If one model starts
another, options that are not marked by `EXTENDS` must be equal.
"""

import dataclasses
import math
import types
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from kvnmt.errors import OptionError, unknown_name

Mark = TypeVar("Mark")


class Bounds(NamedTuple):
    """The least and the greatest value that is allowed; None: any."""

    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        """Returns how the bounds are told, for example ``at least 1``."""
        parts = [f"at least {self.least:.10g}"] if self.least is not None else []
        parts += [f"at most {self.most:.10g}"] if self.most is not None else []
        return " and ".join(parts)

    def hold(self, value: float) -> bool:
        """Whether a finite number keeps to them."""
        low = self.least is None or value >= self.least
        high = self.most is None or value <= self.most
        return low and high


class IdleWhile(NamedTuple):
    """Another field of the dataclass, and values with which this one does nothing."""

    other: str
    values: tuple[Any, ...]


# Marks a field in which a model may differ from the trained model that starts it. The
# model then has more of something, or another size, which shapes show, or another start
# or loss; the trained weights keep their meaning.
EXTENDS = object()

# What a config may ask for at most, so that one from elsewhere cannot ask for a program
# or an array without end: repetitions that a program is written out for, entries of a
# vector.
DEEPEST, WIDEST = 64, 2**16

KINDS = {
    bool: "True or False",
    int: "a whole number (int)",
    float: "a number (float)",
    str: "a text",
    Path: "a path",
    type(None): "None",
}


def at_least(least: float) -> Bounds:
    """No less than this."""
    return Bounds(least=least)


def between(least: float, most: float) -> Bounds:
    """From the first to the second, both included."""
    return Bounds(least, most)


def check_fields(config: Any, prefix: str = "") -> None:
    """Refuses a config with a field that holds what it may not.

    Args:
        config: A dataclass; its fields may hold dataclasses.
        prefix: What the flag of every field begins with.

    Raises:
        OptionError: A value is of another kind than its field, or a number is infinite
            or out of its bounds; the field and what it may hold are named.
    """
    for path, value, hint, bounds in _fields(config):
        if not _fits(value, hint):
            told = f"{{0}} is {_shown(value)} but must be {_told(hint)}."
            raise OptionError(told, path, prefix=prefix)
        if isinstance(value, float) and not math.isfinite(value):
            told = f"{{0}} is {value} but must be a finite number."
            raise OptionError(told, path, prefix=prefix)
        if bounds and value is not None and not bounds.hold(value):
            told = f"{{0}} is {_number(value)} but must be {bounds}."
            raise OptionError(told, path, prefix=prefix)


def check_changes(config: Any, changes: Mapping[str, Any], prefix: str = "") -> None:
    """Refuses new values of fields, by name, that a config lacks or cannot hold.

    Raises:
        UserError: There is no such field, or what `check_fields` raises.
    """
    names = [field.name for field in dataclasses.fields(config)]
    for name in changes:
        if name not in names:
            raise unknown_name(f"field of {type(config).__name__}", name, names)
    check_fields(dataclasses.replace(config, **changes), prefix)


def idle_while(**other: Any) -> IdleWhile:
    """Does nothing while another field has this value, or one of these."""
    ((name, value),) = other.items()
    return IdleWhile(name, value if isinstance(value, tuple) else (value,))


def check_used(config: Any, *starts: Any) -> None:
    """Refuses a field that was given although another field makes it useless.

    Args:
        config: A dataclass; its fields may hold dataclasses.
        starts: Configs that it may have been made from. A value that one of them has
            was not given; nor was a default if none of them has this dataclass. Of two
            fields that each do nothing without the other both may be turned off.

    Raises:
        OptionError: A field was given that does nothing; the first is named.
    """
    for refusal in unused(config, *starts).values():
        raise refusal


def unused(config: Any, *starts: Any) -> dict[str, OptionError]:
    """What `check_used` refuses, by the path of the field: all of it."""
    refusals = {}
    for path, other, nothing in _idle(config, starts):
        remedy = "change" if nothing is not None else "give"
        refusals[path] = OptionError(
            f"{{0}} does nothing while {{1}} is {_said(nothing)}; {remedy} {{1}}, or "
            "leave {0} out.",
            *(path, other),
        )
    return refusals


def idle(config: Any) -> set[str]:
    """The fields of a dataclass that do nothing beside the values of others."""
    marks = (
        (n, m) for n, h in _hints(type(config)).items() for m in _marks(h, IdleWhile)
    )
    return {name for name, mark in marks if getattr(config, mark.other) in mark.values}


@cache
def bounds_of(kind: type) -> dict[str, Bounds]:
    """The bounds of the fields of a dataclass, by the field's name."""
    return {
        name: bound
        for name, hint in _hints(kind).items()
        for bound in _marks(hint, Bounds)
    }


def extending(kind: type) -> set[str]:
    """The fields of a dataclass that are marked by `EXTENDS`."""
    hints = _hints(kind).items()
    return {n for n, hint in hints if EXTENDS in getattr(hint, "__metadata__", ())}


def _idle(
    config: Any, starts: Iterable[Any], inside: str = ""
) -> Iterator[tuple[str, str, Any]]:
    """What was given for nothing: its path, that of the other field, its value."""
    kind = type(config)
    alike = [start for start in starts if type(start) is kind]
    hints = _hints(kind)
    for name, hint in hints.items():
        value, before = getattr(config, name), [getattr(s, name) for s in alike]
        for other, values in _marks(hint, IdleWhile):
            nothing, back = getattr(config, other), _marks(hints[other], IdleWhile)
            off = [v for mark in back if mark.other == name for v in mark.values]
            usual = [*(before or [getattr(kind(), name)]), *off]
            if nothing in values and value not in usual:
                yield f"{inside}{name}", f"{inside}{other}", nothing
        if dataclasses.is_dataclass(value):
            yield from _idle(value, before, f"{inside}{name}.")


def _marks(hint: Any, kind: type[Mark]) -> list[Mark]:
    """What an annotation says beside the kind of a value."""
    said = getattr(hint, "__metadata__", ())
    return [mark for mark in said if isinstance(mark, kind)]


def _fields(
    config: Any, inside: str = ""
) -> Iterator[tuple[str, Any, Any, Bounds | None]]:
    """Path, value, annotation and bounds of every field; dataclasses before theirs."""
    hints, bounds = _hints(type(config)), bounds_of(type(config))
    for field in dataclasses.fields(config):
        path, value = f"{inside}{field.name}", getattr(config, field.name)
        yield path, value, hints[field.name], bounds.get(field.name)
        if dataclasses.is_dataclass(value):
            yield from _fields(value, f"{path}.")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the kind that an annotation names."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin is Annotated:
        return _fits(value, parts[0])
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is tuple:
        return isinstance(value, tuple) and _all_fit(value, parts)
    if isinstance(value, bool):
        return hint is bool or not isinstance(hint, type)
    if hint is float:
        return isinstance(value, (int, float))
    if hint is Path:  # a text is made one
        return isinstance(value, (str, Path))
    return not isinstance(hint, type) or isinstance(value, hint)


def _all_fit(values: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if hints[1:] == (...,):
        hints = hints[:1] * len(values)
    return len(values) == len(hints) and all(map(_fits, values, hints))


def _told(hint: Any) -> str:
    """What an annotation allows."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _told(parts[0])
    if origin in (Union, types.UnionType):
        return " or ".join(_told(part) for part in parts)
    if hint is ...:
        return "..."
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin is tuple:
        return f"a tuple ({', '.join(map(_told, parts))})"
    return KINDS.get(hint, f"a {hint.__module__}.{hint.__qualname__}")


def _shown(value: Any) -> str:
    """A value that does not fit: itself where texts are compared, else its type."""
    if isinstance(value, str) and len(value) < 100:
        return repr(value)
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"of type {module}{kind.__name__}"


def _said(value: Any) -> str:
    if value is None:
        return "not given"
    return _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    """A number in a few characters; one of thousands of digits is no float."""
    return f"{value:.10g}" if abs(value) < 1e300 else "too large"
