# SPDX-License-Identifier: Apache-2.0
"""Results that are kept: whose they are, and what takes their place."""

import json
import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from experiments import report
from experiments.harness import results
from experiments.harness.results import collect, kept_results
from experiments.report import ReportOptions
from kvnmt.errors import UserError
from tests.experiments.kept import MEASURED, row


@pytest.mark.parametrize(
    "was", ["new", "new:t", "new:t::1.5", "old:t", "new:t::1.25", "new:u::1.5"]
)
def test_a_result_of_rows_that_are_no_longer_there_is_not_kept(tmp_path, was):
    """Its base was trained again, perhaps with the same config: neither is copied."""
    noted: dict = {"base": {"config": "new", "text": "t", "valid_loss": 1.5}}
    noted["read"] = {"based_on": {"base": was}}
    for name, figures in noted.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        text = json.dumps(MEASURED | row(1, 20.0) | figures)
        (tmp_path / "runs" / name / "result.json").write_text(text)
    is_kept = was in ("new", "new:t", "new:t::1.5")
    said = "runs/read' was measured before 'base' became"
    with nullcontext() if is_kept else pytest.raises(UserError, match=said):
        collect(tmp_path / "runs", "mine", tmp_path / "kept")
    assert (tmp_path / "kept").exists() == is_kept


def test_results_of_a_workdir_are_kept(tmp_path):
    for seed in (1, 2):
        folder = tmp_path / "runs" / f"row-{seed}"
        folder.mkdir(parents=True)
        text = json.dumps(MEASURED | row(seed, 20.0 + seed))
        (folder / "result.json").write_text(text)
    paths = collect(tmp_path / "runs", "mine", tmp_path / "kept")
    assert [path.name for path in paths] == ["row-1.json", "row-2.json"]
    bleu = [result["bleu"] for result in kept_results("mine", tmp_path / "kept")]
    assert bleu == [21.0, 22.0]
    with pytest.raises(UserError, match="no result"):
        collect(tmp_path, "mine", tmp_path / "kept")


def test_a_kept_result_of_another_setting_is_not_overwritten(tmp_path):
    folder = tmp_path / "runs" / "row-1"
    folder.mkdir(parents=True)

    def measure(**figures: object) -> list[Path]:
        text = json.dumps(MEASURED | row(1, 20.0) | figures)
        (folder / "result.json").write_text(text)
        return collect(tmp_path / "runs", "mine", tmp_path / "kept")

    (path,) = measure()
    measure()
    for before, after in (({}, {"setting": "s"}), ({"text": "t"}, {"text": "u"})):
        path.unlink()
        measure(**before)
        kept = path.read_text()
        with pytest.raises(UserError, match=r"row-1\.json' is of another .* delete it"):
            measure(**after)
        assert path.read_text() == kept
    measure(text="t", bleu=21.0)
    assert json.loads(path.read_text())["bleu"] == 21.0


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
def test_a_new_module_makes_code_another(tmp_path, monkeypatch):
    """Though git knows nothing of it yet; a new text or a page does not."""
    home = tmp_path / "experiments"
    (home / "parts").mkdir(parents=True)
    monkeypatch.setattr(results, "HERE", home)
    for command in ("init -q", "commit -q --allow-empty -m first"):
        who = ["-c", "user.name=a", "-c", "user.email=b"]
        subprocess.run(["git", *who, *command.split()], cwd=tmp_path, check=True)
    for path in (tmp_path / "notes.txt", tmp_path / "peer.py", home / "page.md"):
        path.write_text("")
    clean = results.commit.__wrapped__()
    assert len(clean) == 40
    (home / "parts" / "new.py").write_text("")
    assert results.commit.__wrapped__() == f"{clean}-dirty"


def test_what_is_collected_stands_in_a_table(tmp_path, monkeypatch, capsys):
    """By the name of the folder of runs, or of a table's folder."""
    run = tmp_path / "alignment" / "row-1"
    run.mkdir(parents=True)
    (run / "result.json").write_text(json.dumps(MEASURED | {"system": "x"}))
    page, other = tmp_path / "alignment.md", tmp_path / "other.md"
    page.write_text("<!-- table alignment-fr-en -->\n<!-- end -->\n")
    other.write_text("nothing")
    monkeypatch.setattr(report, "PAGES", tmp_path)
    monkeypatch.setattr(report, "KEPT", tmp_path / "kept")
    report.main(ReportOptions(collect=tmp_path / "alignment"))
    assert (tmp_path / "kept" / "alignment" / "row-1.json").exists()
    assert "not run" in page.read_text() and other.read_text() == "nothing"
    assert capsys.readouterr().err.count("is written anew") == 1


def test_results_of_an_unknown_table_are_refused_before_any_is_kept(tmp_path):
    with pytest.raises(UserError, match="multi30k"):
        report.main(ReportOptions(collect=tmp_path, name="multi3k"))


@pytest.mark.parametrize(
    ("figures", "taken", "refused"),
    [
        (
            {"system": "two", "parameters": 2, "command": "x --seeds 1"},
            {"bleu": 2.0},
            {"parameters": 9},
        ),
        (
            {"config": "d-1", "command": "--workdir 0"},
            {"bleu": 2.0, "command": "--workdir 1"},
            {"config": "d-2"},
        ),
    ],
    ids=["speeds", "ensemble"],
)
def test_a_result_that_trains_nothing_takes_the_place_of_none(
    tmp_path, figures, taken, refused
):
    """Of another system, size or command; with a config, that tells it apart."""
    run, kept = tmp_path / "runs" / "row-1", tmp_path / "kept"
    run.mkdir(parents=True)
    for changes in ({}, taken):
        (run / "result.json").write_text(json.dumps(MEASURED | figures | changes))
        collect(tmp_path / "runs", "mine", kept)
    (run / "result.json").write_text(json.dumps(MEASURED | figures | refused))
    with pytest.raises(UserError, match="is of another setting, text or"):
        collect(tmp_path / "runs", "mine", kept)
    assert json.loads((kept / "mine/row-1.json").read_text())["bleu"] == 2.0


def test_what_cannot_be_reported_is_not_kept(tmp_path):
    run, kept = tmp_path / "runs" / "row-1", tmp_path / "kept"
    run.mkdir(parents=True)
    (run / "result.json").write_text('{"bleu": 1}')
    with pytest.raises(UserError, match="does not say when and on what"):
        collect(tmp_path / "runs", "mine", kept)
    (run / "result.json").unlink()
    (run / "result.json").mkdir()
    with pytest.raises(UserError, match="result.json' cannot be read: Is a directory"):
        collect(tmp_path / "runs", "mine", kept)
    assert not kept.exists()
    with pytest.raises(UserError, match="--name is that of the table of --collect"):
        report.main(ReportOptions(name="mine"))


def test_another_training_takes_no_results_place_unasked(tmp_path):
    """Others may have come of that: they are named."""
    runs, kept = tmp_path / "runs", tmp_path / "kept"
    for name, figures in (
        ("base", {"setting": "s", "text": "t", "valid_loss": 1.5}),
        ("made", {"setting": "u", "based_on": {"base": "c:t::1.5"}}),
        ("of_that", {"setting": "v", "based_on": {"made": "u:t::1.25"}}),
    ):
        (kept / "mine").mkdir(parents=True, exist_ok=True)
        (kept / "mine" / f"{name}.json").write_text(json.dumps(MEASURED | figures))
    (runs / "base").mkdir(parents=True)
    again = MEASURED | {"setting": "s", "text": "t", "valid_loss": 1.25}
    (runs / "base" / "result.json").write_text(json.dumps(again))
    with pytest.raises(UserError, match=r"it \('made.json', 'of_that.json'\)"):
        collect(runs, "mine", kept)
    (kept / "mine" / "base.json").unlink()
    collect(runs, "mine", kept)
