# SPDX-License-Identifier: Apache-2.0
"""Links, pipes, vocabularies and files of gigabytes in the run of a stranger."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvnmt import files
from kvnmt.files import DamagedError
from kvnmt.inference.translate import translate_lines
from kvnmt.runs.directory import load_run
from tests.runs.hostile import refused, sparse


@pytest.mark.parametrize(
    "name, part",
    [
        ("config.json", "has more than"),
        ("vocabulary/source.words", "is no vocabulary"),
        ("checkpoints/0/manifest.json", "do not belong together"),
        ("checkpoints/0/params/_METADATA", "do not belong together"),
    ],
)
def test_files_of_gigabytes_are_not_read(stranger, name, part):
    sparse(stranger / name)
    refused(stranger, part)


def test_a_manifest_of_many_megabytes_is_not_read(stranger):
    sparse(stranger / "checkpoints/0/manifest.json", 2 * files.SMALL)
    refused(stranger, "no checkpoint left that is whole")
    with pytest.raises(DamagedError, match="has more than"):
        files.read_manifest(stranger / "checkpoints/0")


VOCABULARIES = [
    ("source.words", b"\xff\n"),
    ("source.words", b"a\n" * 5),
    ("source.characters", b"\xff"),
    ("source.model", b"no model"),
    ("source.model", b""),
]


@pytest.mark.parametrize("name, data", VOCABULARIES)
def test_another_vocabulary_is_refused(stranger, name, data):
    (stranger / "vocabulary/source.words").unlink()
    (stranger / "vocabulary" / name).write_bytes(data)
    refused(stranger, "vocabulary" if data != b"a\n" * 5 else "")


def _link(place: Path, target: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()
    place.symlink_to(target)


LINKS: list[tuple[str, Callable[[Path], Path]]] = [
    ("vocabulary/source.words", lambda run: Path("/etc/passwd")),
    ("vocabulary/source.words", lambda run: Path("../../secret")),
    ("vocabulary", lambda run: run.parent),
    ("config.json", lambda run: run.parent / "secret"),
    ("checkpoints", lambda run: run.parent),
    ("checkpoints/0/params", lambda run: Path("/")),
    ("checkpoints/0/manifest.json", lambda run: run.parent / "secret"),
]


@pytest.mark.parametrize("place, target", LINKS)
def test_links_lead_nowhere_outside(stranger, place, target):
    (stranger.parent / "secret").write_text("secret\n")
    _link(stranger / place, target(stranger))
    refused(stranger, "a link that leads out")


def test_links_within_a_run_and_to_it_are_followed(stranger):
    """A loop of links, which nothing reads, does no harm."""
    words = stranger / "vocabulary/source.words"
    words.rename(stranger / "words")
    words.symlink_to("../words")
    (stranger / "loop").symlink_to("loop")
    (stranger.parent / "other").symlink_to(stranger)
    assert len(translate_lines(load_run(stranger.parent / "other"), ["a b"])) == 1


def test_a_pipe_is_not_waited_for(stranger):
    manifest = "checkpoints/0/manifest.json"
    for name in (manifest, "config.json", "vocabulary/source.words"):
        kept = (stranger / name).read_bytes()
        (stranger / name).unlink()
        os.mkfifo(stranger / name)
        refused(stranger, "")
        (stranger / name).unlink()
        (stranger / name).write_bytes(kept)
