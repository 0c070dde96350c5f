# SPDX-License-Identifier: Apache-2.0
"""The harness of the experiments: what it trains, resumes, writes, skips, refuses."""

import json
import shutil
from dataclasses import replace

import pytest

from experiments.harness.results import read_result
from experiments.harness.rows import OtherRow
from experiments.harness.table import Options, Table, make_table
from experiments.parts.recipes import parallel_text, with_system
from kvnmt.data.config import DataConfig
from kvnmt.errors import StoppedError, UserError
from kvnmt.evaluation.base import Column
from kvnmt.runs.config import Experiment
from kvnmt.systems.named import SYSTEMS
from kvnmt.training.config import TrainingConfig
from kvnmt.training.losses import Objective
from tests.experiments.fake import RESULT, complete, draw, never
from tests.helpers import write_untrained


def test_every_row_is_trained_measured_and_written_in_order(rows, train):
    calls = []

    def noting(experiment, folder, *, resume, console):
        calls.append((experiment, folder, resume))
        return train(experiment, folder, resume=resume, console=console)

    results = complete(rows, noting)
    assert calls == [(row.experiment, row.folder, False) for row in rows]
    assert [figures["bleu"] for figures in results] == [20.0, 30.0]
    assert [figures["start"] for figures in results] == ["scratch", "warm"]
    figures = results[0]
    assert (figures["system"], figures["seed"]) == ("rnnsearch-star", 7)
    assert figures["parameters"] > 0
    assert (figures["steps"], figures["best_epoch"]) == (30, 2.0)
    assert figures["valid_loss"] == RESULT.best["valid_loss"]
    for row, figures in zip(rows, results):
        assert json.loads((row.folder / "result.json").read_text()) == figures


def test_a_measure_sees_the_trained_run_and_its_result(rows, train):
    def measure(trained):
        folder, run, result = trained
        assert folder == rows[0].folder
        words = len(run.vocabularies.source)
        return {"words": words, "tokens": result.steps * result.tokens_per_second}

    (figures,) = complete([replace(rows[0], measure=measure)], train)
    assert figures["words"] > 8
    assert figures["tokens"] == RESULT.steps * RESULT.tokens_per_second


def test_what_is_done_is_read_and_not_trained_again(rows, train):
    first = complete(rows, train)
    assert complete(rows, never) == first
    (rows[1].folder / "result.json").unlink()
    with pytest.raises(UserError, match="second' was trained again"):
        complete(rows, never)


def test_a_result_is_found_by_its_folder_alone(rows):
    """As one of an older version, whose run directory may be gone."""
    rows[0].folder.mkdir()
    (rows[0].folder / "result.json").write_text('{"bleu": 12.5}')
    assert complete(rows[:1], never) == [{"bleu": 12.5}]


def test_an_interrupted_run_goes_on(rows, train):
    resumed = []

    def stopped(experiment, folder, *, resume, console):
        train(experiment, folder, resume=resume, console=console)
        raise StoppedError("stopped; go on with --resume.", 15)

    def noting(experiment, folder, *, resume, console):
        resumed.append((folder.name, resume))
        return train(experiment, folder, resume=resume, console=console)

    with pytest.raises(StoppedError, match="^stopped; the same command goes on") as end:
        complete(rows, stopped)
    assert end.value.status == 128 + 15
    assert read_result(rows[0].folder) is None
    assert not rows[1].folder.exists()
    complete(rows, noting)
    assert resumed == [("first", True), ("second", False)]


def test_a_run_that_another_config_began_is_refused(rows, train):
    """Also where training itself would let the field change."""
    row = rows[0]
    write_untrained(row.experiment, row.folder, draw)
    faster = replace(row.experiment.optimizer, learning_rate=0.5)
    changed = replace(row, experiment=replace(row.experiment, optimizer=faster))
    named = r"'.*first' was begun with .* \(optimizer\.learning_rate 0\.03, now 0\.5\)"
    with pytest.raises(UserError, match=named):
        complete([changed], never)
    complete([row], train)
    (row.folder / "result.json").unlink()  # as people do who want it measured again
    shutil.rmtree(row.folder / "checkpoints")  # nothing was trained: it decides afresh
    complete([changed], train)


def test_what_came_from_other_rows_is_refused(rows, train):
    """Of a row that was trained again with other choices, and where one is new."""
    first, second = rows
    read = OtherRow(
        folder=first.folder.parent / "read",
        system="all",
        work=lambda: {"aer": 0.1},
        after=(first.folder,),
    )
    assert len(complete([first, second, read], train)) == 3
    more = replace(read, after=(first.folder, second.folder))
    with pytest.raises(UserError, match="read' was measured before 'second' became"):
        complete([first, second, more], never)
    shutil.rmtree(first.folder)
    data = replace(first.experiment.training, epochs=99)
    again = replace(first, experiment=replace(first.experiment, training=data))
    complete([again], train)
    shutil.rmtree(first.folder)
    complete([first], train)
    path = first.folder / "result.json"
    path.write_text(path.read_text().replace(first.text, "other"))
    for row in (second, read):  # of the same config and other text
        with pytest.raises(
            UserError, match=f"{row.folder.name}' was .* 'first' became"
        ):
            row.result()
    shutil.rmtree(first.folder)
    complete([again], train)
    for row in (second, read):
        with pytest.raises(
            UserError, match=f"{row.folder.name}' was .* 'first' became"
        ):
            complete([again, row], never)


def test_a_measure_that_fails_leaves_no_result(rows, train):
    def fails(run, result):
        raise UserError("no text.")

    with pytest.raises(UserError):
        complete([rows[0], replace(rows[1], measure=fails)], train)
    assert read_result(rows[0].folder) is not None
    assert not list(rows[1].folder.glob("result*"))


@pytest.mark.parametrize("text", ["", '{"bleu": 1', "[]", "{}"])
def test_a_damaged_result_is_one_sentence(rows, text):
    rows[0].folder.mkdir()
    path = rows[0].folder / "result.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"first/result\.json' .* delete it.*\.$"):
        complete(rows, never)
    assert path.read_text() == text


def test_a_system_changes_its_mechanisms_and_its_objective_alone(tmp_path):
    base = Experiment(
        objective=Objective(label_smoothing=0.1),
        data=parallel_text(DataConfig(min_count=3), tmp_path, "de", "en"),
        training=TrainingConfig(batch_size=24, epochs=9),
    )
    made = with_system(base, "kvmematt-r1-atteos", epochs=2, seed=5)
    assert made.model == SYSTEMS["kvmematt-r1-atteos"].model(base.model)
    assert made.objective == Objective(label_smoothing=0.1, atteos=1.0)
    assert made.training == TrainingConfig(batch_size=24, epochs=2, seed=5)
    assert (made.data, made.optimizer) == (base.data, base.optimizer)
    assert made.data.min_count == 3
    assert made.data.source == tmp_path / "train.de"
    assert made.data.valid_target == tmp_path / "valid.en"
    with pytest.raises(UserError, match="kvmematt-r1"):
        with_system(base, "kvmemat-r1", epochs=2, seed=5)


def test_a_table_has_a_line_for_each_result_and_leaves_gaps(rows, train, capsys):
    """For people, for a paper and for programs."""
    columns = [Column("system", "system"), Column("bleu", "BLEU", "{:.2f}")]
    lines = [{"system": "a_b", "bleu": 12.345}, {"system": "c"}]
    made = Table("t", columns, rows, ["n"], lines=lambda done: lines if done else [])

    def shown(**view) -> list[str]:
        make_table(Options(workdir=rows[0].folder.parent, **view), made)
        return capsys.readouterr().out.splitlines()

    assert shown(json=True) == []
    complete(rows, train)
    capsys.readouterr()
    cells = [line.split() for line in shown(show=True)]
    assert cells[-4:] == [["system", "BLEU"], ["a_b", "12.35"], ["c"], ["n"]]
    paper = shown(latex=True)
    assert paper[0] == r"\begin{tabular}{lr}"
    assert paper[4:6] == [r"a\_b & 12.35 \\", r"c &  \\"]
    assert paper[-2].startswith("% t, ") and paper[-1] == "% n"
    assert [json.loads(line) for line in shown(json=True)] == lines
    (rows[1].folder / "result.json").unlink()
    assert "1 of 2 rows are not done" in " ".join(" ".join(shown(show=True)).split())


def test_a_title_tells_what_flags_may_change(rows, capsys):
    """By the data, where it is not the same for all."""
    column = [Column("system", "system")]
    one, two = rows
    more = replace(two.experiment.training, epochs=9)
    longer = replace(two, experiment=replace(two.experiment, training=more))
    other = replace(longer, data="captions")
    for some, title in (
        ([one, two], "t, beam 10, at most 2 epochs"),
        ([one, longer], "t, beam 10, at most 2 or 9 epochs"),
        (
            [replace(one, data="made-up"), other],
            "t, made-up: beam 10, at most 2 epochs, captions: beam 10, at most 9 ep",
        ),
    ):
        make_table(
            Options(workdir=one.folder.parent, show=True), Table("t", column, some)
        )
        out = capsys.readouterr().out  # a title is no wider than its table
        assert "".join(title.split()) in "".join(out.split())
