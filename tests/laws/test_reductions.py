# SPDX-License-Identifier: Apache-2.0
"""Systems that become other systems when a part of them is shut off."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import target_context as target_contexts
from kvnmt.attention import (
    additive,
    distortion,
    kv_memory,
    linguistic_coverage,
    neural_coverage,
)
from kvnmt.decoder import conditional, past_future, transformer
from kvnmt.decoder.rounds import Round
from kvnmt.initializers import gaussian
from kvnmt.layers import GRU, Linear
from kvnmt.model.assembly import Params, Prediction
from kvnmt.systems.named import SYSTEMS
from kvnmt.target_context import mean, self_attentive
from kvnmt.typing import Sizes
from tests.decoder.unrolled import Unrolled
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET

PAIR = SOURCE, TARGET
close = {"rtol": 1e-12, "atol": 1e-12}
COVERAGE = linguistic_coverage.Options, neural_coverage.Options
FIXED, REWRITTEN = kv_memory.Options(), kv_memory.Options(values="rewritten")


def named(**kinds: type | tuple[type, ...]) -> list[str]:
    """The systems whose choices are of these kinds."""
    return [
        name
        for name, config in cases.NAMED.items()
        if name in cases.DISTINCT
        and all(isinstance(getattr(config, f), kind) for f, kind in kinds.items())
    ]


def shut(gate: Linear) -> Linear:
    """A sigmoid gate that is 0 whatever it is given."""
    return Linear(tuple(0 * W for W in gate.W), jnp.full_like(gate.b, -1e9))


def keeping(cell: GRU) -> GRU:
    """A GRU whose state never changes."""
    size = cell.U.shape[0]
    return cell.replace(b=cell.b.at[size : 2 * size].set(1e9))


def with_rounds(params: Params, *rounds: Round) -> Params:
    return params.replace(decoder=params.decoder.replace(rounds=rounds))


def baseline(params: Params) -> Prediction:
    """RNNsearch* with the first round's parameters."""
    first = params.decoder.rounds[0]
    first = first.replace(attention=additive.Params(first.attention.address))
    return cases.forward(cases.BASE)(with_rounds(params, first), *PAIR)


def assert_same(got: Prediction, want: Prediction) -> None:
    np.testing.assert_allclose(got.logits, want.logits, **close)
    for alignment in got.features.alignments:
        np.testing.assert_allclose(alignment, want.features.alignments[0], **close)


@pytest.mark.parametrize("options", [FIXED, REWRITTEN], ids=["KVMemAtt", "MemAtt"])
@pytest.mark.parametrize("rounds, shared", [(1, False), (2, False), (3, True)])
def test_writes_off_is_rnnsearch(options, rounds, shared, x64):
    decoder = conditional.Options(rounds=rounds, share_rounds=shared)
    config = dataclasses.replace(cases.BASE, attention=options, decoder=decoder)
    params = cases.params(config, "float64")
    first = params.decoder.rounds[0]
    memory = first.attention
    closed = memory.replace(forget=shut(memory.forget), add=shut(memory.add))
    count = len(params.decoder.rounds)  # tied: the same parameters in each
    off = with_rounds(params, *[first.replace(attention=closed)] * count)
    got, want = cases.forward(config)(off, *PAIR), baseline(off)
    assert len(got.features.alignments) == rounds
    assert_same(got, want)
    on = cases.forward(config)(with_rounds(params, *[first] * count), *PAIR)
    assert not np.allclose(on.logits, want.logits)  # the gates do matter


@pytest.mark.parametrize("layers, rounds", [("last", 1), ("each", 2)])
def test_writes_off_in_a_transformer_is_additive(layers, rounds, x64):
    options = transformer.Options(attention_in=layers, rounds=rounds)
    config = dataclasses.replace(cases.BASE, attention=FIXED, decoder=options)
    params = cases.params(config, "float64")

    def changed(change: Callable[[kv_memory.Params], Any]) -> Params:
        def of(part: Any) -> Any:
            return change(part) if isinstance(part, kv_memory.Params) else part

        return jax.tree.map(
            of, params, is_leaf=lambda part: isinstance(part, kv_memory.Params)
        )

    off = changed(lambda m: m.replace(forget=shut(m.forget), add=shut(m.add)))
    plain = changed(lambda m: additive.Params(m.address))
    other = dataclasses.replace(config, attention=additive.Options())
    want, got = cases.forward(other)(plain, *PAIR), cases.forward(config)(off, *PAIR)
    assert len(got.features.alignments) == rounds
    np.testing.assert_allclose(got.logits, want.logits, **close)
    on = cases.forward(config)(params, *PAIR)
    assert not np.allclose(on.logits, want.logits)  # the gates do matter


def test_first_word_knows_no_write(x64):
    """MemAtt and KVMemAtt-R1 differ in the values alone, from the second word on."""
    config = cases.NAMED["kvmematt-r1"]
    params = cases.params(config, "float64")
    fixed = cases.forward(config)(params, *PAIR).logits
    rewritten = cases.forward(cases.NAMED["mematt"])(params, *PAIR).logits
    np.testing.assert_allclose(fixed[:, 0], rewritten[:, 0], **close)
    assert not np.allclose(fixed[0, 1], rewritten[0, 1])


@pytest.mark.parametrize("name", named(attention=COVERAGE))
def test_coverage_without_its_energy_is_rnnsearch(name, x64):
    params = cases.params(cases.NAMED[name], "float64")
    forward, want = cases.forward(cases.NAMED[name]), baseline(params)
    first = params.decoder.rounds[0]
    off = first.attention.replace(G=0 * first.attention.G)
    given = with_rounds(params, first.replace(attention=off))
    assert_same(forward(given, *PAIR), want)
    on = forward(params, *PAIR)
    assert not np.allclose(on.logits, want.logits)


@pytest.mark.parametrize("name", named(attention=distortion.Options))
def test_distortion_without_weight_is_rnnsearch(name, x64):
    config = cases.NAMED[name]
    params = cases.params(config, "float64")
    options = dataclasses.replace(config.attention, weight=0.0)
    off = dataclasses.replace(config, attention=options)
    want = baseline(params)
    assert_same(cases.forward(off)(params, *PAIR), want)
    on = cases.forward(config)(params, *PAIR)
    assert not np.allclose(on.logits, want.logits)


@pytest.mark.parametrize("name", named(decoder=past_future.Options))
def test_past_and_future_unheard_are_rnnsearch(name, x64):
    params = cases.params(cases.NAMED[name], "float64")
    forward, own = cases.forward(cases.NAMED[name]), params.decoder
    plain = conditional.Params(own.initial, own.query, own.rounds)
    want = baseline(params.replace(decoder=plain, auxiliary=()))
    keeps = own.replace(adjust=keeping(own.adjust))
    W = params.readout.W
    unread = W | {n: 0 * W[n] for n in ("past", "future") if n in W}
    silent = params.readout.replace(W=unread)
    assert_same(forward(params.replace(decoder=keeps, readout=silent), *PAIR), want)
    for heard in params.replace(readout=silent), params.replace(decoder=keeps):
        assert not np.allclose(forward(heard, *PAIR).logits, want.logits)


def test_modifying_initial_weights_starts_as_key_value(x64):
    """With a block-wise merge and the zero block in the readout (Mino et al. 2017)."""
    whole = cases.NAMED["modifying-iw"]
    halves = dataclasses.replace(cases.NAMED["key-value"], state=whole.state)
    params = cases.params(halves, "float64")
    keys, values = params.encoder.project
    blocks = tuple(jax.scipy.linalg.block_diag(*pair) for pair in zip(keys.W, values.W))
    merge = Linear(blocks, jnp.concatenate([keys.b, values.b]))
    read = params.readout.W["context"]
    W = params.readout.W | {"context": jnp.concatenate([0 * read, read])}
    same = params.replace(
        encoder=params.encoder.replace(project=(merge,)),
        decoder=params.decoder.replace(attention=()),
        readout=params.readout.replace(W=W),
    )
    want = cases.forward(halves)(params, *PAIR)
    got = cases.forward(whole)(same, *PAIR)
    assert_same(got, want)
    filled = W | {"context": jnp.concatenate([read, read])}
    trained = same.replace(readout=same.readout.replace(W=filled))
    got = cases.forward(whole)(trained, *PAIR)
    assert not np.allclose(got.logits, want.logits)


@pytest.mark.parametrize("scope", [False, True])
def test_self_attention_without_energy_is_a_mean_with_a_null_slot(scope, key, x64):
    sizes = Sizes(embedding=3, encoder=4, annotation=8, state=5, alignment=6)
    options = self_attentive.Options(scope=scope)
    attentive = target_contexts.CATALOGUE.build(options)
    average = target_contexts.CATALOGUE.build(mean.Options())
    params = attentive.init(key, sizes, gaussian(1.0))
    states = jax.random.normal(key, (2, 6, sizes.state), float)
    embedded = jax.random.normal(key, (2, 6, sizes.embedding), float)
    embedded = embedded.at[:, 0].set(0)  # no word precedes the first
    share = (jnp.arange(1.0, 7) - 1) / jnp.arange(1.0, 7)  # (t - 1) / t
    want = share[:, None] * average.over_time((), states, embedded)["word"]
    still = params.replace(v=0 * params.v)
    got = attentive.over_time(still, states, embedded)["word"]
    np.testing.assert_allclose(got, want, **close)
    moved = attentive.over_time(params, states, embedded)["word"]
    assert not np.allclose(moved, want)


def test_linguistic_coverage_inside_a_key_memory(x64):
    """Addresses tied, GRU2 keeping, forget 0, add constant: G = U add."""
    memory, covering = cases.NAMED["kvmematt-r1"], cases.NAMED["coverage-linguistic"]
    params = cases.params(memory, "float64")
    first = params.decoder.rounds[0]
    own, theta = first.attention, first.attention.address
    still = Linear(tuple(0 * W for W in own.add.W), own.add.b)
    tied = own.replace(write_address=theta, forget=shut(own.forget), add=still)
    advance = keeping(first.advance)
    remembering = with_rounds(params, Round(tied, advance))
    G = (jax.nn.sigmoid(still.b) @ theta.U_key)[None]
    covered = linguistic_coverage.Params(theta, G, None)
    given = with_rounds(params, Round(covered, advance))
    want = cases.forward(covering)(given, *PAIR)
    assert_same(cases.forward(memory)(remembering, *PAIR), want)
    none = covered.replace(G=0 * G)
    given = with_rounds(params, Round(none, advance))
    got = cases.forward(covering)(given, *PAIR)
    assert not np.allclose(got.logits, want.logits)  # coverage does matter


def test_an_attention_without_its_write_is_rnnsearch(x64):
    options = conditional.Options()
    silent = kv_memory.build(FIXED)._replace(write=None)
    memory = Unrolled(options, silent)
    rounds = memory.params.rounds
    reading = additive.Params(rounds[0].attention.address)
    plain = memory.params.replace(rounds=(rounds[0].replace(attention=reading),))
    want, _ = Unrolled(options, additive.build(additive.Options())).run(plain)
    got, _ = memory.run(memory.params)
    np.testing.assert_allclose(got.state, want.state, **close)
    loud, _ = Unrolled(options, kv_memory.build(FIXED)).run(memory.params)
    assert not np.allclose(loud.state, want.state)


def test_every_law_meets_a_system():
    assert {"coverage-neural-10", "coverage-fertility"} <= set(
        named(attention=COVERAGE)
    )
    assert len(named(attention=distortion.Options)) == 3
    assert {"past", "future"} < set(named(decoder=past_future.Options)) < set(SYSTEMS)
