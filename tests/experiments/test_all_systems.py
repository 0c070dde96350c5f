# SPDX-License-Identifier: Apache-2.0
"""Every system on one budget: its rows, what is measured, and its table."""

import dataclasses

import pytest

from experiments import all_systems, language_models
from experiments.all_systems import AllSystems
from experiments.harness.results import write_result
from experiments.harness.rows import Trained
from kvnmt.data import synthetic
from kvnmt.errors import UserError
from kvnmt.runs.directory import load_run
from kvnmt.systems.named import SYSTEMS
from tests.experiments.fake import RESULT, draw, never, small, write_captions
from tests.helpers import write_untrained


def test_every_system_has_its_experiment():
    translators = set(all_systems.TRANSLATORS)
    assert translators | set(language_models.WIDTHS) == set(SYSTEMS)
    assert not translators & set(language_models.WIDTHS)
    corpus = synthetic.make_corpus(1, train=1, valid=1, test=1)
    rows = all_systems.made_up_rows(AllSystems(speed=False), corpus)
    assert [row.system for row in rows] == list(all_systems.TRANSLATORS)
    for row in rows:
        system = SYSTEMS[row.system]
        assert row.experiment.model == system.model(all_systems.MADE_UP.model)
        assert row.experiment.objective == system.objective()
        assert row.folder.name == f"synthetic-{row.system}-1"


def test_an_unknown_system_is_refused_before_any_work(tmp_path):
    options = AllSystems(workdir=tmp_path / "runs", systems=("memdex",))
    with pytest.raises(UserError, match="memdec"):
        all_systems.main(options, never)
    assert not (tmp_path / "runs").exists()


def test_captions_are_looked_at_before_any_work(tmp_path):
    """Though the made-up text is trained on first."""
    write_captions(tmp_path)
    (tmp_path / "valid.en").unlink()
    folder, systems = tmp_path / "runs", ("rnnencdec",)
    options = AllSystems(data=tmp_path, workdir=folder, systems=systems, pairs=10)
    with pytest.raises(UserError, match=r"valid\.en"):
        all_systems.main(options, never)


@pytest.mark.parametrize(
    "name, aligns", [("rnnencdec", False), ("rnnsearch-star", True)]
)
def test_a_system_that_aligns_has_an_alignment_error(tmp_path, name, aligns):
    options = AllSystems(workdir=tmp_path / "runs", systems=(name,), epochs=1)
    corpus = synthetic.make_corpus(1, train=20, valid=4, test=4)
    synthetic.write_corpus(corpus, tmp_path / "runs" / "corpus")
    (row,) = all_systems.made_up_rows(options, corpus)
    write_untrained(small(row.experiment), row.folder, draw)
    figures = row.measure(Trained(row.folder, load_run(row.folder), RESULT))
    assert ("aer" in figures) == aligns
    assert {"bleu", "dropped", "repeated"} <= set(figures)


def test_results_of_both_texts_and_speeds_are_one_table(tmp_path, capsys):
    """Also those of a folder that has no speeds, or no alignment error."""
    write_captions(tmp_path)
    options = AllSystems(
        data=tmp_path,
        workdir=tmp_path / "runs",
        systems=("rnnencdec", "rnnsearch-star"),
        pairs=10,
    )
    row = all_systems.speed_row(options)
    speeds = [{"system": "rnnencdec", "speed": 1.3, "memory": 57.9}]
    write_result(row.folder, {"data": "speed", "system": "all", "rows": speeds})
    made = {"parameters": 1000, "bleu": 90.0, "dropped": 0.25, "repeated": 0.125}
    for name, figures in {
        "synthetic-rnnencdec-1": made,
        "synthetic-rnnsearch-star-1": made | {"aer": 0.222},
        "multi30k-rnnencdec-1": {"bleu": 12.95},
        "multi30k-rnnsearch-star-1": {"bleu": 23.57},
    }.items():
        text, rest = name.split("-", 1)
        named = {"data": text, "system": rest.removesuffix("-1"), "seed": 1}
        write_result(tmp_path / "runs" / name, named | figures)
    all_systems.main(options, never)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    line = ["rnnencdec", "1,000", "90.00", "25.00%", "12.50%", "12.95", "1.30", "58"]
    assert [*line, "1"] in rows
    baseline = ["rnnsearch-star", "1,000", "90.00", "22.2%", "25.00%", "12.50%"]
    assert [*baseline, "23.57", "1"] in rows
    all_systems.main(dataclasses.replace(options, data=None), never)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [*baseline, "1"] in rows
