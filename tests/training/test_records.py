# SPDX-License-Identifier: Apache-2.0
"""The records of a run: strict JSON, cut back to a checkpoint, events, a picture."""

import json
import subprocess
import sys

import pytest
from tensorboardX.event_file_writer import EventsWriter

from kvnmt.errors import UserError
from kvnmt.pictures import charts
from kvnmt.pictures.charts import learning_curve
from kvnmt.training import records as metrics


def record(step: int, **figures: float) -> dict[str, float]:
    return {"step": step, "train_loss": 3.0, "valid_loss": 2.0} | figures


def test_figures_that_are_no_numbers_are_null(tmp_path):
    log = metrics.Log(tmp_path, 0, 0)
    log.add(record(1, train_loss=float("nan"), valid_bleu=float("inf")))
    log.close()
    line = (tmp_path / metrics.NAME).read_text()
    expected = {"step": 1, "train_loss": None, "valid_loss": 2.0, "valid_bleu": None}
    assert json.loads(line) == expected
    assert "NaN" not in line and "Infinity" not in line


def test_records_behind_a_step_and_half_lines_are_dropped(tmp_path):
    log = metrics.Log(tmp_path, 0, 0)
    for step in (1, 2, 3):
        log.add(record(step))
    log.close()
    with (tmp_path / metrics.NAME).open("a") as file:
        file.write('{"step": 2, "lo')
    metrics.Log(tmp_path, 2, 2).close()
    lines = (tmp_path / metrics.NAME).read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]


def test_records_of_steps_stay_up_to_the_checkpoint(tmp_path):
    """A validation that was not rated is done again; steps before it are not."""
    log = metrics.Log(tmp_path, 0, 0)
    for step in (2, 4, 6):
        log.add_steps({"step": step, "train_loss": 3.0})
    for step in (3, 5):
        log.add(record(step))
    log.close()
    metrics.Log(tmp_path, step=5, validated=3).close()
    assert [line["step"] for line in metrics.read(tmp_path)] == [3]
    assert [line["step"] for line in metrics.read(tmp_path, metrics.STEPS)] == [2, 4]
    # TensorBoard leaves out what is behind a start: the fourth step is told again.
    *_, last = sorted((tmp_path / metrics.EVENTS).iterdir())
    assert last.read_bytes().count(b"steps/train_loss") == 1


def test_translations_of_a_validation_have_a_file(tmp_path):
    """One behind the step that training goes on from is void."""
    folder = tmp_path / metrics.TRANSLATIONS
    log = metrics.Log(tmp_path, 0, 0)
    log.add(record(1))
    assert not folder.exists()
    for step in (2, 10):
        log.add(record(step), ["a b", "", f"c\u2028{step}"])
    log.close()
    assert (folder / "10.txt").read_bytes().decode() == "a b\n\nc\u202810\n"
    (folder / "notes.txt").write_text("of a user's own")
    metrics.Log(tmp_path, 9, 9).close()
    assert {path.name for path in folder.iterdir()} == {"2.txt", "notes.txt"}


@pytest.mark.parametrize(
    "line", ["{", '{"epoch": 1.0}', "[]", "7", "", '{"step": null}', '{"step": 2}}']
)
@pytest.mark.parametrize("name", [metrics.NAME, metrics.STEPS])
def test_a_line_that_is_no_record_is_told_and_nothing_is_written_anew(
    tmp_path, name, line
):
    good = '{"step": 1}\n{"step": 3}\n'
    texts = {metrics.NAME: good, metrics.STEPS: good}
    texts[name] = f'{{"step": 1}}\n{line}\n{{"step": 3}}\n'
    for each, text in texts.items():
        (tmp_path / each).write_text(text)
    told = f"{name}', line 2 is no record .*delete it"
    with pytest.raises(UserError, match=told):
        metrics.Log(tmp_path, 2, 2)
    with pytest.raises(UserError, match=told):
        metrics.read(tmp_path, name)
    assert {each: (tmp_path / each).read_text() for each in texts} == texts
    assert not (tmp_path / metrics.EVENTS).exists()


def test_a_run_without_a_record_has_no_picture(tmp_path):
    metrics.Log(tmp_path, 0, 0).close()
    assert metrics.read(str(tmp_path)) == []
    assert not (tmp_path / metrics.CURVE).exists()


def test_tensorboard_and_people_get_them_too(tmp_path, monkeypatch):
    monkeypatch.setattr(charts, "learning_curve", learning_curve)
    log = metrics.Log(tmp_path, 0, 0)
    log.add(record(7, valid_bleu=12.5))
    log.close()
    (events,) = (tmp_path / metrics.EVENTS).iterdir()
    for name in (b"train_loss", b"valid_loss", b"valid_bleu"):
        assert name in events.read_bytes()
    assert (tmp_path / metrics.CURVE).read_bytes().startswith(b"\x89PNG")


def test_steps_do_not_wait_for_the_disk(tmp_path, monkeypatch):
    """Of TensorBoard's file, but for once in a while; validations do."""
    flush, flushed = EventsWriter.flush, []
    monkeypatch.setattr(
        EventsWriter, "flush", lambda self: [flushed.append(1), flush(self)]
    )
    log = metrics.Log(tmp_path, 0, 0)
    for step in range(9):
        log.add_steps({"step": step, "train_loss": 3.0})
    assert len(flushed) == 1  # when it was opened
    monkeypatch.setattr(metrics, "FLUSH", 0.0)
    log.add_steps({"step": 9, "train_loss": 3.0})
    assert len(flushed) == 2
    log.add(record(9))
    assert len(flushed) == 3
    (events,) = (tmp_path / metrics.EVENTS).iterdir()
    assert events.read_bytes().count(b"steps/train_loss") == 10
    log.close()


def test_what_goes_to_the_log_already_is_not_written_twice(tmp_path):
    path = tmp_path / metrics.TOLD
    code = (
        "import sys; from pathlib import Path; from kvnmt.training import records; "
        "records.log_told(Path(sys.argv[1]), 'said')"
    )
    command = [sys.executable, "-c", code, tmp_path]
    with path.open("a") as file:
        subprocess.run(command, stderr=file, check=True)
    assert path.read_text() == ""
    subprocess.run(command, check=True)
    assert path.read_text().endswith("  said\n")
    metrics.log_told(tmp_path / "nowhere", "said")  # there is no run yet


def test_a_last_line_without_a_line_feed_counts(tmp_path):
    (tmp_path / metrics.NAME).write_text('{"step": 1}\n{"step": 2}')
    assert [record["step"] for record in metrics.read(tmp_path)] == [1, 2]
