# SPDX-License-Identifier: Apache-2.0
"""The experiment on hand-aligned text: its text, and its table from runs that exist."""

import shutil
from pathlib import Path

import pytest

from experiments import alignment
from experiments.alignment import Alignment, tokenize_english, tokenize_french
from kvnmt.data.text import read_lines
from kvnmt.metrics.links import parse_pharaoh, read_gold
from tests.helpers import toy_lines, untrained

PAIRS = {"fr": ["L'an dernier.", "Non !", "a b"], "en": ["Last year.", "No!", "A B"]}
GOLD = {"en": ["a b", "c"], "fr": ["A B", "C"], "align": ["0-0 1?1 0-1", "0-0"]}


@pytest.fixture
def options(tmp_path) -> Alignment:
    """Very little text, where the experiment looks for it."""
    data = tmp_path / "data"
    text, gold = data / "tatoeba-fren", data / "align" / "hansards-enfr"
    for folder in (text, gold):
        folder.mkdir(parents=True)
    for side, lines in PAIRS.items():
        for part in ("train", "valid"):
            (text / f"{part}.{side}").write_text("".join(f"{x}\n" for x in lines))
    for side, lines in GOLD.items():
        (gold / f"dev.{side}").write_text("".join(f"{x}\n" for x in lines))
    return Alignment(data, tmp_path / "runs", pairs=("fr-en",), systems=())


def test_words_are_those_of_the_hand_aligned_text():
    french = "L'homme qu’il n'est pas aujourd'hui, as-tu dit ?"
    assert tokenize_french(french) == (
        "le homme que il ne est pas aujourd' hui , as - tu dit ?"
    )
    assert tokenize_english("I can't see Tom's dog.") == "i ca n't see tom 's dog ."


def test_text_and_links_are_written(options):
    alignment._write_text(options, "fr-en")
    alignment._write_gold(options, "fr-en")
    folder = options.folder / "text" / "en-fr"
    assert read_lines(folder / "valid.fr") == ["le an dernier .", "non !", "a b"]
    train = {side: " ".join(read_lines(folder / f"train.{side}")) for side in PAIRS}
    assert train == {
        "fr": "le an dernier . non ! a b",
        "en": "last year . no ! a b",
    }
    assert read_lines(folder / "gold.fr") == ["a b", "c"]
    links = [parse_pharaoh("0-0 1?1 1-0"), parse_pharaoh("0-0")]  # from the French
    assert read_gold(folder / "gold.align") == links


def test_every_run_and_the_other_direction_are_in_the_table(
    options, tmp_path_factory, monkeypatch
):
    """What the runs are made of does not matter here; they have a toy vocabulary."""
    run = untrained(tmp_path_factory.getbasetemp(), "rnnsearch-star")
    folder = options.folder / "text" / "en-fr"
    folder.mkdir(parents=True)
    lines = toy_lines(3, 4)
    for side in ("fr", "en"):
        (folder / f"gold.{side}").write_text("".join(f"{line}\n" for line in lines))
    (folder / "gold.align").write_text("0-0\n" * 4)
    for pair in ("fr-en", "en-fr"):
        place = alignment._run_folder(options, pair, alignment.BASELINE, "scratch")
        shutil.copytree(run, place)
    monkeypatch.setattr(shutil, "which", lambda name: None)  # no eflomal
    (report,) = alignment._measured(options, "fr-en")
    own = "rnnsearch-star, scratch"
    assert [row["system"] for row in report.rows] == [
        *("the other direction", own, f"{own}, grow-diag-final-and"),
    ]
    assert Path(run).exists()
