# SPDX-License-Identifier: Apache-2.0
"""The experiment on hand-aligned text: its text, its runs, and its table."""

import json
import shutil
from pathlib import Path

import pytest

from experiments import alignment
from experiments.alignment import Alignment
from experiments.parts.hand_aligned import (
    align_with_eflomal,
    tokenize_english,
    tokenize_french,
    write_gold,
    write_text,
)
from kvnmt.data.text import read_lines
from kvnmt.errors import UserError
from kvnmt.metrics.links import parse_pharaoh, read_gold
from tests.experiments.fake import RESULT, draw, never
from tests.helpers import tiny, toy_data, toy_lines, write_untrained

PAIRS = {"fr": ["L'an dernier.", "Non !", "a b"], "en": ["Last year.", "No!", "A B"]}
GOLD = {"en": ["a b", "c"], "fr": ["A B", "C"], "align": ["0-0 1?1 0-1", "0-0"]}


@pytest.fixture
def data(tmp_path) -> Path:
    """Very little text, as the experiment wants it."""
    folder = tmp_path / "data"
    text, gold = folder / "tatoeba-fren", folder / "align" / "hansards-enfr"
    files = {gold / f"dev.{side}": lines for side, lines in GOLD.items()}
    for part in ("train", "valid"):
        files |= {text / f"{part}.{side}": lines for side, lines in PAIRS.items()}
    for path, lines in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_words_are_those_of_the_hand_aligned_text():
    french = "L'homme qu’il n'est pas aujourd’hui, as-tu dit ?"
    assert tokenize_french(french) == (
        "le homme que il ne est pas aujourd' hui , as - tu dit ?"
    )
    assert tokenize_english("I can't see Tom's dog.") == "i ca n't see tom 's dog ."


def test_text_and_links_are_written(data, tmp_path):
    folder = tmp_path / "text"
    write_text(folder, data, "fr-en", seed=1)
    write_gold(folder, data, "fr-en")
    assert read_lines(folder / "valid.fr") == ["le an dernier .", "non !", "a b"]
    train = {side: " ".join(read_lines(folder / f"train.{side}")) for side in PAIRS}
    assert train == {
        "fr": "le an dernier . non ! a b",
        "en": "last year . no ! a b",
    }
    assert read_lines(folder / "gold.fr") == ["a b", "c"]
    links = [parse_pharaoh("0-0 1?1 1-0"), parse_pharaoh("0-0")]  # from the French
    assert read_gold(folder / "gold.align") == links


def test_without_eflomal_it_has_no_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert align_with_eflomal(tmp_path, "fr-en") == {}
    monkeypatch.setattr(alignment, "installed_aligners", list)
    options = Alignment(data=tmp_path, workdir=tmp_path, aligners=True)
    with pytest.raises(UserError, match="no word aligner is installed; put"):
        alignment.main(options, never)
    assert not (tmp_path / "fr-en-aligners").exists()


def test_word_aligners_are_measured_without_any_training(
    data, tmp_path, monkeypatch, capsys
):
    links = [parse_pharaoh("0-0 1-1"), parse_pharaoh("0-0")]
    monkeypatch.setattr(alignment, "installed_aligners", lambda: ["Thot"])
    monkeypatch.setattr(alignment, "align_with_eflomal", lambda *_: {})
    monkeypatch.setattr(alignment, "align_with_thot", lambda *_: {"Thot, HMM": links})
    options = Alignment(data=data, workdir=tmp_path, pairs=("fr-en",), aligners=True)
    alignment.main(options, never)
    result = json.loads((tmp_path / "fr-en-aligners" / "result.json").read_text())
    line, diagonal = result["rows"]
    assert (diagonal["what"], diagonal["data"]) == ("the diagonal", "fr-en")
    assert (line["system"], line["data"], line["links"]) == ("Thot, HMM", "fr-en", 3)
    # Two of the three are sure, all are possible, and one sure link is missing.
    assert line["aer"] == pytest.approx(1 - (2 + 3) / (3 + 3))
    assert "Thot, HMM" in capsys.readouterr().out


def test_every_run_and_the_other_direction_are_in_the_table(
    data, tmp_path, monkeypatch, capsys
):
    """From text to table; the runs are copies of one that reads the toy language."""
    monkeypatch.setenv("PATH", str(tmp_path))  # no eflomal
    lines = "".join(f"{line}\n" for line in toy_lines(3, 2))
    for side in ("fr", "en"):
        (data / "align" / "hansards-enfr" / f"dev.{side}").write_text(lines)
    (data / "align" / "hansards-enfr" / "dev.align").write_text("0-0\n" * 2)
    run = tmp_path / "run"
    write_untrained(tiny(toy_data(tmp_path / "toy")), run, draw)
    trained = []

    def train(experiment, folder, *, resume, console):
        trained.append((folder.name, experiment.training.warm_start))
        shutil.copytree(run, folder)
        return RESULT

    runs = tmp_path / "runs"
    systems = ("rnnsearch-star",)
    options = Alignment(data=data, workdir=runs, pairs=("fr-en",), systems=systems)
    alignment.main(options, train)
    base = runs / "fr-en-rnnsearch-star-scratch-1"
    assert trained == [
        ("fr-en-rnnsearch-star-scratch-1", None),
        ("fr-en-rnnsearch-star-warm-1", base),
        ("en-fr-rnnsearch-star-scratch-1", None),
    ]
    table = capsys.readouterr().out
    for name in (
        "the other direction",
        "rnnsearch-star, scratch",
        "rnnsearch-star, scratch, grow-diag-final-and",
        "rnnsearch-star, warm",
        "rnnsearch-star, warm, grow-diag-final-and",
    ):
        assert any(line.strip().startswith(f"{name}  ") for line in table.splitlines())
    assert ", union" not in table and "the diagonal  " not in table
    alignment.main(options, never)
    assert capsys.readouterr().out == table[table.index("alignment error") :]


def test_a_pair_that_is_not_known_is_one_sentence(tmp_path):
    options = Alignment(data=tmp_path, workdir=tmp_path / "w", pairs=("xx-yy",))
    with pytest.raises(UserError, match="'xx-yy'. Known: fr-en, ja-en"):
        alignment.main(options, never)
    assert not (tmp_path / "w").exists()
