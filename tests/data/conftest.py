# SPDX-License-Identifier: Apache-2.0
"""Made-up texts, and configs that name them."""

import dataclasses
import re
from pathlib import Path

import pytest

from kvnmt.data import prepare, synthetic
from kvnmt.data.config import DataConfig
from kvnmt.data.subwords import build_subwords
from kvnmt.data.text import Parallel
from tests.helpers import toy_data


@pytest.fixture(scope="module")
def text() -> list[str]:
    """The same sentences in one list, a source before its target."""
    pairs = synthetic.make_corpus(3, train=120, valid=1, test=1).train
    return [" ".join(side) for pair in pairs for side in (pair.source, pair.target)]


@pytest.fixture(scope="module")
def subwords(text):
    """Eighty pieces of it."""
    return build_subwords(text, 80)


@pytest.fixture(scope="module")
def parallel() -> Parallel:
    """Sentences of the made-up languages, side by side."""
    pairs = synthetic.make_corpus(3, train=120, valid=1, test=1).train
    sides = [(pair.source, pair.target) for pair in pairs]
    return Parallel(*([" ".join(words) for words in side] for side in zip(*sides)))


@pytest.fixture(name="config")
def _config(tmp_path):
    return toy_data(tmp_path / "text", cache=tmp_path / "cache")


@pytest.fixture(name="prepared")
def _prepared(monkeypatch) -> list[None]:
    """One entry for every time that text is really prepared."""
    told, original = [], prepare.encode_text

    def encode_text(*arguments):
        told.append(None)
        return original(*arguments)

    monkeypatch.setattr(prepare, "encode_text", encode_text)
    return told


@pytest.fixture(name="words")
def _words(tmp_path) -> DataConfig:
    """The toy language in words of three letters, with the merges of each side."""
    config = toy_data(tmp_path / "text", train=40)
    for name in ("source", "target", "valid_source", "valid_target"):
        path: Path = getattr(config, name)
        path.write_text(re.sub(r"(\w)", r"\1\1\1", path.read_text()))
    (tmp_path / "ours").write_text("#version: 0.2\na a\nb b</w>\nc c\n")
    (tmp_path / "theirs").write_text("#version: 0.2\nA A\nAA A</w>\nB B\n")
    changes = {"codes": tmp_path / "ours", "target_codes": tmp_path / "theirs"}
    return dataclasses.replace(config, vocabulary="codes", **changes)
