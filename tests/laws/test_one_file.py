# SPDX-License-Identifier: Apache-2.0
"""A new mechanism is one new file and one line: nothing else knows about it.

What commands know of it is tried in `test_one_file_typed.py`.
"""

import dataclasses
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import attention, target_context
from kvnmt.attention import none
from kvnmt.data.batches import pad
from kvnmt.errors import UserError
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.translate import translate
from kvnmt.model import assembly
from kvnmt.model.choices import check_choices
from kvnmt.model.config import ModelConfig
from kvnmt.runs.checks import check_step
from kvnmt.runs.config import Experiment
from kvnmt.runs.warm_start import warm_start
from kvnmt.systems.named import system
from kvnmt.target_context import previous_word
from kvnmt.training.losses import Objective, loss
from kvnmt.trees import by_name
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET

ATTENTION = '''
"""Additive attention whose softmax is made sharper or flatter by a trained number."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import jax.numpy as jnp
from flax import struct

from kvnmt.attention import base
from kvnmt.attention.address import (
    Address,
    address,
    init_address,
    prepare,
    read_values,
)
from kvnmt.fields import at_least


@dataclass(frozen=True)
class Options(base.Options):
    """How sharp it starts."""

    sharpness: Annotated[float, at_least(0.5)] = 1.0


@struct.dataclass
class Params:
    """One round; the address as a warm start wants it named."""

    address: Address
    sharpness: jnp.ndarray


def init(options, key, sizes, weights):
    """Makes the address, and how sharp it is."""
    theta = init_address(key, sizes.state, sizes.annotation, sizes.alignment, weights)
    return Params(theta, jnp.full(1, options.sharpness, jnp.float32))


def read(params, source, state, moment):
    """Addresses with ``sharpness * e_j``."""
    sharp = params.address.replace(v_energy=params.address.v_energy * params.sharpness)
    alignment = address(sharp, moment.query, source.projected_keys, source.mask)
    return base.Attended(read_values(alignment, source.annotations), alignment)


def build(options):
    """Under the contract."""
    return base.Attention(init=partial(init, options), prepare=prepare, read=read)
'''

DECODER = '''
"""The conditional decoder, whose state forgets a little with every word."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from kvnmt.fields import between
from kvnmt.decoder import conditional


@dataclass(frozen=True)
class Options(conditional.Options):
    """How much of the state stays."""

    kept: Annotated[float, between(0, 1)] = 0.9


def step(options, decoder, params, source, state, inputs):
    """The conditional step from a smaller state."""
    state = replace(state, state=options.kept * state.state)
    return decoder.step(params, source, state, inputs)


def build(options, attention):
    """Under the contract."""
    decoder = conditional.build(options, attention)
    return decoder._replace(step=partial(step, options, decoder))
'''

TARGET_CONTEXT = '''
"""The readout sees a slowly fading sum of the words so far."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp

from kvnmt.fields import between
from kvnmt.target_context import base


@dataclass(frozen=True)
class Options(base.Options):
    """How much of the sum stays."""

    fading: Annotated[float, between(0, 1)] = 0.5


def over_time(options, params, states, embedded):
    """All steps at once."""
    start = jnp.zeros_like(embedded[:, 0])

    def run(total, word):
        total = options.fading * total + word
        return total, total

    _, sums = jax.lax.scan(run, start, jnp.swapaxes(embedded, 0, 1))
    return {"state": states, "word": jnp.swapaxes(sums, 0, 1)}


def initial_state(params, sizes, rows, length, dtype):
    """Nothing was read."""
    return jnp.zeros((rows, sizes.embedding), dtype)


def step(options, params, memory, state, embedded):
    """One step."""
    total = options.fading * memory + embedded
    return total, {"state": state, "word": total}


def build(options):
    """Under the contract."""
    return base.TargetContext(
        widths=base.state_and_word,
        over_time=partial(over_time, options),
        step=partial(step, options),
        initial_state=initial_state,
    )
'''


class Newcomer(NamedTuple):
    """A new file: its text, its option, and what the option may not be."""

    text: str
    option: str
    wrong: float
    said: str


NEWCOMERS = {
    "attention": Newcomer(ATTENTION, "sharpness", 0.1, "is 0.1 but .* at least 0.5"),
    "decoder": Newcomer(DECODER, "kept", 1.5, "is 1.5 but .* 0 and at most 1"),
    "target_context": Newcomer(TARGET_CONTEXT, "fading", -1.0, "is -1 but .* least 0"),
}
NAME = "newcomer"


def load(path: Path) -> ModuleType:
    """A module from a file, as an import of it would give."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def listed(field: str, folder: Path) -> Iterator[None]:
    """One file is written and listed with one line."""
    path = folder / f"{NAME}_{field}.py"
    path.write_text(NEWCOMERS[field].text)
    catalogue = cases.CATALOGUES[field]
    catalogue.add(NAME, load(path))
    try:
        yield
    finally:
        catalogue.remove(NAME)
        del sys.modules[path.stem]


@pytest.fixture(scope="module", params=NEWCOMERS, name="field")
def _field(request, tmp_path_factory) -> Iterator[str]:
    with listed(request.param, tmp_path_factory.mktemp("mechanism")):
        yield request.param


def config_of(field: str, **options: Any) -> ModelConfig:
    chosen = cases.CATALOGUES[field][NAME].Options(**options)
    return dataclasses.replace(cases.BASE, **{field: chosen})


@dataclasses.dataclass(frozen=True)
class Clashing(target_context.Options):
    """Of a target context that gives what the attention gives."""


@contextmanager
def changed(**functions: Any) -> Iterator[ModelConfig]:
    """A model whose target context is the previous word, but for some functions."""
    context = previous_word.build(previous_word.Options())._replace(**functions)
    module = SimpleNamespace(Options=Clashing, build=lambda options: context)
    target_context.CATALOGUE.add("clashing", module)
    try:
        yield dataclasses.replace(cases.BASE, target_context=Clashing())
    finally:
        target_context.CATALOGUE.remove("clashing")


@dataclasses.dataclass(frozen=True)
class Sourceless(attention.Options):
    """Of an attention that a language model may have."""


def test_an_attention_may_need_no_source():
    nothing = none.build(none.Options(projection=False))
    module = SimpleNamespace(Options=Sourceless, build=lambda options: nothing)
    attention.CATALOGUE.add("sourceless", module)
    try:
        config = system("lm-lstm").model(cases.BASE)
        config = dataclasses.replace(config, attention=Sourceless())
        check_choices(config)
        cases.build(config)
    finally:
        attention.CATALOGUE.remove("sourceless")


def test_no_name_of_the_readout_is_given_twice():
    widths = {"state": 5, "context": 3}
    said = "both give the readout 'context'; name one"
    with (
        changed(widths=lambda sizes: widths) as config,
        pytest.raises(UserError, match=said),
    ):
        assembly.build(config, 7, 9).init(jax.random.key(0))


def test_parameters_of_functions_may_have_any_name():
    with changed(initial_state=lambda mine, s, batch, most, kind: ()) as config:
        check_step(Experiment(model=config), begins=True)


def test_what_fails_only_in_a_search_fails_before_training():
    def step(params: Any, memory: Any, state: Any, embedded: Any) -> Any:
        raise TypeError("only in a search")

    with (
        changed(step=step) as config,
        pytest.raises(TypeError, match="only in a search"),
    ):
        check_step(Experiment(model=config), begins=True)


def test_it_predicts_and_learns(field):
    config = config_of(field)
    model, params = cases.build(config), cases.params(config)
    source, target = jnp.asarray(SOURCE), jnp.asarray(TARGET)

    @jax.jit
    def step(params: assembly.Params) -> tuple[jax.Array, assembly.Params]:
        def mean(params: assembly.Params) -> jax.Array:
            sums = loss(
                Objective(), model.forward(params, source, target), source, target
            )
            return sums.total / sums.tokens

        value, gradient = jax.value_and_grad(mean)(params)
        return value, jax.tree.map(lambda p, g: p - 0.05 * g, params, gradient)

    before, params = step(params)
    after, _ = step(params)
    assert np.isfinite(before) and after < before


def test_it_translates(field):
    config = config_of(field)
    model, params = cases.build(config), cases.params(config)
    sources = [[int(i) for i in row if i > 0] for row in SOURCE[:2]]
    search = SearchConfig(beam=3, length_ratio=0.0, length_extra=4)
    found = translate(model, params, sources, search)
    target = pad([[*translation.ids, 0][:4] for translation in found], 2, 4)
    logits = jax.jit(model.forward)(params, SOURCE[:2], target).logits
    gains = np.asarray(jax.nn.log_softmax(logits))
    for row, (ids, translation) in enumerate(zip(target, found, strict=True)):
        total = sum(gains[row, t, word] for t, word in enumerate(ids) if word >= 0)
        assert translation.log_prob == pytest.approx(total, abs=1e-4)


def test_a_baseline_starts_it(field):
    trained = cases.params(cases.BASE)
    config = config_of(field)
    started = warm_start(cases.build(config).init(jax.random.key(0)), trained)
    assert by_name(trained).keys() == set(started.copied)
    fresh = {"attention": ["decoder/rounds/0/attention/sharpness"]}.get(field, [])
    assert started.fresh == fresh


def test_its_option_has_bounds(field):
    newcomer = NEWCOMERS[field]
    options = {newcomer.option: newcomer.wrong}
    path = f"{field}.{newcomer.option}"
    with pytest.raises(UserError, match=f"{path} {newcomer.said}"):
        cases.build(config_of(field, **options))


def test_a_name_is_given_once(field):
    catalogue = cases.CATALOGUES[field]
    with pytest.raises(ValueError, match=f"'{NAME}' is there already"):
        catalogue.add(NAME, catalogue[NAME])
    with pytest.raises(ValueError, match="has the same options"):
        catalogue.add("again", catalogue[NAME])
