# SPDX-License-Identifier: Apache-2.0
"""What a user can get wrong, said in one sentence."""

import difflib
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple


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


# Signals that ask a training to save and leave: by a queue, a key, a closed terminal.
LEAVING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
STATUS_OF_SIGNALS = 128  # to which the number of the signal is added
BROKEN_PIPE = 141  # what a shell tells of a program ended by SIGPIPE
UNREACHABLE = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class UnknownNameError(UserError, KeyError):
    """A name that is not in a catalogue; as a KeyError it works with ``get``."""

    __str__ = Exception.__str__  # a KeyError puts its sentence between quotes


def short_of_memory(error: BaseException) -> bool:
    """Whether JAX says that the memory of a device runs out."""
    return "RESOURCE_EXHAUSTED" in str(error)


def lacks_device(error: BaseException) -> bool:
    """Whether JAX says that it cannot start a device."""
    return "Unable to initialize backend" in str(error)


def reason_of(error: BaseException) -> str:
    """Why something failed, as the system says it: without a number or a file."""
    return getattr(error, "strerror", None) or str(error)


class StoppedError(Exception):
    """Work was ended by a signal, with nothing lost; the message is for a person.

    The command line prints the message and exits with 128 and the signal's number.
    """

    def __init__(self, message: str, number: int):
        super().__init__(message, number)  # both, so that it passes between processes
        self.status = STATUS_OF_SIGNALS + number

    def __str__(self) -> str:
        """Returns the message."""
        return str(self.args[0])


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Builds the error for a name that is not in a catalogue.

    Args:
        kind: What the name should have been, for example ``"system"``.
        name: What the user wrote.
        known: The names that exist; the nearest one is suggested.
    """
    known = sorted(known)
    written, names = str(name).lower(), {each.lower(): each for each in known}
    nearest = difflib.get_close_matches(written, names, n=1, cutoff=0.65) or [
        each
        for each in names
        if each.startswith(written)
        and len(written) > 2
        or written.startswith(f"{each}_")
    ]
    hint = f"; did you mean '{names[nearest[0]]}'?" if nearest else "."
    sentence = f"there is no {kind} '{name}'{hint} Known: {', '.join(known)}."
    return UnknownNameError(sentence)


def first_line(error: BaseException) -> str:
    """What an error of a library says, in one line and without a full stop."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def tell(message: str) -> None:
    """Writes a line to standard error, if that can be."""
    with suppress(OSError):  # such as a full disk: the status tells, too
        print(message, file=sys.stderr)


def run_program(name: str, work: Callable[[], object]) -> None:
    """Does the work of a program; a user's mistake is one sentence and status 2.

    Where nobody reads standard output to its end, it ends silently with status 141.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # nobody wants to read it
    if sys.stdout is None:
        tell(f"{name}: standard output is closed; write to a file.")
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
        reason = f"what it gives cannot be written ({reason_of(error)})"
        tell(f"{name}: {reason}; make room, or write elsewhere.")
        raise SystemExit(2) from None


def _run(name: str, work: Callable[[], object]) -> None:
    try:
        work()
    except UserError as error:
        told = error.by_flag if isinstance(error, OptionError) else error
        tell(f"{name}: {told}")
        raise SystemExit(2) from None
    except FileNotFoundError as error:
        if error.filename is not None or _is_somewhere():
            raise
        tell(f"{name}: the current folder is gone; change to another.")
        raise SystemExit(2) from None
    except OSError as error:
        if error.errno not in UNREACHABLE or not isinstance(error.filename, str):
            raise
        remedy = "name another path, or mend its permissions"
        tell(
            f"{name}: '{error.filename}' is out of reach: {reason_of(error)}; {remedy}."
        )
        raise SystemExit(2) from None
    except StoppedError as stopped:
        tell(f"{name}: {stopped}")
        raise SystemExit(stopped.status) from None
    except KeyboardInterrupt:
        tell(f"{name}: interrupted.")
        raise SystemExit(130) from None


def _is_somewhere() -> bool:
    """Whether the current folder is there."""
    with suppress(FileNotFoundError):
        return bool(os.getcwd())
    return False


def _forget_output() -> None:
    """What is still in the buffer must not fail again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Idle(NamedTuple):
    """Fields of a config that do nothing because of the values of other fields."""

    fields: tuple[str, ...]
    sentence: str  # the refusal of one of them, which is {0}
    others: tuple[str, ...] = ()  # further fields in the sentence: {1}, {2} ...


def check_given(
    config: Any, idle: Iterable[Idle], *starts: Any, prefix: str = ""
) -> None:
    """Refuses a field that was given although it has no effect.

    Args:
        config: A dataclass.
        idle: Its fields that have no effect.
        starts: Configs that it may have been made from. A value that one of them has
            was not given: a recipe or an older run may hold values without effect.
        prefix: What the flag of every field begins with.

    Raises:
        OptionError: A field was given that does nothing; the first is named.
    """
    for fields, sentence, others in idle:
        for name in fields:
            value = getattr(config, name)
            if all(getattr(start, name) != value for start in starts):
                raise OptionError(sentence, name, *others, prefix=prefix)
