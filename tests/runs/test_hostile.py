# SPDX-License-Identifier: Apache-2.0
"""Run directories of strangers are data: nothing in them is run or believed."""

import json
import os
import pickle
import shutil
from collections.abc import Iterator
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
from kvnmt.inference.translate import translate_lines
from kvnmt.runs import bounds
from kvnmt.runs.average import average
from kvnmt.runs.directory import load_ensemble, load_run
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.checkpoints.writer import Checkpoints
from tests.runs.hostile import refused, sparse


class Harmful:
    """What makes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


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


def test_a_pickle_in_the_place_of_anything_is_not_loaded(stranger, tmp_path):
    """Nor an array of objects, which holds one."""
    made = tmp_path / "made"
    harm = pickle.dumps(Harmful(made))
    pickle.loads(harm)
    assert made.exists()  # it would
    made.unlink()
    np.save(tmp_path / "array.npy", np.array([Harmful(made)], object))
    kinds = cycle([harm, (tmp_path / "array.npy").read_bytes()])
    places = [path for path in stranger.rglob("*") if path.is_file()]
    assert len(places) > 8
    for place in places:
        content = place.read_bytes()
        place.write_bytes(next(kinds))
        if place.name != files.MANIFEST:
            sealed(stranger)
        try:
            load_run(stranger)
        except UserError as error:
            assert "\n" not in str(error)
        assert not made.exists(), place
        place.write_bytes(content)
    sealed(stranger)
    assert len(translate_lines(load_run(stranger), ["a b"])) == 1


def test_a_checkpoint_that_a_training_removes_is_no_fault(stranger, monkeypatch):
    """It is there when the folder is listed, and gone when its files are counted."""
    other = stranger / "checkpoints" / "7"
    shutil.copytree(stranger / "checkpoints" / "0", other)
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
def test_a_config_that_asks_for_too_much_is_refused(stranger, path, value, part):
    configured(stranger, path, value)
    refused(stranger, part)


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "1", "\x00", "{" * 9, "[" * 100_000, "9" * 5000),
        *('{"model": null}', '{"model": 1}'),
    ],
)
def test_a_config_that_is_none_is_refused(stranger, text):
    (stranger / "config.json").write_text(text)
    refused(stranger, "config.json")
    (stranger / "config.json").write_bytes(b"\xff\xfe")
    refused(stranger, "config.json")


@pytest.mark.parametrize(
    "names, power, part",
    [
        (("shape", "chunks"), 20, "has the shape (1048576, 1048576)"),
        (("chunks",), 20, "is not one of this model"),
        (("chunks",), 16, "is not one of this model"),
    ],
)
def test_arrays_without_measure_are_told_before_they_are_read(
    stranger, names, power, part
):
    """The files of a checkpoint may say any shape, and need not hold it."""
    place = f"file://{stranger}/checkpoints/0/params/"
    store = ts.KvStore.open({"driver": "ocdbt", "base": place}).result()
    key = next(key for key in store.list().result() if key.endswith(b".zarray"))
    plain = json.loads(store.read(key).result().value)
    plain |= dict.fromkeys(names, [2**power, 2**power])
    store.write(key, json.dumps(plain).encode()).result()
    sealed(stranger)
    refused(stranger, part)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(stranger, tmp_path, value):
    """In an ensemble and in the mean of several runs, too."""
    (stranger / "versions.json").write_text("{}")
    good, bad = load_run(stranger), tmp_path / "bad"
    shutil.copytree(stranger, bad)
    shutil.rmtree(bad / "checkpoints")
    words = {"vocabularies": digests(good.vocabularies)}
    table = good.params.target_embedding.at[-1, -1].set(value)
    params = good.params.replace(target_embedding=table)
    with Checkpoints(bad / "checkpoints") as checkpoints:
        checkpoints.save_params(params, words)
    said = "checkpoints/0' has parameters that are not finite"
    refused(bad, str(bad), said)
    refused(bad, said, read=lambda bad: average([stranger, bad], tmp_path / "mean"))
    with pytest.raises(UserError, match="bad/" + said):
        load_ensemble([stranger, bad])


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
def test_a_manifest_that_lies_is_refused(stranger, changes, capsys):
    sealed(stranger, **changes)
    refused(stranger, "no checkpoint left that is whole")
    assert "is no manifest" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("text", [b"[]", b"[" * 100_000, b"{"])
def test_a_sealed_manifest_of_something_else_is_refused(stranger, text):
    path = stranger / "checkpoints/0" / files.MANIFEST
    path.write_bytes(files.digest(text).encode() + b"\n" + text)
    refused(stranger, "no checkpoint left that is whole")


def test_the_mean_of_strangers_runs_is_as_careful(stranger, tmp_path):
    """What leads out is not copied, and no sum of a size that is only said is made."""

    def mean(folder: Path) -> object:
        return average([folder], tmp_path / "mean")

    configured(stranger, "model.state", 10**9)
    refused(stranger, "model.state is 1000000000", read=mean)
    configured(stranger, "model.state", 2**16)
    refused(stranger, "do not belong together", read=mean)
    (stranger.parent / "secret").write_text("secret\n")
    (stranger / "versions.json").symlink_to(stranger.parent / "secret")
    refused(stranger, "a link that leads out", read=mean)
    assert not (tmp_path / "mean").exists()


def test_paths_in_the_config_are_not_followed(stranger, tmp_path):
    """Translating asks for nothing that the config names."""
    os.mkfifo(tmp_path / "pipe")
    for name in ("source", "target", "valid_source", "vocabularies", "cache"):
        configured(stranger, f"data.{name}", str(tmp_path / "pipe"))
    configured(stranger, "training.warm_start", "/proc/self/mem")
    assert len(translate_lines(load_run(stranger), ["a b"])) == 1
