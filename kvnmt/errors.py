# SPDX-License-Identifier: Apache-2.0
"""What a user can get wrong, said in one sentence.

Bounds of numbers in a config stand on the field that holds the number::

    @dataclass(frozen=True)
    class Options:
        rounds: Annotated[int, at_least(1)] = 1
        window: Annotated[int | None, at_least(1)] = None
        rate: Annotated[float, between(0, 0.99)] = 0.0

`check_bounds` finds them wherever such a config is held, so a new option brings its
bounds along.
"""

import dataclasses
import difflib
import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple, get_type_hints


class UserError(Exception):
    """A mistake in the input; its message is one sentence for a person.

    The command line prints the message alone and exits with status 2.
    """


class OptionError(UserError):
    """An option that cannot be: the library names its field, the command its flag."""

    def __init__(self, sentence: str, *fields: str, prefix: str = ""):
        """Makes both sentences.

        Args:
            sentence: With ``{0}``, ``{1}`` ... where the fields are named.
            fields: Their paths in the config.
            prefix: What these begin with where they are flags.
        """
        super().__init__(_named(sentence, fields))
        self.by_flag = _named(sentence, [flag(f"{prefix}{path}") for path in fields])


def flag(path: str) -> str:
    """How the command line calls the field at a path."""
    return f"--{path.replace('_', '-')}"


def _named(sentence: str, names: Iterable[str]) -> str:
    """A sentence with its names; braces of a path or a text in it stay as they are."""
    for n, name in enumerate(names):
        sentence = sentence.replace(f"{{{n}}}", name)
    return sentence


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun: ``1 line``, ``1,200 lines``."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


STATUS_OF_SIGNALS = 128  # to which the number of the signal is added
BROKEN_PIPE = 141  # what a shell tells of a program ended by SIGPIPE
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class StoppedError(Exception):
    """Work was ended by a signal, with nothing lost; the message is for a person.

    The command line prints the message and exits with 128 and the signal's number.
    """

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.status = STATUS_OF_SIGNALS + number


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Builds the error for a name that is not in a catalogue.

    Args:
        kind: What the name should have been, for example ``"system"``.
        name: What the user wrote.
        known: The names that exist; the nearest one is suggested.
    """
    known = sorted(known)
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"; did you mean '{nearest[0]}'?" if nearest else "."
    return UserError(f"there is no {kind} '{name}'{hint} Known: {', '.join(known)}.")


def run_program(name: str, work: Callable[[], object]) -> None:
    """Does the work of a program; a user's mistake is one sentence and status 2.

    Where nobody reads standard output to its end, it ends silently with status 141.
    """
    if sys.stdout is None:
        print(f"{name}: standard output is closed; write to a file.", file=sys.stderr)
        raise SystemExit(2)
    try:
        try:
            _run(name, work)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        raise SystemExit(BROKEN_PIPE) from None
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        _forget_output()
        reason = f"what it gives cannot be written ({error.strerror})"
        print(f"{name}: {reason}; make room, or write elsewhere.", file=sys.stderr)
        raise SystemExit(2) from None


def _run(name: str, work: Callable[[], object]) -> None:
    try:
        work()
    except UserError as error:
        told = error.by_flag if isinstance(error, OptionError) else error
        print(f"{name}: {told}", file=sys.stderr)
        raise SystemExit(2) from None
    except StoppedError as stopped:
        print(f"{name}: {stopped}", file=sys.stderr)
        raise SystemExit(stopped.status) from None
    except KeyboardInterrupt:
        print(f"{name}: interrupted.", file=sys.stderr)
        raise SystemExit(130) from None


def _forget_output() -> None:
    """What is still in the buffer must not fail again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Idle(NamedTuple):
    """Fields of a config that do nothing, since others are as they are."""

    fields: tuple[str, ...]
    sentence: str  # that refuses one of them, {0}
    others: tuple[str, ...] = ()  # that it names: {1}, {2} ...


def check_given(
    config: Any, idle: Iterable[Idle], *starts: Any, prefix: str = ""
) -> None:
    """Refuses what somebody gave though it can do nothing.

    Args:
        config: A dataclass.
        idle: What does nothing in it.
        starts: Configs that it may have been made from. Nobody gave what is as in one
            of them: a recipe or an older run may well hold what waits for another flag.
        prefix: What the flag of every field begins with.

    Raises:
        OptionError: A field was given that does nothing; the first is named.
    """
    for fields, sentence, others in idle:
        for name in fields:
            value = getattr(config, name)
            if all(getattr(start, name) != value for start in starts):
                raise OptionError(sentence, name, *others, prefix=prefix)


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
        """Whether a number keeps to them; NaN never does."""
        low = self.least is None or value >= self.least
        high = self.most is None or value <= self.most
        return low and high and value == value


# What a config may ask for at most, so that one from elsewhere cannot ask for a program
# or an array without end: repetitions that a program is written out for, entries of a
# vector.
DEEPEST, WIDEST = 64, 2**16


def at_least(least: float) -> Bounds:
    """No less than this."""
    return Bounds(least=least)


def between(least: float, most: float) -> Bounds:
    """From the first to the second, both included."""
    return Bounds(least, most)


def check_bounds(config: Any, prefix: str = "") -> None:
    """Refuses a config that holds a number out of its bounds.

    Args:
        config: A dataclass; its fields may hold dataclasses. None passes everywhere.
        prefix: What the flag of every field begins with.

    Raises:
        OptionError: A number is out of its bounds; field and bounds are named.
    """
    for path, value, bounds in _bounded(config):
        if value is not None and not bounds.hold(value):
            raise OptionError(
                f"{{0}} is {_shown(value)} but must be {bounds}.", path, prefix=prefix
            )


def _bounded(config: Any, inside: str = "") -> Iterator[tuple[str, Any, Bounds]]:
    """Path, value and bounds of every field that has some."""
    bounds = bounds_of(type(config))
    for field in dataclasses.fields(config):
        path, value = f"{inside}{field.name}", getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _bounded(value, f"{path}.")
        elif field.name in bounds:
            yield path, value, bounds[field.name]


def _shown(value: float) -> str:
    """A number in a few characters; one of thousands of digits is no float."""
    return f"{value:.10g}" if abs(value) < 1e300 or value != value else "too large"


@cache
def bounds_of(kind: type) -> dict[str, Bounds]:
    """The bounds of the fields of a dataclass, by the field's name."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: bound
        for name, hint in hints.items()
        for bound in getattr(hint, "__metadata__", ())
        if isinstance(bound, Bounds)
    }
