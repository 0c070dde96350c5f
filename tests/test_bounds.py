# SPDX-License-Identifier: Apache-2.0
"""Bounds are written on fields: every number of a config has them, and they hold."""

import dataclasses
import math
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import pytest

from kvnmt import attention, decoder, target_context
from kvnmt.benchmark.config import AgainstConfig, BenchmarkConfig
from kvnmt.compiling.program import CompileConfig
from kvnmt.errors import (
    Bounds,
    OptionError,
    UserError,
    at_least,
    between,
    bounds_of,
    check_bounds,
)
from kvnmt.model.config import ModelConfig
from kvnmt.runs import train
from kvnmt.runs.config import Experiment
from kvnmt.systems.costs import OverviewConfig
from tests.helpers import quiet, replaced

AXES = {
    "attention": attention.CATALOGUE,
    "decoder": decoder.CATALOGUE,
    "target_context": target_context.CATALOGUE,
}
ANYTHING = {"model.attention.write_bias"}  # numbers that may be any


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
        if self.kind is float:
            yield math.nan
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


@pytest.mark.parametrize("name", BOUNDED)
def test_a_number_out_of_its_bounds_is_refused_by_its_name(name):
    number = BOUNDED[name]
    for value in number.outside():
        with pytest.raises(OptionError) as error:
            check_bounds(number.replaced(value))
        ours, theirs = str(error.value), error.value.by_flag
        assert ours.startswith(f"{number.path} is ")
        assert ours.endswith(f" but must be {number.bounds}.")
        assert theirs == ours.replace(number.path, number.flag, 1)
    for value in number.edges():
        check_bounds(number.replaced(value))


def test_training_refuses_what_is_out_of_bounds(tmp_path):
    """Before it looks for the text."""
    for path in ("model.embedding", "training.epochs", "search.beam", "data.workers"):
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

    check_bounds(Outer())
    check_bounds(Outer(Inner()))
    with pytest.raises(UserError, match="^inner.rate is 0.6 but must be at least 0 a"):
        check_bounds(Outer(Inner(rate=0.6)))
