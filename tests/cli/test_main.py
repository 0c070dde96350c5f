# SPDX-License-Identifier: Apache-2.0
"""The command: what people type, mistakes above all."""

import json
import shlex
import shutil
import sys

import pytest

from kvnmt import __version__
from kvnmt.attention import additive, kv_memory
from kvnmt.cli.main import COMMANDS, load
from kvnmt.cli.train import summary
from kvnmt.console import print_json
from kvnmt.decoder import conditional
from kvnmt.runs import config
from kvnmt.runs import train as experiment
from kvnmt.runs.directory import load_experiment
from kvnmt.training.loop import Result
from tests.cli.commands import check_sentence, filled, flags
from tests.helpers import Said, records, tiny, toy_data


@pytest.fixture
def captured(monkeypatch) -> list[config.Experiment]:
    """Experiments that would have been run."""
    found = []

    def pretend(exp, folder, *, resume, verbose):
        found.append(exp)
        figures = dict.fromkeys(Result._fields, 1) | {"best": {"valid_loss": 1.0}}
        return Result(**figures)

    monkeypatch.setattr(experiment, "run", pretend)
    return found


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "train"),
        (["train"], "run directory to write"),
        (["evaluate", "RUN"], "--reference"),
        (["train", "NEW", "--training.epcohs", "3"], "--training.epochs"),
        (["train", "NEW", "--training.epochs", "three"], "--training.epochs"),
        (["train", "NEW", "--optimizer.name", "adagrad"], "adadelta"),
        (["train", "NEW", "--model.attention.values", "fixed"], "Unrecognized"),
        (["translate", "RUN", "--beam", "3"], "--search.beam"),
        (["benchmark", "--repaets", "3"], "--repeats"),
    ],
)
def test_flags_that_do_not_exist_are_told_with_the_nearest(
    kvnmt, tmp_path, folder, arguments, part
):
    said = kvnmt(*filled(arguments, RUN=folder, NEW=tmp_path / "new"))
    assert (said.status, said.out) == (2, b"")
    assert part in said.err
    assert "Traceback" not in said.err
    assert not (tmp_path / "new").exists()


def test_help_names_every_command(kvnmt):
    said = kvnmt("--help")
    assert said.status == 0
    for name in COMMANDS:
        assert f"\n  {name} ".encode() in said.out
    assert max(map(len, said.out.decode().splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_summed_up_by_its_first_line(name):
    assert COMMANDS[name].summary == load(name).__doc__.splitlines()[0]


def test_the_version_is_told(kvnmt):
    assert kvnmt("--version") == Said(0, f"kvnmt {__version__}\n".encode(), "")


@pytest.mark.parametrize("first", [True, False])
def test_the_program_cache_is_a_flag_of_every_command(kvnmt, first):
    flag = ["--program-cache", "none"]
    arguments = [*flag, "validate"] if first else ["validate", *flag]
    assert kvnmt(*arguments, "--help").status == 0
    check_sentence(kvnmt("validate", flag[0]), "--program-cache")


def test_an_existing_folder_is_refused(kvnmt, tmp_path, folder):
    said = kvnmt("train", folder, *flags(tmp_path / "data"))
    check_sentence(said, f"'{folder}' exists already", "--resume")


def test_a_system_sets_the_defaults_of_its_flags(kvnmt, captured):
    assert kvnmt("train", "new", "--system", "kvmematt-r2-atteos").status == 0
    kvnmt("train", "new", "--system=mematt", "--objective.atteos", "0.5")
    kvnmt("train", "--model.state", "8", "new", "--attention", "kv_memory")
    two, rewritten, mixed = captured
    assert two.model.attention == kv_memory.Options()
    assert two.model.decoder == conditional.Options(rounds=2)
    assert two.objective.atteos == 1.0
    assert rewritten.model.attention == kv_memory.Options(values="rewritten")
    assert rewritten.objective.atteos == 0.5
    assert mixed.model.attention == kv_memory.Options()
    assert mixed.model.decoder == conditional.Options()
    assert mixed.model.state == 8


def test_a_system_can_be_changed_flag_by_flag(kvnmt, captured):
    changes = "--model.attention.values rewritten --model.decoder.share-rounds"
    kvnmt("train", "new", "--system", "kvmematt-r3", *changes.split())
    once = "--attention additive --model.decoder.rounds 1"
    kvnmt("train", "new", "--system", "kvmematt-r2", *once.split())
    shared, plain = (exp.model for exp in captured)
    assert shared.attention == kv_memory.Options(values="rewritten")
    assert shared.decoder == conditional.Options(rounds=3, share_rounds=True)
    assert plain.attention == additive.Options()
    assert plain.decoder == conditional.Options()


def test_training_can_be_taken_up_again(kvnmt, tmp_path):
    """Then every flag has the value of the run; before, some stand in a file."""
    folder, file = tmp_path / "new", tmp_path / "mine.flags"
    file.write_text(shlex.join(map(str, flags(tmp_path / "data"))))
    said = kvnmt("train", folder, "--training.epochs", "1", f"@{file}")
    assert said.status == 0 and said.out == b""
    assert "best checkpoint: step 4" in said.err
    assert f"kvnmt translate {folder} < source > target" in said.err
    assert load_experiment(folder) == tiny(toy_data(tmp_path / "data"), epochs=1)
    again = kvnmt("train", "--training.epochs", "2", folder, "--resume")
    assert again.status == 0
    assert "resuming after step 4" in again.err
    assert [record["step"] for record in records(folder)] == [4, 8]
    assert load_experiment(folder) == tiny(toy_data(tmp_path / "data"), epochs=2)


@pytest.mark.parametrize(
    "change, flag",
    [
        (["--system", "mematt"], "--attention kv_memory"),
        (["--attention=kv_memory"], "--attention kv_memory"),
        (["--model.state=9"], "--model.state 9"),
        (
            ["--data.vocabularies", "nowhere"],
            "cannot go on with --data.vocabularies nowhere",
        ),
        (
            ["--training.warm-start", "nowhere"],
            "cannot go on with --training.warm-start nowhere",
        ),
        (
            ["--training.source-vectors", "nowhere"],
            "cannot go on with --training.source-vectors nowhere",
        ),
    ],
)
def test_a_run_cannot_become_another_one(kvnmt, tmp_path, folder, change, flag):
    copy = shutil.copytree(folder, tmp_path / "run")
    check_sentence(kvnmt("train", copy, "--resume", *change), flag, str(copy))
    assert load_experiment(copy) == load_experiment(folder)


def test_what_a_run_began_from_may_have_moved(kvnmt, tmp_path, folder):
    """As on another machine of a training of several processes."""
    copy = shutil.copytree(folder, tmp_path / "run")
    config = json.loads((copy / "config.json").read_text())
    config["training"]["warm_start"] = "/there/base"
    (copy / "config.json").write_text(json.dumps(config))
    moved = "--training.warm-start", "/here/base"
    assert kvnmt("train", copy, "--resume", *moved).status == 0
    assert str(load_experiment(copy).training.warm_start) == "/there/base"


def test_an_early_stop_tells_what_goes_on():
    figures = dict.fromkeys(Result._fields, 1) | {"best": {"valid_loss": 1.0}}
    assert "--training.patience" in summary(Result(**figures))
    assert "early" not in summary(Result(**figures | {"stopped_early": False}))
    assert "validation text; 1 target tokens/s, 1.0 minutes" in summary(
        Result(**figures)
    )
    assert "validation text; 1.0 minutes" in summary(
        Result(**figures | {"tokens_per_second": 0.0})
    )
    assert "no validation that gave a number" in summary(
        Result(**figures | {"best": {}})
    )


def test_json_is_utf8_as_it_is(capfdbinary):
    print_json({"a": "\u00e9\u2028"})
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == '{"a": "\u00e9\u2028"}\n'.encode()
