# SPDX-License-Identifier: Apache-2.0
"""Flags start from the run that is named in its place, whatever other flags name."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kvnmt.attention import additive, kv_memory
from kvnmt.cli.defaults import parse
from kvnmt.cli.main import load
from kvnmt.data.config import DataConfig
from kvnmt.decoder import conditional
from kvnmt.errors import UserError
from kvnmt.inference.program import SearchConfig
from kvnmt.runs.config import Experiment, to_plain
from kvnmt.runs.directory import load_experiment
from kvnmt.runs.recipes import RECIPES
from kvnmt.systems.named import SYSTEMS, system
from tests.cli.starts import MINE, read, saved

SEARCHES = [
    ("translate", "MINE"),
    ("translate", "MINE/"),
    ("translate", "CHECKPOINT --ensemble OTHER"),
    ("evaluate", "CHECKPOINT OTHER --reference FILE"),
    ("translate", "MINE --ensemble OTHER THIRD"),
    ("translate", "--ensemble OTHER THIRD --search.alpha 2 MINE"),
    ("translate", "--ensemble=OTHER --search.alpha=2 MINE"),
    ("translate", "--prefix OTHER MINE"),
    pytest.param("translate", f"--prefix {'x' * 300} MINE", id="no file's name"),
    ("evaluate", "--reverse OTHER MINE --reference FILE"),
    ("evaluate", "--reverse=OTHER --reference FILE MINE"),
    ("evaluate", "--reverse OTHER FILE MINE THIRD --reference FILE"),
    ("evaluate", "--ensemble OTHER THIRD --reference FILE MINE"),
    ("evaluate", "MINE --reference FILE --ensemble OTHER THIRD"),
    ("explore", "--reference OTHER MINE THIRD --source FILE"),
    ("explore", "--output OTHER --source=THIRD MINE"),
]


@pytest.mark.parametrize(("command", "line"), SEARCHES)
def test_a_search_starts_from_the_first_run(places, command, line):
    assert read(command, line, places).search.beam == MINE
    changed = read(command, f"{line} --search.beam 9", places)
    assert changed.search.beam == 9


def test_without_a_run_a_search_starts_from_the_defaults(places):
    found = read("evaluate", "--reverse OTHER FILE --reference FILE", places)
    assert found.search == SearchConfig()


@pytest.mark.parametrize(
    ("command", "line"),
    [("translate", "MINE --help"), ("evaluate", "MINE -h"), ("explore", "--help MINE")],
)
def test_help_tells_the_search_of_the_run(places, command, line, capsys):
    """Though flags that the command needs are not there."""
    with pytest.raises(SystemExit):
        read(command, line, places)
    beam = capsys.readouterr().out.partition("--search.beam")[2].partition("--")[0]
    assert f"(default: {MINE})" in beam


RESUMED = [
    "MINE --resume",
    "--resume --data.vocabularies OTHER MINE",
    "--resume --data.vocabularies=OTHER MINE",
    "--training.warm-start OTHER MINE --resume",
    "--training.warm_start OTHER MINE --resume",
    "--data.cache OTHER --data.source THIRD --resume MINE",
    "--resume --training.warm-start OTHER --data.vocabularies THIRD MINE",
]


@pytest.mark.parametrize("line", RESUMED)
def test_resumed_training_starts_from_its_run(places, line):
    found = read("train", line, places)
    assert found.experiment.search.beam == MINE
    assert found.experiment.model == system("mematt").model()
    assert found.run == places["MINE"]


def test_flags_of_the_mechanisms_of_a_run_are_known(places):
    line = "--resume --model.attention.values fixed --data.vocabularies OTHER MINE"
    found = read("train", line, places)
    assert found.experiment.model.attention == kv_memory.Options(values="fixed")


def test_only_resumed_training_starts_from_a_run(places):
    found = read("train", "MINE --training.warm-start OTHER", places).experiment
    modern = RECIPES["modern"]
    assert (found.model, found.search) == (modern.model, modern.search)


def test_a_recipe_is_what_all_other_flags_start_from(places):
    line = "MINE --recipe papers --system mematt --search.beam 9"
    found = read("train", line, places).experiment
    assert found.model == system("mematt").model()
    assert dataclasses.replace(found.search, beam=10) == SearchConfig()
    again = read("train", f"{line} --resume", places).experiment  # keeps its own
    assert again == dataclasses.replace(found, search=SearchConfig(beam=9))
    data = read("prepare", "--recipe papers --data.min-count 3", places).data
    assert data == DataConfig(min_count=3)
    assert read("prepare", "", places).data == RECIPES["modern"].data


def test_two_options_that_need_each_other_may_both_be_turned_off(places, tmp_path):
    mine = load_experiment(places["MINE"])
    data = dataclasses.replace(mine.data, subword_dropout=0.1, segmentations=4)
    path = saved(tmp_path / "cut", MINE) / "config.json"
    path.write_text(json.dumps(to_plain(dataclasses.replace(mine, data=data))))
    off = "--data.subword-dropout 0 --data.segmentations 1"
    line = f"NEW --like {path.parent} {off}"
    assert read("train", line, places).experiment == mine


def test_another_run_is_what_all_other_flags_start_from(places):
    mine = load_experiment(places["MINE"])
    assert read("train", "NEW --like MINE", places).experiment == mine
    changed = read("train", "NEW --like MINE --search.beam 9", places).experiment
    assert changed == dataclasses.replace(mine, search=SearchConfig(beam=9))
    line = "NEW --like MINE --decoder conditional --model.decoder.rounds 2"
    model = read("train", line, places).experiment.model
    assert model == dataclasses.replace(mine.model, decoder=conditional.Options(2))
    named = read("train", "NEW --like MINE --system kvmematt-r2-atteos", places)
    assert named.experiment.model == system("kvmematt-r2").model()
    assert (named.experiment.objective.atteos, named.experiment.search.beam) == (1, 7)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("NEW --like FILE", "is no run directory"),
        ("NEW --like MINE --recipe papers", "--like and --recipe both say what"),
    ],
)
def test_another_run_must_be_one_and_the_only_start(places, line, sentence):
    with pytest.raises(UserError, match=sentence):
        read("train", line, places)


def test_a_run_that_goes_on_starts_from_itself(places):
    """Whatever it was like: a queue repeats the whole command."""
    alone = read("train", "OTHER --resume", places)
    again = read("train", "OTHER --resume --like MINE", places)
    assert again.experiment == alone.experiment
    gone = read("train", "OTHER --resume --like FILE", places)  # no run any more
    assert gone.experiment == alone.experiment
    read("train", "OTHER --resume --like FILE --system rnnsearch-star", places)
    assert read("train", "NEW --resume --like MINE", places).experiment == (
        read("train", "NEW --like MINE", places).experiment
    )


def deepened(folder: Path, **model: Any) -> None:
    """Changes the model of a run in its config."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["model"] |= model
    path.write_text(json.dumps(config))


def test_a_run_that_goes_on_with_the_losses_of_a_system_keeps_its_layers(places):
    deepened(places["OTHER"], layers=3)
    typed = read("train", "OTHER --resume --system rnnsearch-star-atteos", places)
    assert typed.experiment.model.layers == 3
    assert typed.experiment.objective.atteos == 1
    other = "train", "OTHER --resume --system memdec", places
    assert type(read(*other).experiment.model.decoder).__module__.endswith("mem_dec")
    plain = read("train", "MINE --resume --system rnnsearch-star", places)
    assert plain.experiment.model.attention == additive.Options()  # which is refused


def test_what_another_system_has_otherwise_than_a_run_is_told(places, capsys):
    deepened(places["MINE"], layers=3)
    read("train", "NEW --like MINE --system kvmematt-r2", places)
    told = capsys.readouterr().err
    assert "--model.layers is 1, as --system kvmematt-r2 has it, and was 3 in" in told
    for kept in (3, 2):
        line = f"NEW --like MINE --system kvmematt-r2 --model.layers {kept}"
        assert read("train", line, places).experiment.model.layers == kept
        assert "note" not in capsys.readouterr().err


def test_what_a_run_had_otherwise_at_first_is_told(places, capsys):
    """Where another is made like it; lines that say nothing are passed over."""
    changes = {"optimizer.learning_rate": [0.1, 0.2], "\x1b": [1, 2]}
    starts = [{"step": 0, "changes": {"training.epochs": [1, 2]}}]
    lines = [json.dumps(one) for one in (*starts, {"step": 5, "changes": changes}, [])]
    path = places["MINE"] / "starts.jsonl"
    path.write_text("\n".join([*lines, '{"step": 6, "changes": 1}', "{"]))
    read("train", "NEW --like CHECKPOINT", places)
    told = capsys.readouterr().err
    said = f"'{places['MINE']}' trained with other values of --optimizer.learning-rate "
    assert told.startswith(f"note: {said}at first, see '{path}'")
    read("train", "MINE --resume --like MINE", places)
    read("train", "NEW --like OTHER", places)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("name", ["adam", "adadelta"])
def test_the_rate_of_a_recipe_is_that_of_its_optimizer(places, name):
    rate = RECIPES["modern"].optimizer.learning_rate
    chosen = read("train", f"NEW --optimizer.name {name}", places).experiment.optimizer
    assert chosen.learning_rate == (rate if name == "adam" else None)
    line = f"NEW --optimizer.name {name} --optimizer.learning-rate 0.5"
    chosen = read("train", line, places).experiment.optimizer
    assert (chosen.name, chosen.learning_rate) == (name, 0.5)


def test_a_system_named_counts_for_a_run_too(places):
    """And what is not named stays: the attention beside another decoder."""
    found = read("train", "MINE --resume --attention additive", places)
    assert found.experiment.model.attention == additive.Options()
    assert found.experiment.search.beam == MINE
    line = "MINE --resume --decoder conditional --model.decoder.rounds 2"
    mine = load_experiment(places["MINE"]).model
    two = dataclasses.replace(mine, decoder=conditional.Options(2))
    assert read("train", line, places).experiment.model == two


def test_a_system_named_again_keeps_the_weights_of_a_run(places):
    """Not of another run, which it starts anew."""
    config = places["OTHER"] / "config.json"
    experiment = load_experiment(places["OTHER"])
    objective = dataclasses.replace(experiment.objective, atteos=0.5)
    experiment = dataclasses.replace(experiment, objective=objective)
    config.write_text(json.dumps(to_plain(experiment)))
    again = read("train", "--resume --system rnnsearch-star-atteos OTHER", places)
    assert again.experiment.objective.atteos == 0.5
    other = read("train", "--resume --system rnnsearch-star OTHER", places)
    assert other.experiment.objective.atteos == 0.5
    like = read("train", "--like OTHER --system rnnsearch-star-atteos new", places)
    assert like.experiment.objective.atteos == 1.0


def test_a_run_gets_the_terms_of_a_system_that_it_has_not(places):
    again = read("train", "--resume --system rnnsearch-star-atteos OTHER", places)
    assert again.experiment.objective.atteos == 1.0


def test_another_optimizer_takes_nothing_of_the_one_before(places):
    config = places["OTHER"] / "config.json"
    experiment = load_experiment(places["OTHER"])
    optimizer = dataclasses.replace(experiment.optimizer, beta2=0.98, clip=5.0)
    experiment = dataclasses.replace(experiment, optimizer=optimizer)
    config.write_text(json.dumps(to_plain(experiment)))
    line = "--like OTHER --optimizer.name sgd new"
    chosen = read("train", line, places).experiment.optimizer
    assert (chosen.name, chosen.beta2, chosen.clip) == ("sgd", 0.999, 5.0)


def test_a_language_model_leaves_nothing_to_a_translator(places, tmp_path):
    places["LM"] = saved(tmp_path / "lm", 1, "lm-lstm")
    typed = read("train", "--like LM --system rnnsearch-star new", places)
    assert typed.experiment.model == system("rnnsearch-star").model()


def test_sizes_of_a_program_are_kept():
    base = dataclasses.replace(Experiment(), search=SearchConfig(beam=5))
    arguments = ["new", "--system=kvmematt-r1-atteos"]
    found = parse(load("train"), arguments, prog="kvnmt train", runs="run", base=base)
    assert found.experiment.search.beam == 5
    assert found.experiment.objective.atteos == 1.0


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_takes_nothing_that_is_another_s_own(name):
    plain = system("rnnsearch-star").model()
    assert system("rnnsearch-star").model(system(name).model()) == plain
