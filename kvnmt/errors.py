# SPDX-License-Identifier: Apache-2.0
"""What a user can get wrong, said in one sentence."""

import difflib
import sys
from collections.abc import Callable, Iterable


class UserError(Exception):
    """A mistake in the input; its message is one sentence for a person.

    The command line prints the message alone and exits with status 2.
    """


STATUS_OF_SIGNALS = 128  # to which the number of the signal is added


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
    """Does the work of a program; a user's mistake is one sentence and status 2."""
    try:
        work()
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except StoppedError as stopped:
        print(f"{name}: {stopped}", file=sys.stderr)
        raise SystemExit(stopped.status) from None
    except KeyboardInterrupt:
        print(f"{name}: interrupted.", file=sys.stderr)
        raise SystemExit(130) from None
