# SPDX-License-Identifier: Apache-2.0
"""Configs survive JSON, are refused where they are none, and say what differs."""

import dataclasses
import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvnmt import attention, decoder, target_context
from kvnmt.errors import OptionError, UserError
from kvnmt.inference.config import SearchConfig, shape_of
from kvnmt.model.config import ModelConfig
from kvnmt.runs.config import (
    MAY_CHANGE,
    OF_BEAM,
    Experiment,
    check_kept,
    from_plain,
    to_plain,
    with_starts,
)
from kvnmt.runs.directory import load_experiment
from kvnmt.systems.named import SYSTEMS
from kvnmt.training.config import TrainingConfig
from kvnmt.training.validation import searching
from tests.helpers import replaced

AXES = {
    "attention": attention.CATALOGUE,
    "decoder": decoder.CATALOGUE,
    "target_context": target_context.CATALOGUE,
}


def through_json(exp: Experiment) -> Experiment:
    return from_plain(json.loads(json.dumps(to_plain(exp))))


def other_value(kind: Any, value: Any) -> Any:
    """Another value that a field of this type may have."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return next(choice for choice in arguments if choice != value)
    if origin in (types.UnionType, typing.Union):
        kind = next(one for one in arguments if one is not type(None))
        return other_value(kind, value) if value is None else None
    changes = {
        bool: lambda: not value,
        int: lambda: (value or 0) + 3,
        float: lambda: (value or 0.0) + 0.3,
        str: lambda: (value or "") + "é",
        Path: lambda: Path("some where") / "ü",
        tuple[str, str]: lambda: ("de", "ü"),
        tuple[str, ...]: lambda: (*value, "ü/*"),
    }
    return changes[kind]()


def variants(config: Any) -> Iterator[tuple[str, Any]]:
    """Every config that differs from this one in a single field."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            for name, changed in variants(value):
                path = f"{field.name}.{name}"
                yield path, dataclasses.replace(config, **{field.name: changed})
        else:
            changed = other_value(hints[field.name], value)
            yield field.name, dataclasses.replace(config, **{field.name: changed})


def every_start() -> Iterator[tuple[str, Experiment]]:
    for name, chosen in SYSTEMS.items():
        yield name, Experiment(model=chosen.model(), objective=chosen.objective())
    for axis, catalogue in AXES.items():
        for name, member in catalogue.items():
            model = ModelConfig(**{axis: member.Options()})
            yield f"{axis}-{name}", Experiment(model=model)


STARTS = dict(every_start())


@pytest.mark.parametrize("name", STARTS)
def test_every_option_of_every_system_survives_json(name):
    """Each once: of mechanisms their own, of the first system all."""
    start, seen = STARTS[name], set()
    assert through_json(start) == start
    first, (axis, _, member) = name == next(iter(STARTS)), name.partition("-")
    mechanism = AXES.get(axis, {}).get(member)
    for path, changed in variants(start) if first or mechanism else ():
        if not first and not path.startswith(f"model.{axis}."):
            continue
        assert changed != start, path
        assert through_json(changed) == changed, path
        seen.add(path)
    if first:
        assert {"model.dropout.output", "training.warm_start", "data.source"} <= seen
    if mechanism:
        assert bool(seen) == bool(dataclasses.fields(mechanism.Options))


def test_mechanisms_carry_their_name():
    plain = to_plain(STARTS["kvmematt-r3"])["model"]
    assert plain["attention"]["name"] == "kv_memory"
    assert plain["decoder"] == {
        "name": "conditional",
        "rounds": 3,
        "share_rounds": False,
        "transitions": 0,
        "initial": "mean",
        "reset": "after",
    }


def change(plain: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        plain = plain[parent]
    plain[last] = value


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        ("nothing", 1, "nothing"),
        ("model.embeding", 1, "embeding"),
        ("model.attention.valeus", "fixed", "valeus"),
        ("model.attention.name", "kv_memry", "kv_memory"),
        ("model.decoder.rounds", "two", "rounds"),
        ("model.merge", "product", "merge"),
        ("training.epochs", [], "epochs"),
        ("training.epochs", 2.7, "2.7 must be a whole number (int) @ $.training.ep"),
        ("search.alpha", True, "True must be a number (float) @ $.search.alpha"),
        ("training.bleu_tokenize", None, "None must be a text"),
        ("model.layer_norm", "false", "'false' must be True or False @ $.model.layer"),
        ("search", 3, "search"),
    ],
)
def test_a_config_that_is_none_is_told(tmp_path, path, value, part):
    plain = to_plain(STARTS["kvmematt-r2"])
    change(plain, path, value)
    (tmp_path / "config.json").write_text(json.dumps(plain))
    with pytest.raises(UserError) as error:
        load_experiment(tmp_path)
    assert f"{tmp_path}/config.json" in str(error.value)
    assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_all_that_a_run_keeps_is_told_in_a_sentence(tmp_path):
    attentions = attention.CATALOGUE
    saved = Experiment()
    asked = replaced(saved, "model.decoder.rounds", 2)
    asked = replaced(asked, "model.attention", attentions["kv_memory"].Options())
    asked = replaced(asked, "data.joint", True)
    asked = replaced(asked, "training.epochs", 30)
    with pytest.raises(OptionError) as error:
        check_kept(saved, asked, tmp_path)
    assert str(error.value) == (
        f"the run in '{tmp_path}' was made with model.attention.name additive, "
        "model.decoder.rounds 1, data.joint False and cannot go on with "
        "model.attention.name kv_memory, model.decoder.rounds 2, data.joint True; "
        "keep the former, or train in another folder."
    )
    assert error.value.by_flag == (
        f"the run in '{tmp_path}' was made with --attention additive, "
        "--model.decoder.rounds 1, --data.no-joint and cannot go on with --attention "
        "kv_memory, --model.decoder.rounds 2, --data.joint; leave the flags out, or "
        "train in another folder."
    )


def test_a_run_keeps_what_is_not_free(tmp_path):
    """Every field is either on the list or refused, one that is new too."""
    free = set()
    for path, changed in variants(Experiment()):
        try:
            check_kept(Experiment(), changed, tmp_path)
        except OptionError as error:
            assert path in str(error), path
            assert path.rpartition(".")[2].replace("_", "-") in error.by_flag, path
        else:
            free.add(path)
    assert {path for path in free if not path.startswith("objective.")} == {
        path for path in MAY_CHANGE if "." in path
    }
    assert "objective.atteos" in free
    # With these the best checkpoint would be chosen from scores that do not compare.
    assert free.isdisjoint({"training.metric", "training.bleu_tokenize"})
    assert free.isdisjoint({"training.batch_size", "optimizer.name", "data.faulty"})


def test_what_validation_searches_with_is_kept(tmp_path):
    """Or the scores of a run could not be compared any more."""
    fields = {f.name for f in dataclasses.fields(SearchConfig)}
    kept = fields - {path.removeprefix("search.") for path in MAY_CHANGE}
    usual = shape_of(searching(TrainingConfig()))
    for path, changed in variants(Experiment()):
        name = path.removeprefix("search.")
        if name in fields and path.startswith("search."):
            search = searching(TrainingConfig(), changed.search)
            assert shape_of(search) == usual or name in kept, name
    assert "min_length" in kept


@pytest.mark.parametrize("path", OF_BEAM)
def test_what_a_beam_of_validation_takes_is_kept(tmp_path, path):
    """Greedy search takes nothing of it, so that it may change."""
    other = {"search.normalization": "length", "search.alpha": 0.5}[path]
    for beam in (1, 4):
        run = replaced(Experiment(), "training.valid_beam", beam)
        if beam == 1:
            check_kept(run, replaced(run, path, other), tmp_path)
            continue
        with pytest.raises(OptionError, match=path):
            check_kept(run, replaced(run, path, other), tmp_path)


def test_what_a_run_began_from_may_have_moved(tmp_path):
    began = replaced(Experiment(), "training.warm_start", Path("runs/base"))
    moved = replaced(began, "training.warm_start", Path("/elsewhere/base"))
    check_kept(began, moved, tmp_path)
    assert with_starts(moved, began) == began
    with pytest.raises(OptionError, match="training.warm_start"):
        check_kept(began, Experiment(), tmp_path)
