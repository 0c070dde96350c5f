# SPDX-License-Identifier: Apache-2.0
"""What is computed at once is what is computed word by word."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import decoder as decoders
from kvnmt.attention import Attention, additive, kv_memory, multi_head
from kvnmt.decoder.source_look import Look, look_over_time
from kvnmt.decoder.transformer import Options
from kvnmt.layers import Scanning
from kvnmt.systems.products import needed
from tests.decoder.unrolled import SIZES, B, T, Unrolled

close = {"rtol": 1e-5, "atol": 1e-5}
DROPPING = Options(heads=2, dropout=0.5, rounds=2)
PLAIN = additive.build(additive.Options())


def rewriting(attention: Attention) -> Attention:
    """The same with a write that changes nothing, so that it has to be scanned."""
    return attention._replace(write=lambda params, source, state, moment: state)


def over_time(
    it: Unrolled, params, key: jax.Array | None = None, scanning: Scanning = Scanning()
) -> decoders.Features:
    assert it.decoder.over_time is not None
    constants = it.decoder.prepare(params, it.source)
    state = it.decoder.initial_state(params, constants, T)
    inputs = it.decoder.inputs(params, it.embedded.swapaxes(0, 1))
    return it.decoder.over_time(params, constants, state, inputs, key, scanning)


def assert_same(left: decoders.Features, right: decoders.Features) -> None:
    jax.tree.map(partial(np.testing.assert_allclose, **close), left, right)


@pytest.mark.parametrize(
    "attention", [PLAIN, multi_head.build(multi_head.Options(heads=3))]
)
def test_at_once_is_one_after_the_other(attention, key):
    """With the same entries dropped; and without any, as a search takes its steps."""
    it, slow = (Unrolled(DROPPING, a) for a in (attention, rewriting(attention)))
    jax.tree.map(np.testing.assert_array_equal, it.params, slow.params)
    features = [jax.jit(partial(over_time, each)) for each in (it, slow)]
    dropped, same = (of(it.params, key) for of in features)
    assert_same(dropped, same)
    whole = features[0](it.params)
    assert not np.allclose(whole.state, dropped.state, **close)
    steps, _ = it.run(it.params)
    assert_same(whole, steps)


def test_a_look_drops_entries_of_what_it_adds(key):
    it = Unrolled(Options(layers=1), PLAIN)

    @jax.jit
    def added(params):  # to zeros, without a key and with one
        (layer,) = params.layers
        (constants,) = it.decoder.prepare(params, it.source).layers
        h, embedded = jnp.zeros((B, T, SIZES.state)), it.embedded.swapaxes(0, 1)
        given = Look(PLAIN, 1), layer.rounds, constants, (), h, embedded, 0.5
        return [look_over_time(*given, k, Scanning()).h for k in (None, key)]

    whole, left = added(it.params)
    ratios = (left / whole)[:2]  # the third sentence has no words
    np.testing.assert_allclose(np.unique(ratios.round(3)), [0, 2])


def scans(
    options: Options, attention: Attention, scanning: Scanning = Scanning()
) -> list[int]:
    """How long every scan of the program is."""
    it = Unrolled(options, attention)
    run = partial(over_time, it, key=None, scanning=scanning)
    loops = [
        eqn
        for eqn in needed(jax.make_jaxpr(run)(it.params).jaxpr)
        if eqn.primitive.name == "scan"
    ]
    for loop in loops:
        assert decoders.SCAN in str(loop.source_info.name_stack)
    return [loop.params["length"] for loop in loops]


def test_only_writes_are_scanned_and_no_more_is_kept_than_was_asked():
    memory = kv_memory.build(kv_memory.Options())
    assert scans(Options(), PLAIN) == []
    assert scans(Options(layers=3), memory) == [T]
    assert scans(Options(layers=3, rounds=2, attention_in="each"), memory) == [T] * 3
    assert scans(Options(), memory, Scanning(chunk=2)) == [T // 2]  # of two words each
