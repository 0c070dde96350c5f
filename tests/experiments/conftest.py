# SPDX-License-Identifier: Apache-2.0
"""What the tests of experiments share."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import pytest

from experiments import multi30k, multi30k_best
from experiments.harness.rows import Row, Train
from experiments.harness.table import launch
from experiments.multi30k import Multi30k
from experiments.multi30k_best import RECIPE, Multi30kBest
from experiments.parts import distilled
from experiments.parts.ingredients import WITHOUT
from experiments.report import PAGES
from tests.experiments.fake import RESULT, draw, leave, never, write_captions
from tests.helpers import tiny, toy_data, write_untrained


@pytest.fixture(autouse=True)
def rows_share_programs(monkeypatch) -> None:
    """Rows of tests are few and alike: each would compile what others have."""
    monkeypatch.setattr(jax, "clear_caches", lambda: None)


@pytest.fixture
def options(tmp_path) -> Multi30kBest:
    return Multi30kBest(
        data=tmp_path,
        workdir=tmp_path / "runs",
        source="de",
        target="en",
        systems=("rnnsearch-star",),
    )


@pytest.fixture(name="unmeasured")
def _unmeasured(monkeypatch) -> None:
    """Rows of words that are not measured."""
    monkeypatch.setattr(multi30k_best, "RECIPE", WITHOUT["joint pieces"](RECIPE))
    monkeypatch.setattr(multi30k_best, "figures_of", lambda *given: {"without": ""})


@pytest.fixture(name="quick")
def _quick(unmeasured, monkeypatch) -> None:
    """Rows that translate nothing, either."""
    blank = lambda run, lines, *others, **more: [" "] * len(lines)  # noqa: E731
    monkeypatch.setattr(distilled, "translate_lines", blank)


@pytest.fixture(scope="module", name="text")
def _text() -> str:
    """That of all pages."""
    return "\n".join(page.read_text() for page in sorted(PAGES.glob("*.md")))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run that knows nothing."""
    folder = tmp_path_factory.mktemp("run")
    write_untrained(tiny(toy_data(folder / "text")), folder, draw)
    return folder


@pytest.fixture
def train(run) -> Train:
    """Leaves a copy of the run, whatever is to be trained."""

    def copy(experiment, folder, *, resume, console):
        leave(run, experiment, folder)
        return RESULT

    return copy


@pytest.fixture
def rows(tmp_path) -> list[Row]:
    experiment = tiny(toy_data(tmp_path / "text"), seed=7)
    warm = replace(
        experiment,
        training=replace(experiment.training, warm_start=tmp_path / "first"),
    )
    wanted = ("first", experiment, 20.0), ("second", warm, 30.0)
    return [
        Row(
            folder=tmp_path / name,
            system="rnnsearch-star",
            experiment=config,
            measure=lambda trained, bleu=bleu: {"bleu": bleu},
        )
        for name, config, bleu in wanted
    ]


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Starts the experiment as a program; gives what it prints."""
    write_captions(tmp_path)
    monkeypatch.setattr("experiments.harness.table.keep_programs", lambda _: None)

    def run(*words: str) -> tuple[str, str]:
        start = ["multi30k", "--data", str(tmp_path), "--workdir", str(tmp_path / "w")]
        monkeypatch.setattr(sys, "argv", [*start, "--systems", "rnnencdec", *words])
        launch(Multi30k, partial(multi30k.main, train=never), "About.")
        return capsys.readouterr()

    return run
