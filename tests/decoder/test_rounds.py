# SPDX-License-Identifier: Apache-2.0
"""Rounds of every decoder that has them."""

from dataclasses import dataclass
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import decoder as decoders
from kvnmt.attention import Attended, Attention, kv_memory
from kvnmt.decoder import conditional, transformer
from kvnmt.decoder.rounds import RoundOptions
from kvnmt.errors import OptionError
from kvnmt.model.config import ModelConfig
from kvnmt.runs.idle import check_rounds
from tests.decoder.unrolled import SIZES, T, Unrolled

NAMES = [
    name
    for name, member in decoders.CATALOGUE.items()
    if issubclass(member.Options, RoundOptions)
]


def spy(calls: list) -> Attention:
    """An attention whose State counts writes, and which notes how it is called."""

    def read(params, source, state, moment):
        calls.append(("read", params, state, moment))
        return Attended(jnp.full((3, 6), float(params)), None)

    def write(params, source, state, moment):
        calls.append(("write", params, state, moment))
        return state + 1

    numbers = iter(range(9))
    return Attention(
        init=lambda key, sizes, weights: next(numbers),
        prepare=lambda params, annotations, mask: None,
        initial_state=lambda params, source: 0,
        read=read,
        write=write,
    )


def run(name: str, **options) -> tuple[list, list]:
    calls: list = []
    it = Unrolled(decoders.CATALOGUE[name].Options(rounds=2, **options), spy(calls))
    features, states = it.unroll(it.params)
    assert features.alignments == ()
    assert features.context.shape == (3, T, SIZES.annotation)
    return calls, states


@pytest.mark.parametrize("name", NAMES)
def test_rounds_alternate_reads_and_writes(name):
    calls, states = run(name)
    assert [c[0] for c in calls] == ["read", "write"] * 2 * T
    assert [c[1] for c in calls] == [0, 0, 1, 1] * T
    writes = np.repeat(np.arange(2 * T), 2)  # the memory outlives a step
    assert [c[2] for c in calls] == writes.tolist()
    assert [s.attention for s in states] == [0, 2, 4, 6]


@pytest.mark.parametrize("name", NAMES)
def test_shared_rounds_have_one_set_of_parameters(name):
    calls, _ = run(name, share_rounds=True)
    assert [c[1] for c in calls] == [0] * 4 * T
    own, tied = (
        Unrolled(decoders.CATALOGUE[name].Options(rounds=2, share_rounds=shared))
        for shared in (False, True)
    )
    assert len(own.params.rounds) == 2 and len(tied.params.rounds) == 1


@pytest.mark.parametrize("name", NAMES)
def test_moment_fills_as_the_step_goes_on(name):
    calls, states = run(name)
    reads = [c[3] for c in calls if c[0] == "read"]
    writes = [c[3] for c in calls if c[0] == "write"]
    for moment in reads:
        assert moment.decoder_state is None and moment.attended is None
    np.testing.assert_array_equal(reads[0].query, reads[1].query)  # always q_t
    assert not np.allclose(reads[1].query, reads[2].query)
    before = {
        "mem_dec": lambda: jnp.einsum("bm,bmd->bd", states[1].reading, states[1].cells),
        "memory_rnn": lambda: states[2].summary,
    }.get(name, lambda: states[1].state)()  # what has the seat of s_{t-1}
    np.testing.assert_array_equal(reads[2].previous_state, before)
    embedded = Unrolled(decoders.CATALOGUE[name].Options()).embedded
    np.testing.assert_array_equal(reads[2].embedded, embedded[1])
    assert not np.allclose(writes[0].decoder_state, writes[1].decoder_state)
    np.testing.assert_array_equal(writes[1].decoder_state, states[1].state)
    np.testing.assert_array_equal(writes[1].attended.context, np.ones((3, 6)))


@dataclass(frozen=True)
class Hops(conditional.Options):
    """Of a decoder whose rounds read what those before have read."""


def test_a_decoder_says_whether_its_rounds_need_writes():
    def build(options, attention):
        decoder = conditional.build(options, attention)
        return decoder._replace(rounds_need_writes=False)

    decoders.CATALOGUE.add("hops", SimpleNamespace(Options=Hops, build=build))
    try:
        check_rounds(ModelConfig(decoder=Hops(rounds=2)))
    finally:
        decoders.CATALOGUE.remove("hops")
    check_rounds(ModelConfig(decoder=transformer.Options(rounds=2)))
    for name in NAMES:
        options = decoders.CATALOGUE[name].Options(rounds=2)
        with pytest.raises(OptionError, match="writes nothing between rounds"):
            check_rounds(ModelConfig(decoder=options))
        check_rounds(ModelConfig(decoder=options, attention=kv_memory.Options()))


def test_which_decoders_share_these_rounds():
    others = {"stacked_lstm", "transformer"}
    assert set(decoders.CATALOGUE) - set(NAMES) == others
