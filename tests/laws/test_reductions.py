# SPDX-License-Identifier: Apache-2.0
"""Systems that become other systems when a part of them is shut off."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import attention as attentions
from kvnmt.attention import additive, base, kv_memory
from kvnmt.decoder import conditional
from kvnmt.layers import Linear
from kvnmt.models import Params, Prediction
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET

close = {"rtol": 1e-12, "atol": 1e-12}
FIXED, REWRITTEN = kv_memory.Options(), kv_memory.Options(values="rewritten")


def shut(gate: Linear) -> Linear:
    """A sigmoid gate that is 0 whatever it is given."""
    return Linear(tuple(0 * W for W in gate.W), jnp.full_like(gate.b, -1e9))


def with_rounds(params: Params, *rounds: conditional.Round) -> Params:
    return params.replace(decoder=params.decoder.replace(rounds=rounds))


def without_memory(params: Params) -> Prediction:
    """RNNsearch* with the first round's parameters."""
    first = params.decoder.rounds[0]
    first = first.replace(attention=additive.Params(first.attention.address))
    return cases.forward(cases.BASE)(with_rounds(params, first), SOURCE, TARGET)


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
    got = cases.forward(config)(off, SOURCE, TARGET)
    want = without_memory(off)
    np.testing.assert_allclose(got.logits, want.logits, **close)
    assert len(got.features.alignments) == rounds
    for alignment in got.features.alignments:
        np.testing.assert_allclose(alignment, want.features.alignments[0], **close)
    on = cases.forward(config)(with_rounds(params, *[first] * count), SOURCE, TARGET)
    assert not np.allclose(on.logits, want.logits)  # the gates do matter


def test_an_attention_without_its_write_is_rnnsearch(x64, key):
    config = cases.NAMED["kvmematt-r1"]
    params = cases.params(config, "float64").decoder
    silent = kv_memory.build(FIXED)._replace(write=base.no_write)
    reading = params.rounds[0].attention.address
    plain = params.replace(
        rounds=(params.rounds[0].replace(attention=additive.Params(reading)),)
    )
    sizes, (B, S), T = config.sizes, SOURCE.shape, TARGET.shape[1]
    annotations = jax.random.normal(key, (B, S, sizes.annotation))
    embedded = jax.random.normal(key, (T, B, sizes.embedding))

    def states(attention: attentions.Attention, params: conditional.Params):
        decoder = conditional.build(conditional.Options(), attention)
        source = decoder.prepare(params, annotations, jnp.asarray(SOURCE >= 0))
        state, result = decoder.initial_state(params, source), []
        for x in embedded:
            inputs = decoder.inputs(params, x)
            state, features = decoder.step(params, source, state, inputs)
            result.append(features.state)
        return np.stack(result)

    want = states(additive.build(additive.Options()), plain)
    np.testing.assert_allclose(states(silent, params), want, **close)
    assert not np.allclose(states(kv_memory.build(FIXED), params), want)


def test_first_word_knows_no_write(x64):
    """MemAtt and KVMemAtt-R1 differ in the values alone, from the second word on."""
    config = cases.NAMED["kvmematt-r1"]
    params = cases.params(config, "float64")
    fixed = cases.forward(config)(params, SOURCE, TARGET).logits
    rewritten = cases.forward(cases.NAMED["mematt"])(params, SOURCE, TARGET).logits
    np.testing.assert_allclose(fixed[:, 0], rewritten[:, 0], **close)
    assert not np.allclose(fixed[0, 1], rewritten[0, 1])
