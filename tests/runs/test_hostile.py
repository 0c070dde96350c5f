# SPDX-License-Identifier: Apache-2.0
"""Run directories of strangers are data: nothing in them is run or believed."""

import json
import os
import pickle
import resource
import shutil
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tensorstore as ts

from kvnmt import files
from kvnmt.data.vocabularies import digests
from kvnmt.errors import UserError
from kvnmt.files import DamagedError
from kvnmt.inference.translate import translate_lines
from kvnmt.runs import bounds
from kvnmt.runs.average import average
from kvnmt.runs.directory import load_ensemble, load_run
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.checkpoints.writer import Checkpoints
from tests.helpers import untrained

GIGABYTE = 2**30


@pytest.fixture
def run(tmp_path, tmp_path_factory) -> Path:
    """A run directory that may be spoilt."""
    folder = untrained(tmp_path_factory.getbasetemp(), "rnnsearch-star")
    return Path(shutil.copytree(folder, tmp_path / "run"))


class Harmful:
    """What makes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def refused(run: Path, *parts: str, read: Callable[[Path], Any] = load_run) -> None:
    """By one sentence, without much memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError) as error:
        read(run)
    message = str(error.value)
    assert all(part in message for part in parts), message
    assert "\n" not in message and len(message) < 1000
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert used < 512 * 1024  # KiB


def sealed(run: Path, **changes: Any) -> None:
    """Writes the manifest again, as a stranger can, with the digests that are right."""
    folder = run / "checkpoints/0"
    plain = files.read_manifest(folder) | {"files": manifests.digests(folder)}
    files.write_manifest(folder, plain | changes)


def configured(run: Path, path: str, value: Any) -> None:
    config = json.loads((run / "config.json").read_text())
    place = config
    *parents, last = path.split(".")
    for name in parents:
        place = place[name]
    place[last] = value
    (run / "config.json").write_text(json.dumps(config))


def test_a_pickle_in_the_place_of_anything_is_not_loaded(run, tmp_path):
    """Nor an array of objects, which holds one."""
    made = tmp_path / "made"
    harm = pickle.dumps(Harmful(made))
    pickle.loads(harm)
    assert made.exists()  # it would
    made.unlink()
    np.save(tmp_path / "array.npy", np.array([Harmful(made)], object))
    kinds = cycle([harm, (tmp_path / "array.npy").read_bytes()])
    places = [path for path in run.rglob("*") if path.is_file()]
    assert len(places) > 8
    for place in places:
        content = place.read_bytes()
        place.write_bytes(next(kinds))
        if place.name != files.MANIFEST:
            sealed(run)
        try:
            load_run(run)
        except UserError as error:
            assert "\n" not in str(error)
        assert not made.exists(), place
        place.write_bytes(content)
    sealed(run)
    assert len(translate_lines(load_run(run), ["a b"])) == 1


def test_a_checkpoint_that_a_training_removes_is_no_fault(run, monkeypatch):
    """It is there when the folder is listed, and gone when its files are counted."""
    other = run / "checkpoints" / "7"
    shutil.copytree(run / "checkpoints" / "0", other)
    below = bounds._below

    def removed(folder: Path) -> Iterator[Path]:
        if folder.name == "7":
            shutil.rmtree(other)
        return below(folder)

    monkeypatch.setattr(bounds, "_below", removed)
    monkeypatch.setattr(bounds, "SLACK", 0)
    bounds.check_sizes(jax.ShapeDtypeStruct((2**14,), "float32"), other.parent)
    assert not other.exists()


def test_a_checkpoint_that_was_not_copied_to_its_end_is_no_misfit(tmp_path):
    """Where another fits; that it is damaged is told where it is read."""
    like = jax.ShapeDtypeStruct((2**26,), "float32")
    for step in "12":
        (tmp_path / step).mkdir()
        (tmp_path / step / "arrays").touch()
    with pytest.raises(UserError, match="' has 0 bytes .*; copy the run again"):
        bounds.check_sizes(like, tmp_path)
    sparse(tmp_path / "2" / "arrays", 2**28)
    bounds.check_sizes(like, tmp_path)
    sparse(tmp_path / "1" / "arrays")
    with pytest.raises(UserError, match="1' has 68,719,476,736 bytes"):
        bounds.check_sizes(like, tmp_path)


CONFIGS = [
    ("model.attention.name", "os.system", "config.json"),
    ("model.attention.name", ["additive"], "config.json"),
    ("model.attention", {"name": "additive", "__class__": "x"}, "config.json"),
    ("model.decoder", None, "config.json"),
    ("model.state", 10**9, "model.state is 1000000000"),
    ("model.state", 10**400, "model.state is too large"),
    ("model.state", 1e999, "config.json"),
    ("model.state", 2**16, "do not belong together"),
    ("model.embedding", 2**16, "do not belong together"),
    ("model.state", 9, "has the shape"),
    ("model.initializer", "__import__('os')", "config.json"),
]


@pytest.mark.parametrize("path, value, part", CONFIGS)
def test_a_config_that_asks_for_too_much_is_refused(run, path, value, part):
    configured(run, path, value)
    refused(run, part)


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "1", "\x00", "{" * 9, "[" * 100_000, "9" * 5000),
        *('{"model": null}', '{"model": 1}'),
    ],
)
def test_a_config_that_is_none_is_refused(run, text):
    (run / "config.json").write_text(text)
    refused(run, "config.json")
    (run / "config.json").write_bytes(b"\xff\xfe")
    refused(run, "config.json")


@pytest.mark.parametrize(
    "names, power, part",
    [
        (("shape", "chunks"), 20, "has the shape (1048576, 1048576)"),
        (("chunks",), 20, "is not one of this model"),
        (("chunks",), 16, "is not one of this model"),
    ],
)
def test_arrays_without_measure_are_told_before_they_are_read(run, names, power, part):
    """The files of a checkpoint may say any shape, and need not hold it."""
    place = f"file://{run}/checkpoints/0/params/"
    store = ts.KvStore.open({"driver": "ocdbt", "base": place}).result()
    key = next(key for key in store.list().result() if key.endswith(b".zarray"))
    plain = json.loads(store.read(key).result().value)
    plain |= dict.fromkeys(names, [2**power, 2**power])
    store.write(key, json.dumps(plain).encode()).result()
    sealed(run)
    refused(run, part)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(run, tmp_path, value):
    """In an ensemble and in the mean of several runs, too."""
    (run / "versions.json").write_text("{}")
    good, bad = load_run(run), tmp_path / "bad"
    shutil.copytree(run, bad)
    shutil.rmtree(bad / "checkpoints")
    words = {"vocabularies": digests(good.vocabularies)}
    table = good.params.target_embedding.at[-1, -1].set(value)
    params = good.params.replace(target_embedding=table)
    with Checkpoints(bad / "checkpoints") as checkpoints:
        checkpoints.save_params(params, words)
    said = "checkpoints/0' has parameters that are not finite"
    refused(bad, str(bad), said)
    refused(bad, said, read=lambda bad: average([run, bad], tmp_path / "mean"))
    with pytest.raises(UserError, match="bad/" + said):
        load_ensemble([run, bad])


MANIFESTS = [
    {"step": 10**30},
    {"step": "0"},
    {"step": 7},
    {"about": []},
    {"about": {"vocabularies": "x"}},
    {"files": ["params"]},
    {"files": {"params": 5}},
    {"files": {"params": "0" * 63}},
    {"files": {"../../config.json": "0" * 64}},
    {"files": {"/etc/passwd": "0" * 64}},
    {"files": {"a\0b": "0" * 64}},
    {"score": "best"},
    {"more": 1},
]


@pytest.mark.parametrize("changes", MANIFESTS, ids=str)
def test_a_manifest_that_lies_is_refused(run, changes, capsys):
    sealed(run, **changes)
    refused(run, "no checkpoint left that is whole")
    assert "is no manifest" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("text", [b"[]", b"[" * 100_000, b"{"])
def test_a_sealed_manifest_of_something_else_is_refused(run, text):
    path = run / "checkpoints/0" / files.MANIFEST
    path.write_bytes(files.digest(text).encode() + b"\n" + text)
    refused(run, "no checkpoint left that is whole")


def sparse(path: Path, size: int = 64 * GIGABYTE) -> None:
    """A file that takes no room, and much memory to read."""
    with path.open("r+b") as file:
        file.truncate(size)


@pytest.mark.parametrize(
    "name, part",
    [
        ("config.json", "has more than"),
        ("vocabulary/source.words", "is no vocabulary"),
        ("checkpoints/0/manifest.json", "do not belong together"),
        ("checkpoints/0/params/_METADATA", "do not belong together"),
    ],
)
def test_files_of_gigabytes_are_not_read(run, name, part):
    sparse(run / name)
    refused(run, part)


def test_a_manifest_of_many_megabytes_is_not_read(run):
    sparse(run / "checkpoints/0/manifest.json", 2 * files.SMALL)
    refused(run, "no checkpoint left that is whole")
    with pytest.raises(DamagedError, match="has more than"):
        files.read_manifest(run / "checkpoints/0")


VOCABULARIES = [
    ("source.words", b"\xff\n"),
    ("source.words", b"a\n" * 5),
    ("source.characters", b"\xff"),
    ("source.model", b"no model"),
    ("source.model", b""),
]


@pytest.mark.parametrize("name, data", VOCABULARIES)
def test_another_vocabulary_is_refused(run, name, data):
    (run / "vocabulary/source.words").unlink()
    (run / "vocabulary" / name).write_bytes(data)
    refused(run, "vocabulary" if data != b"a\n" * 5 else "")


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
def test_links_lead_nowhere_outside(run, place, target):
    (run.parent / "secret").write_text("secret\n")
    _link(run / place, target(run))
    refused(run, "a link that leads out")


def test_the_mean_of_strangers_runs_is_as_careful(run, tmp_path):
    """What leads out is not copied, and no sum of a size that is only said is made."""

    def mean(folder: Path) -> object:
        return average([folder], tmp_path / "mean")

    configured(run, "model.state", 10**9)
    refused(run, "model.state is 1000000000", read=mean)
    configured(run, "model.state", 2**16)
    refused(run, "do not belong together", read=mean)
    (run.parent / "secret").write_text("secret\n")
    (run / "versions.json").symlink_to(run.parent / "secret")
    refused(run, "a link that leads out", read=mean)
    assert not (tmp_path / "mean").exists()


def test_links_within_a_run_and_to_it_are_followed(run):
    """A loop of links, which nothing reads, does no harm."""
    words = run / "vocabulary/source.words"
    words.rename(run / "words")
    words.symlink_to("../words")
    (run / "loop").symlink_to("loop")
    (run.parent / "other").symlink_to(run)
    assert len(translate_lines(load_run(run.parent / "other"), ["a b"])) == 1


def test_a_pipe_is_not_waited_for(run):
    manifest = "checkpoints/0/manifest.json"
    for name in (manifest, "config.json", "vocabulary/source.words"):
        kept = (run / name).read_bytes()
        (run / name).unlink()
        os.mkfifo(run / name)
        refused(run, "")
        (run / name).unlink()
        (run / name).write_bytes(kept)


def test_paths_in_the_config_are_not_followed(run, tmp_path):
    """Translating asks for nothing that the config names."""
    os.mkfifo(tmp_path / "pipe")
    for name in ("source", "target", "valid_source", "vocabularies", "cache"):
        configured(run, f"data.{name}", str(tmp_path / "pipe"))
    configured(run, "training.warm_start", "/proc/self/mem")
    assert len(translate_lines(load_run(run), ["a b"])) == 1
