# SPDX-License-Identifier: Apache-2.0
"""Kinds and bounds are written on fields, and they hold: every number has some."""

import dataclasses
import math
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest

from kvnmt import attention, decoder, target_context
from kvnmt.benchmark.config import AgainstConfig, BenchmarkConfig
from kvnmt.compiling.program import CompileConfig
from kvnmt.errors import OptionError, UserError
from kvnmt.fields import (
    Bounds,
    IdleWhile,
    at_least,
    between,
    bounds_of,
    check_fields,
    check_used,
    idle_while,
)
from kvnmt.model.config import ModelConfig
from kvnmt.runs import train
from kvnmt.runs.config import Experiment
from kvnmt.systems.costs import OverviewConfig
from kvnmt.systems.named import SYSTEMS
from tests.helpers import quiet, replaced

AXES = {
    "attention": attention.CATALOGUE,
    "decoder": decoder.CATALOGUE,
    "target_context": target_context.CATALOGUE,
}
ANYTHING = {"model.attention.write_bias"}  # numbers that may be any
# A stranger's config may hold them: arrays do not grow with these.
ENDLESS = ANYTHING | {
    "model.attention.max_fertility",
    "model.attention.tau",
    "model.target_context.tau",
    "model.decoder.noise",
}
# Beyond these a number would do something else, or nothing, far away from here.
WRITTEN = {
    "data.min_count": (1, None),
    "data.vocabulary_size": (3, None),
    "data.subwords": (3, None),
    "data.max_ratio": (1, None),
    "training.shapes": (1, 255),
    "training.patience": (1, None),
    "training.min_epochs": (0, None),
    "training.seed": (0, 2**32 - 1),
    "model.decoder.rounds": (1, 64),
    "model.target_context.parts": (1, 64),
    "model.dropout.output": (0, 0.99),
    "objective.label_smoothing": (0, 0.99),
    "search.beam": (1, 1000),
    "search.length_extra": (1, 100_000),
    "search.length_ratio": (0, 100),
}


class Number(NamedTuple):
    """A field that holds a number."""

    config: Any  # in which it is
    path: str
    kind: type
    bounds: Bounds | None

    @property
    def flag(self) -> str:
        return f"--{self.path.replace('_', '-')}"

    def outside(self) -> Iterator[float]:
        """Values that are refused, the nearest ones among them."""
        assert self.bounds is not None
        for edge, away in ((self.bounds.least, -1), (self.bounds.most, 1)):
            if edge is not None:
                yield edge + away
                if self.kind is float:
                    yield math.nextafter(edge, away * math.inf)

    def edges(self) -> Iterator[float]:
        """Values that are just allowed."""
        assert self.bounds is not None
        for edge in (self.bounds.least, self.bounds.most):
            if edge is not None:
                yield self.kind(edge)

    def replaced(self, value: float) -> Any:
        return replaced(self.config, self.path, value)


def numbers(config: Any, whole: Any = None, prefix: str = "") -> Iterator[Number]:
    """Every number of a config, by the types of its fields."""
    whole = config if whole is None else whole
    hints, bounds = typing.get_type_hints(type(config)), bounds_of(type(config))
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from numbers(value, whole, f"{path}.")
            continue
        hint = hints[field.name]
        union = typing.get_origin(hint) in (types.UnionType, typing.Union)
        for kind in typing.get_args(hint) if union else (hint,):
            if kind in (int, float):
                yield Number(whole, path, kind, bounds.get(field.name))


def every_number() -> dict[str, Number]:
    found = {}
    for axis, catalogue in AXES.items():
        for name, member in catalogue.items():
            config = Experiment(model=ModelConfig(**{axis: member.Options()}))
            for number in numbers(config):
                inside = number.path.startswith(f"model.{axis}.")
                found[f"{name}-{number.path}" if inside else number.path] = number
    for config in (
        BenchmarkConfig(),
        AgainstConfig(),
        CompileConfig(),
        OverviewConfig(),
    ):
        for number in numbers(config):
            found[f"{type(config).__name__}-{number.path}"] = number
    return found


NUMBERS = every_number()
BOUNDED = {name: number for name, number in NUMBERS.items() if number.bounds}


def test_every_number_has_bounds_or_may_be_anything():
    free = {number.path for number in NUMBERS.values() if not number.bounds}
    assert free == ANYTHING, sorted(free)


def test_what_sizes_arrays_has_an_end():
    endless = {
        number.path
        for number in NUMBERS.values()
        if number.path.startswith(("model.", "search."))
        and (number.bounds is None or number.bounds.most is None)
    }
    assert endless == ENDLESS


def test_bounds_are_what_others_rely_on():
    declared = {number.path: number.bounds for number in NUMBERS.values()}
    assert {path: declared[path] for path in WRITTEN} == {
        path: Bounds(*bounds) for path, bounds in WRITTEN.items()
    }


@pytest.mark.parametrize("name", BOUNDED)
def test_a_number_out_of_its_bounds_is_refused_by_its_name(name):
    number = BOUNDED[name]
    for value in number.outside():
        with pytest.raises(OptionError) as error:
            check_fields(number.replaced(value))
        ours, theirs = str(error.value), error.value.by_flag
        assert ours.startswith(f"{number.path} is ")
        assert ours.endswith(f" but must be {number.bounds}.")
        assert theirs == ours.replace(number.path, number.flag, 1)
    for value in number.edges():
        check_fields(number.replaced(value))


def test_training_refuses_what_is_out_of_bounds(tmp_path):
    """Before it looks for the text."""
    for path in (
        *("model.embedding", "training.epochs", "search.beam"),
        *("data.workers", "objective.atteos", "optimizer.warmup"),
    ):
        config = replaced(Experiment(), path, -1)
        with pytest.raises(UserError, match=f"^{path} is -1 but must be at least"):
            train.run(config, tmp_path / "run", console=quiet())


def test_what_is_not_a_number_or_not_set_passes():
    @dataclass(frozen=True)
    class Inner:
        size: Annotated[int | None, at_least(1)] = None
        rate: Annotated[float, between(0, 0.5)] = 0.5

    @dataclass(frozen=True)
    class Outer:
        inner: Inner | None = None
        name: str = "x"

    check_fields(Outer())
    check_fields(Outer(Inner()))
    with pytest.raises(UserError, match="^inner.rate is 0.6 but must be at least 0 a"):
        check_fields(Outer(Inner(rate=0.6)))


def test_every_config_holds_what_its_fields_say():
    for axis, catalogue in AXES.items():
        for member in catalogue.values():
            check_fields(Experiment(model=ModelConfig(**{axis: member.Options()})))
    for name in SYSTEMS:
        check_fields(SYSTEMS[name].model())


MISFITS = [
    ("search.normalization", "GNMT", "'GNMT' but must be one of gnmt, length, none"),
    ("model.initializer", "xavier", "'xavier' but must be one of gaussian,"),
    ("model.tie", True, "of type bool but must be one of none, output, all"),
    ("model.embedding", 9.0, "of type float but must be a whole number"),
    ("model.state", np.int64(8), "of type numpy.int64 but must be a whole number"),
    ("model.layers", True, "of type bool but must be a whole number"),
    ("model.alignment", "8", "'8' but must be a whole number (int) or None"),
    ("model.layer_norm", 1, "of type int but must be True or False"),
    ("model.dropout", 0.1, "of type float but must be a kvnmt.model.config.Dropout"),
    ("model.attention", "additive", "'additive' but must be a kvnmt.attention.base.O"),
    ("model.attention", attention.additive, "of type module but must be a kvnmt.att"),
    ("optimizer.learning_rate", np.float32(1e-3), "of type numpy.float32 but must be"),
    ("optimizer.learning_rate", math.inf, "inf but must be a finite number"),
    ("model.dropout.word", math.nan, "nan but must be a finite number"),
    ("search.beam", None, "of type NoneType but must be a whole number"),
    ("data.languages", ["de", "en"], "of type list but must be a"),
    ("training.warm_start", 3, "of type int but must be a path or None"),
    ("training", {"epochs": 1}, "of type dict but must be a kvnmt.training.config.Tr"),
]


@pytest.mark.parametrize(("path", "value", "told"), MISFITS)
def test_a_value_of_another_kind_is_refused_by_its_name(path, value, told):
    with pytest.raises(UserError, match=f"^{re.escape(f'{path} is {told}')}"):
        check_fields(replaced(Experiment(), path, value))


def test_other_kinds_that_mean_the_same_pass():
    for path, value in (
        ("optimizer.learning_rate", 1),
        ("optimizer.learning_rate", np.float64(1e-3)),
        ("training.warm_start", "runs/base"),
    ):
        check_fields(replaced(Experiment(), path, value))


@dataclass(frozen=True)
class Inner:
    gate: str = "a"
    tau: Annotated[float, at_least(1), idle_while(gate=("b", "c"))] = 8.0


@dataclass(frozen=True)
class Other:
    gate: str = "b"


@dataclass(frozen=True)
class Both:
    cut: Annotated[float, idle_while(ways=1)] = 0.0
    ways: Annotated[int, idle_while(cut=0)] = 1


@dataclass(frozen=True)
class Outer:
    start: str | None = None
    new: Annotated[bool, idle_while(start=None)] = False
    inner: Inner | Other = Inner()


@pytest.mark.parametrize(
    ("config", "starts", "told"),
    [
        (
            Outer(new=True),
            [Outer()],
            "new does nothing while start is not given; give start",
        ),
        (Outer(inner=Inner("b", 3)), [Outer()], "inner.tau .* inner.gate is b"),
        (Outer(inner=Inner("c", 3)), [Outer(inner=Other())], "inner.gate is c"),
        (Outer(inner=Inner("c", 8)), [Outer(inner=Inner("c", 3))], "inner.gate is c"),
        (Outer("run", new=True), [Outer()], None),
        (Outer(new=True), [Outer(new=True)], None),  # as it was before
        (Outer(inner=Inner("b", 3)), [Outer(), Outer(inner=Inner("a", 3))], None),
        (Outer(inner=Inner("b")), [Outer(inner=Other())], None),  # a default
        (Both(0.1), [Both()], "cut does nothing while ways is 1"),
        (Both(0.1), [Both(0.2, 4)], "cut does nothing while ways is 1"),
        (Both(ways=2), [Both(0.2, 4)], "ways does nothing while cut is 0"),
        (Both(), [Both(0.2, 4)], None),  # both turned off
    ],
)
def test_what_does_nothing_beside_another_field_is_refused(config, starts, told):
    if told is None:
        check_used(config, *starts)
        return
    with pytest.raises(OptionError, match=told) as error:
        check_used(config, *starts)
    assert error.value.by_flag.startswith("--")


def test_every_field_that_may_do_nothing_names_one_beside_it():
    """And a value that this may have, so that no such annotation is for nothing."""
    members = [member for axis in AXES.values() for _, member in axis.items()]
    configs = [Experiment(), *(member.Options() for member in members)]
    inner = [value for config in configs for value in vars(config).values()]
    marked = [
        (config, mark)
        for config in (*configs, *filter(dataclasses.is_dataclass, inner))
        for hint in typing.get_type_hints(type(config), include_extras=True).values()
        for mark in getattr(hint, "__metadata__", ())
        if isinstance(mark, IdleWhile)
    ]
    assert len(marked) > 8
    for config, mark in marked:
        for value in mark.values:
            check_fields(dataclasses.replace(config, **{mark.other: value}))
