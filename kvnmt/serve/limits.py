# SPDX-License-Identifier: Apache-2.0
"""What a request may ask for, and the one sentence that refuses what is more."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from kvnmt.fields import at_least, between

MOST_ROWS = 64  # lines that are answered together
COMMON = 200  # tokens of a line: alignments of longer ones are larger
SHARE = 4  # requests, at least, find room together, however long their lines are
GONE = 499  # the status where the client went away; nobody reads it
Seconds: TypeAlias = Annotated[float, between(0.01, 86_400)]


@dataclass(frozen=True)
class Limits:
    """Limits of one request, and of all requests together."""

    lines: Annotated[int, at_least(1)] = 256  # per request
    aligned: Annotated[int, at_least(1)] = 32  # alignments in one request
    characters: Annotated[int, at_least(1)] = 5000  # per line
    # tokens of a line; translation splits longer ones; default: 199, or what the run
    # was trained on if more
    tokens: Annotated[int | None, between(1, 4096)] = None
    kilobytes: Annotated[int, at_least(1)] = 1024  # of the body of a request
    beam: Annotated[int, between(1, 1000)] = 20
    waiting: Annotated[int, at_least(1)] = 2048  # waiting lines of all requests
    seconds: Seconds = 60.0  # seconds until the answer
    sending: Seconds = 10.0  # seconds until a request has arrived whole


class Refusal(Exception):
    """A request that is not answered: a status of HTTP and one sentence."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status, self.message = status, message


def check_count(lines: Sequence[object], limits: Limits) -> None:
    """Refuses more lines than a request may have."""
    if len(lines) > limits.lines:
        raise Refusal(
            413,
            f"the request has {len(lines)} lines but may have {limits.lines}; send "
            "them in several requests.",
        )


def check_parts(count: int, limits: Limits) -> None:
    """Refuses a request of so many parts of lines that nobody else would find room."""
    most = max(limits.lines, limits.waiting // SHARE)
    if count > most:
        raise Refusal(
            413,
            f"the request has more than {most} lines once long ones are split; send "
            "them in several requests.",
        )


def check_aligned(tokens: Sequence[int], nbest: int, limits: Limits) -> None:
    """Refuses more translations with alignments than a request may have.

    An answer with alignments is long, and nobody else is answered while it is written.
    So one of a line that is uncommonly long counts as several.

    Args:
        tokens: Of every part of a line.
        nbest: How many translations each has.
        limits: How many there may be.
    """
    count = nbest * sum(math.ceil(max(1, (n / COMMON) ** 2)) for n in tokens)
    if count > limits.aligned:
        raise Refusal(
            413,
            f"the request asks for {count} alignments, once long lines are split and "
            f"with every translation of 'nbest', but may for {limits.aligned}; ask for "
            "a smaller 'nbest', or send its lines in several requests.",
        )


def check_shown(shown: Sequence[tuple[int, int]], limits: Limits) -> None:
    """Refuses a line of which more would be shown than of aligned translations.

    Args:
        shown: For every system how many matrices, and of how many tokens.
        limits: How many alignments of common length there may be.
    """
    count = math.ceil(sum(several * (n / COMMON) ** 2 for several, n in shown))
    if count > limits.aligned:
        raise Refusal(
            413,
            f"what is shown of this line is as large as {count} alignments but may be "
            f"as large as {limits.aligned}; send a shorter line.",
        )


def clean_line(text: object, place: str, limits: Limits) -> str:
    """A line as ``kvnmt translate`` reads one: a line feed alone would end it.

    Args:
        text: What was sent.
        place: What it is called, for people.
        limits: What it may be.

    Raises:
        Refusal: It is no line of text, or too long.
    """
    if not isinstance(text, str):
        raise Refusal(400, f"{place} is no string.")
    if len(text) > limits.characters:
        raise Refusal(
            413,
            f"{place} has {len(text)} characters but may have {limits.characters}.",
        )
    if "\n" in text:
        raise Refusal(
            400, f"{place} holds a line feed; send each line as a string of its own."
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Refusal(
            400,
            f"{place}: character {error.start + 1} is half of a surrogate pair, which "
            "no UTF-8 text has.",
        ) from None
    return text.removesuffix("\r")


def check_tokens(count: int, place: str, most: int) -> None:
    """Refuses a text that cannot be split and has too many tokens."""
    if count > most:
        raise Refusal(413, f"{place} has {count} tokens but may have {most} here.")
