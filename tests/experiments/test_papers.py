# SPDX-License-Identifier: Apache-2.0
"""The modules of the papers: their rows, settings, text, and what they measure."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest

from experiments import bahdanau, meng, miculicich, mino, wang
from experiments.bahdanau import Bahdanau
from experiments.harness.results import read_result
from experiments.harness.table import launch
from experiments.meng import Meng
from experiments.miculicich import Miculicich
from experiments.mino import Mino
from experiments.parts import made_up, paper_texts, papers
from experiments.parts.paper_texts import MadeUp, Material, PaperOptions
from experiments.parts.papers import Paper
from experiments.wang import Wang
from kvnmt.data import synthetic
from kvnmt.data.config import longest as most_tokens
from kvnmt.errors import UserError
from kvnmt.evaluation import System, Test, alignment
from kvnmt.fields import check_fields
from kvnmt.metrics.bleu import Settings
from kvnmt.metrics.brackets import parse_brackets
from kvnmt.metrics.links import Gold
from kvnmt.model import assembly
from kvnmt.runs.directory import load_run
from tests.experiments.fake import draw, never, paper_flags, small, untrained
from tests.helpers import write_untrained

MODULES: dict[ModuleType, type[PaperOptions]] = {
    bahdanau: Bahdanau,
    wang: Wang,
    mino: Mino,
    meng: Meng,
    miculicich: Miculicich,
}
each_module = pytest.mark.parametrize(
    "module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2]
)
SMALL = """--model.embedding 4 --model.encoder 12 --model.state 12 --training.shapes 1
    --model.initializer wide --training.batch-size 8 --data.vocabulary words""".split()


@pytest.fixture
def text(tmp_path) -> dict[str, Any]:
    """Flags for the text of Multi30k's test."""
    return paper_flags(tmp_path)


@pytest.fixture
def call(text, tmp_path, monkeypatch, capsys):
    """Starts a module as a program; gives what it prints."""
    monkeypatch.setattr("experiments.harness.table.keep_programs", lambda _: None)

    def run(module: ModuleType, *words: str) -> str:
        start = [module.__name__, "--workdir", str(tmp_path / "runs")]
        for name, path in text.items():
            paths = path if isinstance(path, tuple) else [path]
            start += [f"--{name.replace('_', '-')}", *map(str, paths)]
        monkeypatch.setattr(sys, "argv", [*start, *words])
        launch(MODULES[module], module.main, module.__doc__)
        return capsys.readouterr().out

    return run


def rows(options: PaperOptions, paper: Paper) -> list[Any]:
    data = Material(paper.settings[options.setting].data)
    return [
        papers.configure(options, paper, variant, 1, data) for variant in paper.variants
    ]


@each_module
@pytest.mark.parametrize("setting", ["paper", "small"])
def test_every_row_has_a_config_and_a_folder_of_its_own(module, setting, tmp_path):
    options = MODULES[module](setting=setting, workdir=tmp_path)
    made = rows(options, module.PAPER)
    assert len({row.folder for row in made}) == len(made)
    for row in made:
        check_fields(row.experiment)
        built = assembly.build(row.experiment.model, 50, 60)
        assert jax.tree.leaves(jax.eval_shape(built.init, jax.random.key(1)))
        start = row.experiment.training.warm_start
        assert start in (None, made[0].folder)


@each_module
def test_published_figures_are_those_of_rows(module):
    for table in module.TABLES:
        names = {
            ", ".join(str({**vars(v), **v.marks}.get(key, "")) for key in table.by)
            for v in module.PAPER.variants
        }
        published = {name for name in table.published if not name.startswith("cited")}
        assert published <= names
        assert {*table.differences} <= names


@pytest.mark.parametrize(
    "module, embedding, state, merge, longest, batch, optimizer",
    [
        (bahdanau, 620, 1000, "concat", 50, 80, "adadelta"),
        (wang, 512, 1024, "concat", 50, 80, "adadelta"),
        (mino, 540, 540, "project", 40, 64, "adam"),
        (meng, 512, 512, "sum", 80, 80, "adadelta"),
        (miculicich, 500, 1024, "concat", 50, 80, "adadelta"),
    ],
)
def test_the_settings_are_those_of_the_papers(
    module, embedding, state, merge, longest, batch, optimizer
):
    last = rows(MODULES[module](workdir=Path("runs")), module.PAPER)[-1]
    model, data = last.experiment.model, last.experiment.data
    assert (model.embedding, model.state, model.encoder) == (embedding, state, state)
    assert (model.merge, most_tokens(data, {data.vocabulary})) == (merge, longest)
    assert last.experiment.training.batch_size == batch
    assert last.experiment.optimizer.name == optimizer
    assert last.experiment.search.beam == 10


def test_memories_have_their_cells_and_start_from_the_baseline(tmp_path):
    made = rows(Wang(workdir=tmp_path, setting="small"), wang.PAPER)
    memories = [row for row in made if row.system == "memdec"]
    slots = [row.experiment.model.decoder.slots for row in memories]
    assert slots == [4, 4, 6, 8, 10, 12]
    assert [row.start for row in memories] == ["scratch", *["warm"] * 5]
    rates = {row.start: row.experiment.optimizer.learning_rate for row in memories}
    assert rates["warm"] == rates["scratch"] / 2


@each_module
def test_rows_are_listed(module, call, tmp_path):
    out = call(module, "--list")
    for row in rows(MODULES[module](workdir=tmp_path, source=tmp_path), module.PAPER):
        assert row.folder.name in out
    assert not (tmp_path / "runs").exists()


@each_module
def test_a_dry_run_shows_the_configuration(module, call, monkeypatch):
    """But for the memory, whose programs take long to compile."""
    monkeypatch.setattr("kvnmt.training.device_memory.check", lambda *args: None)
    system = module.PAPER.variants[0].system
    plan, *_ = json.loads(call(module, "--dry-run", "--systems", system, *SMALL))
    assert plan["system"] == system
    assert plan["config"]["model"]["state"] == 12
    assert plan["config"]["data"]["source"].endswith("train.de")
    assert plan["steps_per_epoch"] == 5


def test_bleu_by_length_is_measured_and_drawn(text, tmp_path):
    options = Bahdanau(
        **text, setting="small", systems=("rnnencdec",), workdir=tmp_path / "runs"
    )
    bahdanau.main(options, untrained)
    result = read_result(tmp_path / "runs" / "small-rnnencdec-30-scratch-1")
    assert result is not None
    assert (result["longest"], result["data"]) == (30, "small")
    assert sum(part[1] for part in result["by_length"]) == 4
    for label, _, bleu in result["by_length"]:
        assert result[f"bleu_{label}"] == bleu
    picture = options.workdir / bahdanau.PICTURE
    picture.unlink()
    other = tmp_path / "runs" / "small-rnnencdec-50-scratch-1" / "result.json"
    kept = json.loads(other.read_text())
    del kept["by_length"]  # as of a row that was measured without a test text
    other.write_text(json.dumps(kept))
    bahdanau.main(options, never)
    assert picture.exists()
    other.write_text(json.dumps(kept | {"by_length": [["1-10", 1, 0.0]]}))
    with pytest.raises(UserError, match="measured on different test texts"):
        bahdanau.main(options, never)


def made_test(count: int) -> tuple[Test, tuple[synthetic.Pair, ...]]:
    pairs = synthetic.make_corpus(1, train=1, valid=1, test=count).test
    source, reference = made_up.lines_of(pairs)
    test = Test(reference, source, settings=Settings(tokenize="none"))
    test.gold = [Gold(pair.links, pair.links) for pair in pairs]
    return test, pairs


def system_of(module: ModuleType, number: int, text: Any, tmp_path) -> System:
    """An untrained system of a paper."""
    options = MODULES[module](**text, setting="small", workdir=tmp_path / "runs")
    material = paper_texts.material_of(
        options, module.PAPER.settings["small"].data, MadeUp()
    )
    variant = module.PAPER.variants[number]
    row = papers.configure(options, module.PAPER, variant, 1, material)
    write_untrained(small(row.experiment), row.folder, draw)
    return System("system", list, load_run(row.folder))


def test_aligned_text_has_an_alignment_error(text, tmp_path):
    test, _ = made_test(4)
    names = [variant.system for variant in meng.PAPER.variants]
    system = system_of(meng, names.index("kvmematt-r2"), text, tmp_path)
    figures = meng.read_aligned(test, None, system)
    first, last, _ = (row["aer"] for row in alignment.measure(test, [system]).rows)
    assert figures["aer"] == last != first
    assert 0 <= figures["aligned_bleu"] <= 100
    with pytest.raises(UserError, match="all three"):
        meng.main(Meng(gold=tmp_path, workdir=tmp_path), never)


def test_german_has_pieces_and_results_of_its_own(tmp_path):
    options = Meng(workdir=tmp_path, pair="de-en")
    paper = meng.paper_of(options)
    row = rows(options, paper)[0]
    assert (row.data, row.folder.name) == ("de-en", "de-en-rnnsearch-star-scratch-1")
    data = row.experiment.data
    assert (data.subwords, most_tokens(data, {data.vocabulary})) == (36000, 100)


def test_positions_and_trees_of_self_attention(text, tmp_path):
    test, _ = made_test(4)
    system = system_of(miculicich, 2, text, tmp_path)
    trees = [parse_brackets(f"({line})", labelled=False) for line in test.reference]
    figures = miculicich.look_back(trees, test, system)
    assert sum(figures["counts"]) == sum(len(line.split()) for line in test.reference)
    assert 0 <= figures["previous"] <= 1
    assert 0 <= figures["precision"] <= 1
    result = json.loads(json.dumps({"system": "x", **figures}))
    miculicich.draw([result, {"system": "y"}], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").exists()
    with pytest.raises(UserError, match="--test-target"):
        miculicich.main(Miculicich(brackets=tmp_path, workdir=tmp_path), never)


@pytest.mark.parametrize(
    ("module", "changes", "part"),
    [
        (bahdanau, {"warm_epochs": 2, "setting": "small"}, "warm_epochs is of systems"),
        (wang, {"warm_epochs": 2, "systems": ("rnnsearch",)}, "warm_epochs is of"),
        (mino, {"pairs": 9}, "pairs is of the text that --setting small makes"),
        (meng, {"pair": "de-en", "setting": "small"}, "pair is of the setting of the"),
        (meng, {"gold": Path("g"), "setting": "small"}, "has links of its own"),
    ],
    ids=str,
)
def test_flags_that_do_nothing_are_refused(module, changes, part, tmp_path):
    options = MODULES[module](workdir=tmp_path, list=True, **changes)
    with pytest.raises(UserError, match=part):
        module.main(options, never)
