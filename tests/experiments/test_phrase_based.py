# SPDX-License-Identifier: Apache-2.0
"""The phrase-based row: its weights, its files, its links; by Thot where it is."""

import json
import random
from collections.abc import Sequence

import pytest

from experiments import phrase_based
from experiments.parts import thot_models
from experiments.parts.hand_aligned import align_with_thot
from experiments.parts.thot_models import UNTUNED, WEIGHTS
from experiments.phrase_based import (
    PENALTIES,
    TUNING_LINES,
    PhraseBased,
    weights_with,
)
from kvnmt.data.text import Parallel, read_lines
from kvnmt.errors import UserError
from kvnmt.metrics.bleu import corpus_bleu
from tests.experiments.fake import write_captions

BEST = PENALTIES[2]
needs_thot = pytest.mark.skipif(bool(thot_models.missing()), reason="needs Thot")


class Cutting:
    """Copies its input, and cuts off words unless the word penalty is the best."""

    minutes = 0.5

    def __init__(self, text: Parallel, *others: object):
        self.trained_on = text
        self.asked: list[tuple[list[str], float]] = []

    def __call__(self, lines: Sequence[str], weights: Sequence[float]) -> list[str]:
        self.asked.append((list(lines), weights[0]))
        return [line if weights[0] == BEST else line[:4] for line in lines]


@pytest.fixture
def systems(monkeypatch) -> list[Cutting]:
    """Those that are trained, where Thot would be."""
    trained: list[Cutting] = []

    def learn(text: Parallel, *others: object) -> Cutting:
        trained.append(Cutting(text, *others))
        return trained[-1]

    monkeypatch.setattr(thot_models, "missing", list)
    monkeypatch.setattr(thot_models, "learn", learn)
    return trained


def test_weights_are_untuned_but_for_the_word_penalty():
    assert weights_with(PENALTIES[0]) == UNTUNED
    changed = dict(zip(WEIGHTS, weights_with(7.5)))
    assert changed == dict(zip(WEIGHTS, UNTUNED)) | {"word penalty": 7.5}


def test_the_word_penalty_is_chosen_on_the_first_lines_of_valid_alone(
    tmp_path, systems, monkeypatch
):
    write_captions(tmp_path, others=TUNING_LINES + 3)
    test = [line + " end" for line in read_lines(tmp_path / "test2016.de")]
    (tmp_path / "test2016.de").write_text("".join(f"{line}\n" for line in test))
    options = PhraseBased(data=tmp_path, workdir=tmp_path / "runs")
    phrase_based.main(options)
    (system,) = systems
    assert system.trained_on.source == read_lines(tmp_path / "train.de")
    valid = read_lines(tmp_path / "valid.de")
    tries, uses = system.asked[: len(PENALTIES)], system.asked[len(PENALTIES) :]
    assert tries == [(valid[:TUNING_LINES], penalty) for penalty in PENALTIES]
    assert uses == [(valid, BEST), (test, BEST)]
    monkeypatch.setattr(thot_models, "missing", lambda: ["sil-thot"])
    phrase_based.main(options)  # it is only read
    assert len(systems) == 1


def test_its_translations_are_measured_beside_other_systems(tmp_path, kvnmt, systems):
    write_captions(tmp_path)
    options = PhraseBased(data=tmp_path, workdir=tmp_path / "runs", seeds=(3,))
    phrase_based.main(options)
    folder = tmp_path / "runs" / "de-en-phrase-based-3"
    result = json.loads((folder / "result.json").read_text())
    assert result["seed"] == 3
    assert dict(zip(WEIGHTS, UNTUNED)).keys() == result["weights"].keys()
    hypotheses, reference = folder / "test2016.en", tmp_path / "test2016.en"
    score = corpus_bleu(
        read_lines(hypotheses), read_lines(reference), tokenize="none"
    ).score
    assert result["test2016_bleu"] == score
    assert f"kvnmt evaluate RUN {hypotheses} " in phrase_based.notes(options)[-1]
    out = kvnmt(
        *("evaluate", str(reference), str(hypotheses)),
        *("--reference", str(reference), "--tokenize", "none", "--json"),
    ).out
    reports = json.loads(out.splitlines()[-1])  # the table was printed before
    assert reports["score"][0]["rows"][1]["bleu"] == pytest.approx(score)
    assert reports["significance"]


def test_without_thot_it_says_what_to_install_before_any_work(tmp_path, monkeypatch):
    write_captions(tmp_path)
    monkeypatch.setattr(thot_models, "missing", lambda: ["sil-machine"])
    options = PhraseBased(data=tmp_path, workdir=tmp_path / "runs")
    with pytest.raises(UserError, match="sil-machine missing.*--no-deps"):
        phrase_based.main(options)
    assert not (tmp_path / "runs").exists()
    assert align_with_thot(tmp_path, "fr-en") == {}
    phrase_based.main(PhraseBased(data=tmp_path, workdir=tmp_path, list=True))


def test_flags_of_kvnmt_are_refused(tmp_path, systems):
    write_captions(tmp_path)
    options = PhraseBased(data=tmp_path, config=("--training.epochs", "3"))
    with pytest.raises(UserError, match="--training.epochs is no flag here"):
        phrase_based.main(options)


def test_models_of_other_text_or_another_seed_are_trained_anew(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(thot_models, "_train", lambda *given: trained.append(given))
    monkeypatch.setattr(thot_models, "Translator", lambda folder: folder)
    one, other = Parallel(["a"], ["b"]), Parallel(["a"], ["c"])
    for text, seed in ((one, 1), (one, 1), (other, 1), (other, 2), (other, 2)):
        thot_models.learn(text, tmp_path, seed)
    assert [(text, seed) for text, _, seed in trained] == [
        (one, 1),
        (other, 1),
        (other, 2),
    ]


@needs_thot
def test_thot_learns_to_translate(tmp_path):
    draw = random.Random(1)
    for split, count in (("train", 60), ("valid", 3), ("test2016", 10)):
        lines = [draw.choices("abcdefgh", k=6) for _ in range(count)]
        german = "".join(f"{' '.join(line)}\n" for line in lines)
        (tmp_path / f"{split}.de").write_text(german)
        (tmp_path / f"{split}.en").write_text(german.upper())
    options = PhraseBased(data=tmp_path, workdir=tmp_path / "runs")
    phrase_based.main(options)
    folder = tmp_path / "runs" / "de-en-phrase-based-1"
    result = json.loads((folder / "result.json").read_text())
    assert result["test2016_bleu"] > 90
    assert result["thot"]["sil-thot"]


@needs_thot
def test_thot_links_words_that_always_stand_together(tmp_path):
    lines = {"fr": ["a b", "b a", "a c", "c b"], "en": ["A B", "B A", "A C", "C B"]}
    for side, text in lines.items():
        (tmp_path / f"train.{side}").write_text("".join(f"{t}\n" for t in text * 5))
        (tmp_path / f"gold.{side}").write_text(f"{text[0]}\n{text[3]} {text[1]}\n")
    (tmp_path / "gold.align").write_text("0-0\n0-0\n")
    alignments = align_with_thot(tmp_path, "fr-en")
    assert len(alignments) == 3
    diagonal = [frozenset((i, i) for i in range(n)) for n in (2, 4)]
    for gold in alignments.values():
        assert [links.sure for links in gold] == diagonal
