# SPDX-License-Identifier: Apache-2.0
"""The vocabularies of source and target together: saved, loaded and told apart.

One vocabulary by itself is in `kvnmt.data.vocabulary`.
"""

import hashlib
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from kvnmt.data.codes import Codes, read_codes
from kvnmt.data.config import Kind
from kvnmt.data.subwords import with_our_ids
from kvnmt.data.vocabulary import EOS, SPACE, SPECIAL, UNK, Characters, Subwords, Words
from kvnmt.errors import OptionError, UserError
from kvnmt.files import DamagedError, read_small

LARGEST = 2**26  # bytes of a file
MERGED = 2000  # pieces that are looked at, at most
COUNTED = re.compile(r"\S+[\t ]-?\d+(\.\d+)?")  # a word with its count or log P
LISTED = 10  # lines, of which all may be such words only by mistake
Vocabulary: TypeAlias = Words | Characters | Subwords | Codes


class Vocabularies(NamedTuple):
    """One for each side; alike where they are joint and none is trimmed."""

    source: Vocabulary
    target: Vocabulary

    @property
    def kinds(self) -> set[Kind]:
        """What a token is on each side; of vocabularies that are taken any two."""
        return {self.source.kind, self.target.kind}


def save_vocabularies(vocabularies: Vocabularies, folder: Path) -> None:
    """Writes both sides into a folder."""
    save(vocabularies.source, folder, "source")
    save(vocabularies.target, folder, "target")


def load_vocabularies(folder: Path) -> Vocabularies:
    """Reads what `save_vocabularies` wrote.

    Args:
        folder: The same folder, or a run directory that has it as ``vocabulary``, or
            a checkpoint of such a run.

    Raises:
        UserError: There are none.
    """
    parent = folder.absolute().parent
    run = parent.parent if parent.name == "checkpoints" else folder
    for place in (run, folder):
        if (place / "vocabulary").is_dir():
            folder = place / "vocabulary"
    return Vocabularies(
        source=load(folder, "source"),
        target=load(folder, "target"),
    )


def check_merges(vocabularies: Vocabularies) -> None:
    """Refuses subwords whose merges cannot be left out by chance.

    Those of a unigram model are no merges, and pieces that a user defined are made by
    none.

    Raises:
        OptionError: With no merge left out other pieces come out.
    """
    for side, words in vocabularies._asdict().items():
        if not isinstance(words, Subwords):
            continue
        pieces = words.pieces(range(UNK + 1, min(len(words), MERGED)))
        lines = [piece.replace(SPACE, " ").strip() for piece in pieces]
        others = any(words.sample(line, 0.0, 0) != words.encode(line) for line in lines)
        if others or words.has_bytes:
            raise OptionError(
                f"the {side} vocabulary is no plain byte-pair encoding, whose merges "
                "{0} could leave out; leave that away.",
                "subword_dropout",
                prefix="data.",
            )


def digest(vocabulary: Vocabulary) -> str:
    """A short hash of the contents, to tell vocabularies apart."""
    return hashlib.sha256(vocabulary.data).hexdigest()[:16]


def digests(vocabularies: Vocabularies) -> dict[str, str]:
    """A short hash of each side, by its name, to tell vocabularies apart."""
    return {
        "source": digest(vocabularies.source),
        "target": digest(vocabularies.target),
    }


def check_digests(
    trained: dict[str, str] | None, vocabularies: Vocabularies, folder: Path
) -> None:
    """Refuses vocabularies with which a checkpoint was not trained.

    Args:
        trained: What `digests` gave in training; None: it was not written down.
        vocabularies: Those that are there now.
        folder: Run directory.

    Raises:
        UserError: They differ; both digests are named.
    """
    for side, present in digests(vocabularies).items():
        if trained and trained.get(side) != present:
            raise UserError(
                f"the {side} vocabulary in '{folder}' ({present}) is not the one that "
                f"its checkpoint was trained with ({trained.get(side)}); put that back."
            )


def save(vocabulary: Vocabulary, folder: Path, side: str) -> None:
    """Writes ``folder/side.words``, or another suffix; removes files of other kinds."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in _readers():  # of a start that came to nothing
        (folder / f"{side}{kind.suffix}").unlink(missing_ok=True)
    (folder / f"{side}{vocabulary.suffix}").write_bytes(vocabulary.data)


def load(folder: Path, side: str) -> Vocabulary:
    """Reads what `save` wrote.

    Raises:
        UserError: There is no such file or more than one, or it holds no vocabulary.
    """
    kinds = _readers()
    paths = {kind: folder / f"{side}{kind.suffix}" for kind in kinds}
    names = [path.name for path in paths.values() if path.is_file()]
    if len(names) > 1:
        raise UserError(
            f"'{folder}' holds {' and '.join(names)}; remove all but the one to take."
        )
    for kind, read in kinds.items():
        path = paths[kind]
        if path.is_file():
            try:
                data = read_small(path, LARGEST)
                vocabulary = read(data.removeprefix(BOM_UTF8))  # of an editor
                len(vocabulary)  # a model of subwords is read only now
                return vocabulary
            except (DamagedError, OSError, RuntimeError, ValueError) as error:
                reason = " ".join(str(error).split())[:200]
                raise UserError(f"'{path}' is no vocabulary: {reason}.") from None
    names = [path.name for path in paths.values()]
    raise UserError(
        f"'{folder}' holds no vocabulary of the {side} side "
        f"({', '.join(names[:-1])} or {names[-1]}); name a run that has it."
    )


def _readers() -> dict[type[Vocabulary], Callable[[bytes], Vocabulary]]:
    """What reads the file of each kind."""
    return {
        Words: _read_words,
        Characters: _read_characters,
        Subwords: _read_subwords,
        Codes: _read_pieces,
    }


def _read_pieces(data: bytes) -> Codes:
    """Reads merges with their pieces."""
    codes = read_codes(data)
    if not codes.words:
        raise ValueError(
            "it has merges and no pieces; write a line '#vocabulary' behind them and "
            "then a piece per line, or train with --data.vocabulary codes"
        )
    return codes


def _read_subwords(data: bytes) -> Subwords:
    """Reads a model, perhaps one of another program, with ids of its own."""
    words = Subwords(data)
    ids = words._processor.eos_id(), words._processor.unk_id()
    if ids == (EOS, UNK):
        return words
    return Subwords(with_our_ids(data))


def _read_characters(data: bytes) -> Characters:
    """Reads code points; an editor may have put a line feed behind them."""
    characters = data.decode().removesuffix("\n")
    if "\n" in characters:
        raise ValueError("it has several lines")
    for character, count in Counter(characters).most_common(1):
        if count > 1:
            raise ValueError(f"{character!r} stands in it {count} times")
    return Characters(characters)


def _read_words(data: bytes) -> Words:
    """Reads a word from each line; a person may have edited them."""
    lines = data.decode().removesuffix("\n").split("\n") if data else []
    if lines and all(line.endswith("\r") for line in lines[:-1] or lines):
        raise ValueError("its lines end in carriage returns; save it with line feeds")
    if len(lines) >= LISTED and all(map(COUNTED.fullmatch, lines)):
        raise ValueError(
            "its lines are words with numbers; keep the words (sed "
            "'s/[[:space:]].*//') without <unk>, <s>, </s> and <pad>, or, of pieces "
            f"that begin with {SPACE}, give their model as source.model"
        )
    places: dict[str, int] = {}
    for number, word in enumerate(lines, 1):
        if not word or " " in word:
            raise ValueError(f"line {number} is not one word")
        if word in SPECIAL:
            raise ValueError(
                f"line {number} is {word}, which every vocabulary has; remove it"
            )
        if (before := places.setdefault(word, number)) != number:
            raise ValueError(f"lines {before} and {number} are the same word")
    return Words(tuple(lines))
