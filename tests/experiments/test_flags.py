# SPDX-License-Identifier: Apache-2.0
"""What every table takes from the command line, tried on one with two rows."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from experiments import (
    alignment,
    all_systems,
    bahdanau,
    even_match,
    growth,
    meng,
    multi30k,
)
from experiments.alignment import Alignment
from experiments.all_systems import AllSystems
from experiments.bahdanau import Bahdanau
from experiments.even_match import EvenMatch
from experiments.growth import Growth
from experiments.harness.results import write_result
from experiments.harness.row_flags import with_flags
from experiments.harness.rows import Row
from experiments.harness.settings import config_digest
from experiments.meng import Meng
from experiments.multi30k import Multi30k
from experiments.parts.papers import configure
from kvnmt.data.config import DataConfig
from kvnmt.errors import UserError
from tests.experiments.fake import never
from tests.helpers import tiny, toy_data

SMALL = """--model.embedding 4 --model.encoder 6 --model.state 6 --training.shapes 1
    --model.initializer wide --training.batch-size 8""".split()


def test_rows_are_listed_with_their_state(call, tmp_path):
    (tmp_path / "flags").write_text("--seeds 1 2  # both\n--starts scratch")
    out, _ = call("--list", f"@{tmp_path / 'flags'}")
    names = [f"de-en-rnnencdec-scratch-{seed}" for seed in (1, 2)]
    lines = [line.split(maxsplit=1) for line in out.splitlines() if "de-en" in line]
    assert [(name, state.strip()) for name, state in lines] == [
        (name, "not started") for name in names
    ]
    assert not (tmp_path / "w").exists()


def test_rows_are_listed_without_their_text_and_damaged_ones_among_them(call, tmp_path):
    (tmp_path / "test2016.de").unlink()
    for seed, text in ((1, "{"), (2, '{"config": "d-another"}'), (3, '{"bleu": 1}')):
        folder = tmp_path / "w" / f"de-en-rnnencdec-scratch-{seed}"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(text)
    out, _ = call("--list", "--seeds", "1", "2", "3", "4", "--starts", "scratch")
    counts = [out.count(word) for word in ("cannot be used:", "done", "not started")]
    assert counts == [2, 1, 1]


def test_a_paper_lists_its_rows_without_text(tmp_path, capsys):
    meng.main(Meng(workdir=tmp_path / "w", list=True))
    assert "paper-rnnsearch-star-scratch-1" in capsys.readouterr().out


def test_what_is_done_so_far_is_shown_without_text_and_training(call, tmp_path):
    (tmp_path / "test2016.de").unlink()
    done = {"system": "rnnencdec", "start": "scratch", "seed": 2, "test2016_bleu": 12.5}
    write_result(tmp_path / "w" / "de-en-rnnencdec-scratch-2", done)
    (tmp_path / "w" / "de-en-rnnencdec-scratch-3").mkdir()
    (tmp_path / "w" / "de-en-rnnencdec-scratch-3" / "result.json").write_text("{")
    out, err = call("--show", "--seeds", "1", "2", "3", "--starts", "scratch")
    told = " ".join((out + err).split())
    assert "12.50" in told and "2 of 3 rows are not done" in told
    assert "holds no figures" in told


def test_a_flag_that_no_row_has_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(growth, "point", lambda *args: pytest.fail("measured"))
    options = Growth(workdir=tmp_path / "w", config=("--model.sate", "5"))
    with pytest.raises(UserError, match="--model.sate is no flag here"):
        growth.main(options)
    assert not (tmp_path / "w").exists()


def test_the_commit_is_that_of_the_launch(call, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "experiments.harness.table.commit", lambda: asked.append("commit")
    )
    monkeypatch.setattr(multi30k, "make_table", lambda *args: asked.append("table"))
    call()
    assert asked == ["commit", "table"]


def test_a_dry_run_tells_what_would_be_trained(call, tmp_path):
    options = Multi30k(data=tmp_path, workdir=tmp_path / "w")
    row = multi30k.configure(options, "rnnencdec", "warm", 7, {})
    (row,) = with_flags([row], SMALL)
    done = {"system": "rnnencdec", "steps": 12, "minutes": 6.0}
    write_result(tmp_path / "w" / "another", done)  # of another size, perhaps
    done |= {"setting": config_digest(row.experiment, seed=False), "minutes": 12.0}
    write_result(tmp_path / "w" / "same", done)
    out, _ = call("--dry-run", "--starts", "warm", *SMALL)
    (plan,) = json.loads(out)
    assert plan["row"] == "de-en-rnnencdec-warm-1"
    assert plan["config"]["model"]["state"] == 6
    assert plan["config"]["training"]["warm_start"].endswith("star-scratch-1")
    sizes = [len(shape) for shape in plan["arrays"].values()]
    assert sizes and plan["parameters"] > 100
    assert (plan["steps_per_epoch"], plan["steps"]) == (5, 10)
    assert plan["memory"]["rows"] == 8 and plan["memory"]["bytes"] > 0
    assert plan["sharding"]["devices"]["model"] == 1
    assert plan["time"]["minutes"] == 10.0
    assert not (tmp_path / "w" / "de-en-rnnencdec-warm-1").exists()


def test_another_optimizer_has_its_own_rate(tmp_path):
    options = Multi30k(data=tmp_path, workdir=tmp_path)
    rows = [multi30k.configure(options, "rnnsearch-star", "scratch", 1, {})]
    assert rows[0].experiment.optimizer.learning_rate is not None
    (changed,) = with_flags(rows, ["--optimizer.name", "sgd"])
    assert changed.experiment.optimizer.learning_rate is None
    (changed,) = with_flags(rows, "--optimizer.name sgd --optimizer.clip 5".split())
    assert changed.experiment.optimizer.clip == 5


def test_a_flag_that_does_nothing_is_refused(tmp_path):
    options = Multi30k(data=tmp_path, workdir=tmp_path)
    rows = [multi30k.configure(options, "rnnsearch-star", "scratch", 1, {})]
    with pytest.raises(UserError, match="subwords"):
        with_flags(rows, ["--data.subwords", "100"])


@pytest.mark.parametrize(
    ("module", "changes", "part"),
    [
        (multi30k, {"starts": ("scratch",), "warm_epochs": 9}, "is of warm rows"),
        (multi30k, {"starts": ("warm",), "epochs": 30}, "is of scratch rows"),
        (even_match, {"threads": 99}, "threads is of JoeyNMT; give peer_python too"),
        (all_systems, {"data": None, "multi30k_epochs": 4}, "is of Multi30k; give"),
        (alignment, {"aligners": True, "epochs": 9}, "epochs is of systems, and"),
    ],
    ids=str,
)
def test_an_option_that_does_nothing_is_refused(
    module, changes, part, tmp_path, monkeypatch
):
    monkeypatch.setattr(alignment, "installed_aligners", lambda: ["Thot"])
    names = {multi30k: Multi30k, even_match: EvenMatch, all_systems: AllSystems}
    kind = names.get(module, Alignment)
    options = kind(**{"data": tmp_path, "workdir": tmp_path, **changes})
    with pytest.raises(UserError, match=part):
        module.main(options, never)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--list", "--show"], "--list and --show show different things; give one"),
        (["--warm-epochs", "0"], "--warm-epochs is 0 but must be at least 1"),
    ],
)
def test_options_are_refused_before_anything_is_read(call, words, part, capsys):
    with pytest.raises(SystemExit):
        call(*words)
    assert part in " ".join(capsys.readouterr().err.split())


def test_a_flag_that_undoes_what_a_row_is_named_for_is_refused():
    options = Bahdanau(setting="small")
    text: Any = SimpleNamespace(data=DataConfig(), files=())
    rows = [
        configure(options, bahdanau.PAPER, variant, 1, text)
        for variant in bahdanau.PAPER.variants
    ]
    with pytest.raises(UserError, match="--data.max-length is what the row '.*-30-.*'"):
        with_flags(rows, ["--data.max-length", "20"])
    assert len(with_flags(rows, ["--training.epochs", "3"])) == len(rows)


def test_flags_that_make_another_system_of_a_row_are_refused(tmp_path):
    """Its name would be wrong; how much of a loss counts is no other system."""
    data = toy_data(tmp_path / "text")
    plain, guided = (
        Row(
            folder=tmp_path / name,
            system=name,
            experiment=tiny(data, name),
            measure=lambda trained: {},
        )
        for name in ("kvmematt-r1", "kvmematt-r1-atteos")
    )
    atteos = ["--objective.atteos", "0.5"]
    with pytest.raises(UserError, match="make kvmematt-r1-atteos of .* 'kvmematt-r1'"):
        with_flags([plain], atteos)
    with_flags([guided], atteos)
    with pytest.raises(UserError, match="make kvmematt-r2 of the row 'kvmematt-r1'"):
        with_flags([plain], ["--model.decoder.rounds", "2"])
    with_flags([plain], ["--model.merge", "sum"])


def test_a_flag_of_the_configuration_changes_every_row(tmp_path):
    options = Multi30k(data=tmp_path, workdir=tmp_path)
    rows = [
        multi30k.configure(options, name, "scratch", 1, {})
        for name in ("rnnsearch-star", "memdec")
    ]
    changed = with_flags(rows, ["--training.batch-size", "20"])
    assert [row.experiment.training.batch_size for row in changed] == [20, 20]
    for before, after in zip(rows, changed):
        assert after.experiment.model == before.experiment.model


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--training.seed", "2"], "use --seeds"),
        (["--training.warm-start", "x"], "leave it out"),
        (["--training.batch-size", "0"], "must be at least 1"),
        (["--training.epochs", "3"], "use --epochs"),
        (["--training.epochs=3"], "use --epochs"),
        (["--epochs", "0", "--list"], "must be at least 1"),
        (["--seeds"], "--seeds names nothing"),
        (["--starts"], "--starts names nothing"),
        (["--systems", "memdec"], "--systems stands twice"),
        (
            ["--data.symbols", "<a>", "--data.symbols", "<b>"],
            "--data.symbols stands twice",
        ),
        (["--sytems", "rnnsearch-star"], "sytems"),
    ],
)
def test_a_wrong_flag_is_told_before_any_work(call, tmp_path, capsys, words, sentence):
    with pytest.raises(SystemExit) as end:
        call(*words)
    assert end.value.code == 2
    assert sentence in "".join(capsys.readouterr())
    assert not (tmp_path / "w").exists()


def test_what_is_no_option_is_told_with_the_nearest(call, capsys):
    with pytest.raises(SystemExit):
        call("--sed", "2")
    assert "no option '--sed'; did you mean '--seeds'?" in capsys.readouterr().err
