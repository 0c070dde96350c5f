# SPDX-License-Identifier: Apache-2.0
"""Prepared corpora on disk: mapped into memory, found by what they were made from.

An entry is a folder named by a hash of the text and of all settings that decide the
ids, so an entry of other text or settings is never found. It is written beside its
place and moved there once it is whole, and it is whole only as long as its files have
the digests that its manifest says. Ids lie one behind the other in plain NumPy files:
a batch of random pairs is a few page faults, where a record format decodes each.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from kvnmt import files
from kvnmt.console import say
from kvnmt.data.batches import EncodedCorpus, Sentences
from kvnmt.data.config import ONLY_BUILDS, DataConfig, Kind, longest
from kvnmt.data.encoding import Dropped, EncodedBlock
from kvnmt.data.vocabularies import (
    Vocabularies,
    digest,
    load_vocabularies,
    save_vocabularies,
)
from kvnmt.errors import OptionError, UserError, reason_of
from kvnmt.files import DamagedError

FORMAT = 4  # of how text is read, too: raised when the same text gives other ids
# Fields that change no id: the places of files, whose digests are part of the name;
# what is not trained on; who does the work. `longest` stands for `max_length`.
NEVER_MATTERS = {"source", "target", "pairs", "tfds_folder", "cache", "workers"}
NEVER_MATTERS |= {"links", "valid_source", "valid_target", "valid_pairs", "tfds_valid"}
NEVER_MATTERS |= {"vocabularies", "max_length", "codes", "target_codes"}


class Prepared(NamedTuple):
    """Training pairs, ready to be trained on."""

    vocabularies: Vocabularies
    train: EncodedCorpus
    dropped: Dropped
    folder: Path | None = None  # where they are kept, if they are


def key_of(
    config: DataConfig, digests: Sequence[str], trained: Vocabularies | None
) -> str:
    """Names what is made from this text, under these settings.

    Every setting that is not known to decide no id changes the name.

    Args:
        config: Settings.
        digests: Of the files of the training text.
        trained: Vocabularies that are used instead of building them.
    """
    ignored = NEVER_MATTERS.union(ONLY_BUILDS if trained else ())
    names = {field.name for field in fields(config)} - ignored
    decides = {name: getattr(config, name) for name in names}
    decides |= {"format": FORMAT, "files": digests}
    kinds: set[Kind] = trained.kinds if trained else {config.vocabulary}
    decides["longest"] = longest(config, kinds)
    if trained:
        decides["vocabularies"] = [digest(side) for side in trained]
    elif config.codes:
        merges = filter(None, (config.codes, config.target_codes))
        decides["merges"] = [*map(_digest_of, merges)]
    text = json.dumps(decides, sort_keys=True, default=str)
    return files.digest(text.encode())[:24]


def _digest_of(path: Path) -> str | None:
    """The digest of a file; None if it is gone: a run has kept what it read of it."""
    try:
        return files.digest_of(path)
    except OSError:  # told where it is read
        return None


@contextmanager
def locked(folder: Path, key: str, shared: bool = False) -> Iterator[Path]:
    """Keeps other processes from making the same entry; gives its folder.

    An entry that is there can be read where nothing can be written, not even a lock.

    Args:
        folder: Of all entries.
        key: Of this one.
        shared: With others that only read it.

    Raises:
        UserError: The folder cannot be written.
    """
    with ExitStack() as stack:
        with _explaining(folder):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock = partial(files.locked, folder / f"{key}.lock", shared=shared)
                try:
                    locks = stack.enter_context(lock(wait=False))
                except BlockingIOError:
                    say("another process prepares the same text; waiting for it")
                    locks = stack.enter_context(lock())
            except OSError:
                if not (folder / key).exists():
                    raise
                locks = None  # an entry that is there needs none
        if locks is False:
            say(
                f"the file system of '{folder}' cannot lock: do not prepare the same "
                "text twice at once."
            )
        for old in folder.glob(f"{key}*.part") if locks and not shared else ():
            shutil.rmtree(old, ignore_errors=True)  # of a process that was killed
        yield folder / key


@contextmanager
def _explaining(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OptionError(
            f"'{folder}' cannot keep what is prepared: {reason_of(error)}; free space "
            "or choose another {0}.",
            "data.cache",
        ) from None


def read(folder: Path, key: str, console: Console) -> Prepared | None:
    """Opens an entry that is there, at the same time as others who do.

    One that is damaged is told and removed.

    Raises:
        UserError: It cannot be read.
    """
    if not (folder / key).exists():
        return None
    with locked(folder, key, shared=True) as entry:
        if prepared := find(entry, console, remove=False):
            return prepared
    with locked(folder, key) as entry:
        return find(entry, console)


def find(entry: Path, console: Console, remove: bool = True) -> Prepared | None:
    """Opens an entry; one that is damaged is told and removed.

    Args:
        entry: Its folder.
        console: Where people read.
        remove: Whether to do so; otherwise a damaged one is left without a message.

    Raises:
        UserError: It cannot be read.
    """
    if not entry.exists():
        return None
    try:
        manifest = files.read_manifest(entry)
        files.check_files(entry, manifest["files"])
    except DamagedError as damage:
        if not remove:
            return None
        say(f"preparing anew, since '{entry}' is damaged: {damage}", console)
        with _explaining(entry.parent):
            shutil.rmtree(entry)
        return None
    except OSError as error:  # perhaps it can be read another time: it stays
        raise UserError(f"'{entry}' cannot be read: {reason_of(error)}.") from None
    words = load_vocabularies(entry)
    if words.source == words.target:
        words = Vocabularies(words.source, words.source)
    dropped = Dropped(**manifest["dropped"])
    return Prepared(words, open_corpus(entry), dropped, entry)


def open_corpus(entry: Path) -> EncodedCorpus:
    """Maps the ids of an entry."""
    parts: dict[str, Sentences] = {}
    for name, kind in files.read_manifest(entry)["types"].items():
        lengths = np.load(entry / f"{name}.lengths.npy", mmap_mode="r")
        path = entry / f"{name}.ids"  # nothing cannot be mapped: no word has a link
        size = path.stat().st_size
        ids = np.memmap(path, kind, "r") if size else np.zeros(0, np.uint16)
        parts[name] = Sentences(ids, lengths)
    return EncodedCorpus(**parts, reopen=(open_corpus, (entry,)))


def write(entry: Path, words: Vocabularies, blocks: Iterable[EncodedBlock]) -> None:
    """Makes an entry of encoded blocks; whatever happens, it is whole or not there.

    Raises:
        UserError: It cannot be written, for example because the disk is full.
    """
    # Its own: a file system that cannot lock lets several write at once.
    part = entry.with_suffix(f".{uuid.uuid4().hex}.part")
    try:
        with _explaining(entry.parent):
            part.mkdir()
            _fill(part, words, blocks)
            try:
                part.replace(entry)
            except OSError:
                if not (entry / files.MANIFEST).exists():
                    raise  # else another process was faster, with the same
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _fill(part: Path, words: Vocabularies, blocks: Iterable[EncodedBlock]) -> None:
    types: dict[str, str] = {}
    lengths: dict[str, list[NDArray[np.integer]]] = {}
    dropped = Dropped()
    with ExitStack() as stack:
        ids = {}
        for block in blocks:
            dropped += block.dropped
            for name, side in block.parts.items():
                if name not in ids:
                    path = part / f"{name}.ids"
                    ids[name] = stack.enter_context(path.open("wb"))
                    types[name] = side.ids.dtype.name
                ids[name].write(side.ids.tobytes())
                lengths.setdefault(name, []).append(side.lengths)
    for name, of_blocks in lengths.items():
        np.save(part / f"{name}.lengths.npy", np.concatenate(of_blocks))
    save_vocabularies(words, part)
    for path in part.iterdir():  # on the disk before the manifest tells of them
        with path.open("rb") as file:
            os.fsync(file.fileno())
    manifest = {
        "dropped": asdict(dropped),
        "types": types,
        "files": {path.name: files.digest_of(path) for path in sorted(part.iterdir())},
    }
    files.write_manifest(part, manifest)
