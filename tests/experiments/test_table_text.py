# SPDX-License-Identifier: Apache-2.0
"""Text of a table: what was measured on other text is not taken for the same."""

import json

import pytest
from rich.console import Console

from experiments.harness.results import read_result
from experiments.harness.rows import OtherRow
from experiments.harness.table import Options, Table, make_table
from experiments.harness.texts import Text, prepare
from kvnmt.errors import UserError
from tests.experiments.fake import complete, never


def test_a_result_of_other_text_is_refused(rows, train):
    """Unless it does not say what it was measured on, as one of an older version."""
    first = complete(rows[:1], train)
    path = rows[0].experiment.data.valid_target
    text = path.read_text()
    path.write_text(text.replace(text.split()[0], "another", 1))
    with pytest.raises(UserError, match="first' was measured on other text"):
        complete(rows[:1], never)
    other = OtherRow(folder=rows[0].folder, system="x", work=dict, tests=(path,))
    with pytest.raises(UserError, match="first' was measured on other text"):
        complete([other], never)
    del first[0]["text"]
    (rows[0].folder / "result.json").write_text(json.dumps(first[0]))
    assert complete(rows[:1], never) == complete([other], never) == first


def test_text_that_changes_in_training_is_told(rows, train):
    """What was measured is of neither text."""
    path = rows[0].experiment.data.source
    text = path.read_text()

    def changing(experiment, folder, **others):
        result = train(experiment, folder, **others)
        path.write_text(text.replace(text.split()[0], "another", 1))
        return result

    with pytest.raises(UserError, match="text of 'first' changed while"):
        rows[0].make(changing, Console())
    assert read_result(rows[0].folder) is None
    path.write_text(text)
    with pytest.raises(UserError, match="'first': its text is another than when this"):
        complete(rows[:1], changing)  # which tries a second time, but not on that
    assert read_result(rows[0].folder) is None
    path.write_text(text)
    assert complete(rows[:1], train)


def test_text_that_was_half_written_is_none(tmp_path):
    def dies() -> None:
        raise KeyboardInterrupt

    written = []
    prepare(tmp_path, Text("a", lambda: written.append("a")))
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path, Text("b", dies))
    prepare(tmp_path, Text("a", lambda: written.append("a")))
    assert written == ["a", "a"]


def test_text_is_written_anew_only_while_nothing_was_measured_on_it(tmp_path):
    written = []

    def text(key: str) -> Text:
        return Text(key, lambda: written.append(key))

    for key in ("a", "b", "b"):
        prepare(tmp_path, text(key))
    assert written == ["a", "b"]
    (tmp_path / "claims" / "row").mkdir(parents=True)
    prepare(tmp_path, text("b"))
    with pytest.raises(UserError, match="runs on other text .* another --workdir"):
        prepare(tmp_path, text("c"))
    assert written == ["a", "b"]


def test_text_that_is_there_counts_where_what_it_is_made_of_is_away(rows, tmp_path):
    prepare(tmp_path, Text("a", lambda: None))
    (tmp_path / "claims" / "row").mkdir(parents=True)
    away = Text(None, pytest.fail)
    prepare(tmp_path, away)
    make_table(Options(workdir=tmp_path, list=True), Table("t", (), rows, texts=[away]))


@pytest.mark.parametrize("look", [{"list": True}, {"show": True}, {}])
def test_a_workdir_of_other_text_is_told_whatever_is_asked(rows, tmp_path, look):
    """And one that is a file."""
    made = Table("t", (), rows, texts=[Text("a", lambda: None)])
    prepare(tmp_path, Text("b", lambda: None))
    (tmp_path / "claims" / "row").mkdir(parents=True)
    with pytest.raises(UserError, match="runs on other text .* another --workdir"):
        make_table(Options(workdir=tmp_path, **look), made)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file' is no folder; choose another --work"):
        make_table(Options(workdir=tmp_path / "file", **look), made)
