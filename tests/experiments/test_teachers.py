# SPDX-License-Identifier: Apache-2.0
"""The text that teachers write: whose it is, when it is written, who awaits it."""

import json
import shutil
from dataclasses import replace

import pytest

from experiments import multi30k_best
from experiments.harness.preview import show_plans
from experiments.parts.distilled import distil
from kvnmt.data.text import read_parallel
from kvnmt.errors import UserError
from tests.experiments.fake import never, untrained, write_captions


def test_flags_of_the_table_change_teachers_and_students(options, quick):
    """And not the text that students read; other teachers are not taken for these."""
    write_captions(options.data)
    (options.data / "train.de").write_text(
        "\n" + (options.data / "train.de").read_text().partition("\n")[2]
    )
    seen = []

    def train(experiment, folder, **others):
        seen.append(experiment)
        return untrained(experiment, folder, **others)

    flags = "--data.min-count", "1", "--data.faulty", "skip", "--training.epochs", "6"
    alone = replace(options, distil=options.systems, config=flags)
    multi30k_best.main(alone, train=train)
    teacher, student = seen
    assert student.data.source == options.workdir / "distilled.source"
    assert student.data.vocabularies == student.training.warm_start
    assert (teacher.training.epochs, student.training.epochs) == (6, 3)
    assert student.optimizer.learning_rate == teacher.optimizer.learning_rate / 2
    lines = (options.workdir / "distilled.target").read_text().splitlines()
    assert len(lines) == 2 * 39
    mark = options.workdir / "distilled.key"
    mark.write_text(mark.read_text().partition(":")[0])  # as a former version did
    multi30k_best.main(alone, train=never)
    mark.write_text(f"{mark.read_text()}:another")
    other = replace(alone, config=(*flags, "--training.batch-size", "8"))
    with pytest.raises(UserError, match="another configuration|of other teachers"):
        multi30k_best.main(other, train=never)


def test_what_was_half_written_is_written_again(options, quick, capsys):
    """And a translation of blanks alone gives way to the reference."""
    write_captions(options.data)
    workdir = options.workdir
    alone = replace(options, distil=options.systems)
    multi30k_best.main(replace(alone, distil=None), train=untrained)
    for name in ("distilled.source", "distilled.target"):
        (workdir / name).write_text("a\n" * len(name))
    multi30k_best.main(alone, train=untrained)
    text = read_parallel(workdir / "distilled.source", workdir / "distilled.target")
    assert text.target[:40] == text.target[40:]
    # A student that was interrupted needs no more than what its teachers wrote.
    shutil.rmtree(workdir / "de-en-rnnsearch-star-1-distilled")
    (options.data / "train.de").unlink()
    multi30k_best.main(alone, train=untrained)
    assert (workdir / "de-en-rnnsearch-star-1-distilled" / "result.json").exists()
    options.data.rename(options.data.with_name("away"))
    multi30k_best.main(
        replace(alone, workdir=options.data.with_name("away") / "runs", show=True),
        train=never,
    )
    assert "cannot be used" not in capsys.readouterr().out


def test_text_that_others_write_is_awaited(options, capsys):
    write_captions(options.data)
    both = replace(options, seeds=(1, 2), distil=options.systems, list=True)
    multi30k_best.main(both, train=never)
    listed = capsys.readouterr().out
    assert listed.count("needs de-en-rnnsearch-star-1, de-en-rnnsearch-star-2 \n") == 2


def test_who_names_no_student_has_them_all(options):
    assert not options.students
    assert replace(options, distil=()).students == options.systems
    assert replace(options, distil=("one",)).students == ("one",)


def test_of_text_that_is_not_written_no_plan_is_made(options, capsys):
    row = multi30k_best.configure(options, "rnnsearch-star", "", 1, {})
    other = replace(row, folder=options.workdir / "other")
    show_plans([distil(row, (row, other))])
    (plan,) = json.loads(capsys.readouterr().out)
    assert plan["text written after"] == [row.folder.name, "other"]
    assert plan["config"]["training"]["warm_start"] == str(row.folder)
