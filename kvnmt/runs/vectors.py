# SPDX-License-Identifier: Apache-2.0
"""Starting embeddings as vectors that another program learnt from more text.

They come in text files as word2vec, GloVe and fastText write them (Qi et al. 2018 tell
when they help translation).
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Literal, TypeAlias

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kvnmt.data.lines import opened
from kvnmt.data.vocabularies import Vocabulary
from kvnmt.data.vocabulary import SPACE, Subwords
from kvnmt.errors import OptionError, UserError, counted
from kvnmt.typing import Array, Float

Side: TypeAlias = Literal["source", "target"]

GREATEST = float(np.finfo(np.float32).max)  # that an embedding can hold
LINE = 2**20  # bytes; text has no longer one
BEGINNING = 0.2  # share of pieces that begin a word, where spaces part words


def check_vectors(path: Path, width: int, side: str) -> None:
    """Refuses, by its first lines, a file that is no text or has other widths.

    Raises:
        UserError: It cannot be read, or its first vector has not ``width`` numbers.
    """
    with opened(path) as file:
        text, number = file.readline(LINE), 1
        if _is_header(text, width):
            text, number = file.readline(LINE), 2
        if b"\0" in text:
            raise UserError(
                f"'{path}' is no text, as a model of another program may be; have that "
                "write its vectors as text, as .vec files are."
            )
        if text:
            _check_width(text, f"'{path}', line {number}", width, side)


def with_vectors(
    table: Float[Array, "V E"],
    vocabulary: Vocabulary,
    path: Path,
    side: Side,
) -> tuple[Float[Array, "V E"], int]:
    """An embedding whose words start as the vectors of a file, and how many do.

    All are multiplied by one number, so that their entries have the mean square that
    the table starts with: initialisers depend on that. Words without a vector start as
    they would.

    Args:
        table: As it starts.
        vocabulary: Of the side.
        path: Text, plain or compressed with gzip: on each line a word, or piece, as the
            vocabulary has it, and its E numbers, one blank before each. A first line
            of two counts is passed over. Of several lines of a word the first counts.
        side: Whose words these are.

    Raises:
        UserError: The file cannot be read, or a line is no word and E numbers; an
            `OptionError` if it has other widths, or none of the words, or of subwords
            only those within a word.
    """
    ids = range(len(vocabulary))
    numbers = {word.encode(): n for n, word in zip(ids, vocabulary.pieces(ids))}
    check_vectors(path, table.shape[1], side)
    vectors = _read(path, numbers, table.shape[1])
    if not vectors:
        raise OptionError(
            f"'{path}' has a vector for none of the {len(vocabulary)} words of the "
            f"{side} side; it must write words, or pieces, as the vocabulary does, or "
            "leave {0} out.",
            f"training.{side}_vectors",
        )
    if isinstance(vocabulary, Subwords) and _within_words(vocabulary, [*vectors]):
        raise OptionError(
            f"'{path}' has vectors for {counted(len(vectors), 'piece')} within words "
            f"and for none that begins one, which has {SPACE} before it here; write "
            "that before its words, or give {0} words.",
            "data.vocabulary",
        )
    made, rows = np.array(table), np.stack([*vectors.values()])
    size = np.sqrt(np.mean(np.square(rows, dtype=np.float64)))
    made[[*vectors]] = rows * (np.sqrt(np.mean(np.square(made))) / max(size, 1e-30))
    return jnp.asarray(made), len(vectors)


def _within_words(vocabulary: Subwords, ids: Sequence[int]) -> bool:
    """Whether these pieces begin no word, though many pieces do.

    In text without spaces between words only those that begin a line do.
    """
    pieces = vocabulary.pieces(range(len(vocabulary)))
    begin = [piece.startswith(SPACE) for piece in pieces]
    return sum(begin) > BEGINNING * len(begin) and not any(begin[n] for n in ids)


def _read(
    path: Path, numbers: Mapping[bytes, int], width: int
) -> dict[int, NDArray[np.float32]]:
    """The vectors of known words, by the numbers of these."""
    vectors: dict[int, NDArray[np.float32]] = {}
    with opened(path) as file:
        for line, text in enumerate(file, 1):
            word, *rest = text.split(None, 1)[:2] or [b""]
            if line == 1 and _is_header(text, width):
                continue
            number = numbers.get(word)
            if number is None or number in vectors:
                continue
            entries = b"".join(rest).split()
            if len(entries) <= width:  # otherwise it has blanks, which ours have not
                vectors[number] = _entries(entries, f"'{path}', line {line}", width)
    return vectors


def _is_header(text: bytes, width: int) -> bool:
    fields = text.split()
    return len(fields) == 2 and width > 1 and all(field.isdigit() for field in fields)


def _check_width(text: bytes, place: str, width: int, side: str) -> None:
    fields = text.split()[1:]
    count = len([*takewhile(_is_number, reversed(fields))])
    if count != width:
        raise OptionError(
            f"{place} is a word and {counted(count, 'number')}, and embedded words "
            f"have {width}; change {{0}}, or give another file to {{1}}.",
            *("model.embedding", f"training.{side}_vectors"),
        )


def _is_number(field: bytes) -> bool:
    try:
        return abs(float(field)) <= GREATEST
    except ValueError:
        return False


def _entries(fields: Sequence[bytes], place: str, width: int) -> NDArray[np.float32]:
    good = sum(map(_is_number, fields))
    if good != width:
        raise UserError(
            f"{place} has {good} finite numbers behind its word, not {width}; mend or "
            "remove the line."
        )
    return np.array([float(field) for field in fields], np.float32)
