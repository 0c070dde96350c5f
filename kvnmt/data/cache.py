# SPDX-License-Identifier: Apache-2.0
"""Prepared corpora on disk: mapped into memory, found by what they were made from.

An entry is a folder named by a hash of the text and of all settings that decide the
ids, so an entry of other text or settings is never found. It is written beside its
place and moved there once it is whole, and it is whole only as long as its files have
the digests that its manifest says. Ids lie one behind the other in plain NumPy files:
a batch of random pairs is a few page faults, where a record format decodes each.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from kvnmt.data.batches import EncodedCorpus as Encoded
from kvnmt.data.batches import Sentences
from kvnmt.data.config import DataConfig
from kvnmt.data.prepare import Dropped, EncodedBlock, id_type
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.data.vocabulary import digest
from kvnmt.data.vocabulary import load as load_vocabulary
from kvnmt.data.vocabulary import save as save_vocabulary
from kvnmt.errors import UserError

FORMAT = 1
SIDES = Vocabularies._fields
# What decides vocabularies, and what decides ids beside them and the text.
BUILDS = ("vocabulary", "min_count", "vocabulary_size", "subwords", "joint")
BUILDS += ("subword_sentences",)
ENCODES = ("longest", "max_ratio", "faulty")
# What decides which pairs of the files are read.
READS = ("tfds", "tfds_train", "languages")


class Entry(NamedTuple):
    """A prepared corpus."""

    corpus: Encoded
    vocabularies: Vocabularies
    dropped: Dropped


def key_of(
    config: DataConfig, files: Sequence[str], trained: Vocabularies | None
) -> str:
    """Names what is made from this text, under these settings.

    Args:
        config: Settings.
        files: Digests of the files of the training text.
        trained: Vocabularies that are used instead of building them.
    """
    fields = {name: getattr(config, name) for name in (*READS, *ENCODES)}
    fields |= {"format": FORMAT, "files": files}
    if trained:
        fields["vocabularies"] = [digest(side) for side in trained]
    else:
        fields |= {name: getattr(config, name) for name in BUILDS}
    return _digest_of_plain(fields)


def digest_of(path: Path) -> str:
    """A hash of the contents of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def locked(folder: Path, key: str) -> Iterator[Path]:
    """Keeps other processes from making the same entry; gives its folder.

    Raises:
        UserError: The folder cannot be written.
    """
    with _telling(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f"{key}.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder / key


@contextlib.contextmanager
def _telling(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"'{folder}' cannot keep what is prepared: {error.strerror}; free space or "
            "choose another --data.cache."
        ) from None


def find(entry: Path, console: Console) -> Entry | None:
    """Opens an entry; one that is damaged is told and removed."""
    if not entry.exists():
        return None
    damage = _damage(entry)
    if damage:
        console.print(
            f"preparing anew, since '{entry}' is damaged: {damage}",
            highlight=False,
            soft_wrap=True,
        )
        shutil.rmtree(entry)
        return None
    dropped = Dropped(**_manifest(entry)["dropped"])
    words = Vocabularies(*(load_vocabulary(entry, side) for side in SIDES))
    if words.source == words.target:
        words = Vocabularies(words.source, words.source)
    return Entry(open_corpus(entry), words, dropped)


def open_corpus(entry: Path) -> Encoded:
    """Maps the ids of an entry."""
    sides = []
    for side in SIDES:
        lengths = np.load(entry / f"{side}.lengths.npy", mmap_mode="r")
        kind = np.dtype(_manifest(entry)["types"][side])
        ids = np.memmap(entry / f"{side}.ids", kind, "r")
        sides.append(Sentences(ids, lengths))
    return Encoded(*sides, reopen=(open_corpus, (entry,)))


def write(entry: Path, words: Vocabularies, blocks: Iterable[EncodedBlock]) -> None:
    """Makes an entry of encoded blocks; whatever happens, it is whole or not there.

    Raises:
        UserError: It cannot be written, for example because the disk is full.
    """
    part = entry.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)  # of a process that was killed
    try:
        with _telling(entry.parent):
            part.mkdir()
            _fill(part, words, blocks)
            part.replace(entry)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _fill(part: Path, words: Vocabularies, blocks: Iterable[EncodedBlock]) -> None:
    lengths: tuple[list, list] = [], []
    dropped = Dropped()
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((part / f"{s}.ids").open("wb")) for s in SIDES]
        for *sides, left_out in blocks:
            dropped += left_out
            for file, own, ids in zip(files, lengths, sides):
                file.write(ids.ids.tobytes())
                own.append(ids.lengths)
    for side, vocabulary, own in zip(SIDES, words, lengths):
        np.save(part / f"{side}.lengths.npy", np.concatenate(own))
        save_vocabulary(vocabulary, part, side)
    manifest = {
        "dropped": asdict(dropped),
        "types": {s: np.dtype(id_type(len(v))).name for s, v in zip(SIDES, words)},
        "files": {path.name: digest_of(path) for path in sorted(part.iterdir())},
    }
    manifest["digest"] = _digest_of_plain(manifest)
    (part / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    for path in part.iterdir():  # on the disk before the name is
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _damage(entry: Path) -> str | None:
    """What is wrong with an entry, if anything."""
    try:
        manifest = _manifest(entry)
        if manifest.pop("digest") != _digest_of_plain(manifest):
            return "its manifest is not what was written"
        for name, told in manifest["files"].items():
            if not (entry / name).is_file():
                return f"{name} is missing"
            if digest_of(entry / name) != told:
                return f"{name} is not what was written"
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return "its manifest cannot be read"
    except OSError as error:  # perhaps it can be read another time: it stays
        raise UserError(f"'{entry}' cannot be read: {error.strerror}.") from None
    return None


def _digest_of_plain(plain: Any) -> str:
    text = json.dumps(plain, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _manifest(entry: Path) -> dict[str, Any]:
    return json.loads((entry / "manifest.json").read_text())
