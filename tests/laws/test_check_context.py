# SPDX-License-Identifier: Apache-2.0
"""`kvnmt.check` of a target context: a sound one passes, each law catches something."""

import jax
import jax.numpy as jnp
import pytest

import kvnmt
from kvnmt.laws.target_context import LAWS
from kvnmt.target_context import mean

NAMES = [law.name for law in LAWS]
SOUND = mean.build(mean.Options())


def over_time(change):
    """The mean, of which training computes something else."""

    def changed(params, states, embedded):
        return change(SOUND.over_time(params, states, embedded), states)

    return SOUND._replace(over_time=changed)


def everywhere(change):
    """The same, and the search agrees."""

    def step(params, memory, state, embedded):
        memory, inputs = SOUND.step(params, memory, state, embedded)
        return memory, change(inputs, state)

    return over_time(change)._replace(step=step)


def scaled(inputs, states):
    return inputs | {"word": 0.9 * inputs["word"]}


def looks_ahead(inputs, states):
    return inputs | {
        "word": inputs["word"] + inputs["word"].mean(axis=1, keepdims=True)
    }


def mixes_rows(inputs, states):
    return inputs | {"state": inputs["state"] + states.mean(axis=0)}


def reads_nothing(inputs, states):
    return {name: jnp.ones_like(array) for name, array in inputs.items()}


def is_no_number(inputs, states):
    return inputs | {"word": inputs["word"] / 0}


def overflows(inputs, states):
    most = jnp.exp(jnp.abs(inputs["word"]))
    return inputs | {"word": inputs["word"] * most / (1 + most)}


def names_the_context(inputs, states):
    return {"state": inputs["state"], "context": inputs["word"]}


def context_and_state(sizes):
    return {"state": sizes.state, "context": sizes.embedding}


def carrying(start, follow):
    """The mean, which carries something else beside its sum."""

    def initial_state(params, sizes, rows, length, dtype):
        sound = SOUND.initial_state(params, sizes, rows, length, dtype)
        return sound, start(rows, dtype)

    def step(params, memory, state, embedded):
        sound, inputs = SOUND.step(params, memory[0], state, embedded)
        return (sound, follow(memory[1])), inputs

    return SOUND._replace(initial_state=initial_state, step=step)


def turned():
    """The mean, whose State has the rows in the other order."""

    def initial_state(params, sizes, rows, length, dtype):
        return SOUND.initial_state(params, sizes, rows, length, dtype)

    def back(memory):
        return jax.tree.map(lambda leaf: leaf[::-1], memory)

    def step(params, memory, state, embedded):
        memory, inputs = SOUND.step(params, back(memory), state, embedded)
        return back(memory), inputs

    return SOUND._replace(initial_state=initial_state, step=step)


def looking(weights):
    """The mean, which tells of some weights."""

    def self_attention(params, states, embedded):
        rows, steps = states.shape[:2]
        return jnp.broadcast_to(weights(steps), (rows, steps, steps))

    return SOUND._replace(self_attention=self_attention)


def is_coarse(inputs, states):
    return inputs | {"word": inputs["word"].astype(jnp.float32)}


def calls_back(inputs, states):
    told = jax.pure_callback(
        lambda x: x,
        jax.ShapeDtypeStruct(states.shape, states.dtype),
        jax.lax.stop_gradient(states),
    )
    return inputs | {"state": inputs["state"] + 0 * told}


def counting_rows():
    """The mean, whose memory begins with as many rows as the laws have."""

    def initial_state(params, sizes, rows, length, dtype):
        return SOUND.initial_state(params, sizes, 3, length, dtype)

    return SOUND._replace(initial_state=initial_state)


def from_one_key(key, sizes, weights):
    fixed = weights.matrix(jax.random.key(0), (2, 3), jnp.float32)
    return {"fixed": fixed}


WRONG = {
    "axis": (
        carrying(lambda rows, dtype: jnp.zeros(()), lambda n: n + 1),
        {"state", "hypotheses"},
    ),
    "form": (
        carrying(lambda rows, dtype: jnp.zeros(rows, int), lambda n: n + 0.5),
        {"state", "precision", "steps", "rows"},
    ),
    "callback": (everywhere(calls_back), {"hypotheses"}),
    "memory-rows": (counting_rows(), {"rows"}),
    "turned": (turned(), {"state"}),
    "future": (
        looking(lambda steps: jnp.full((steps, steps), 1 / steps)),
        {"attended"},
    ),
    "sums": (looking(lambda steps: 2 * jnp.eye(steps)), {"attended"}),
    "weightless": (looking(lambda steps: jnp.zeros((steps, steps))), {"attended"}),
    "signs": (looking(lambda steps: jnp.tri(steps, k=-1) - 3), {"attended"}),
    "coarse": (everywhere(is_coarse), {"precision"}),
    "key": (SOUND._replace(init=from_one_key), {"init", "reach"}),
    "scaled": (over_time(scaled), {"steps"}),
    "ahead": (over_time(looks_ahead), {"steps", "earlier"}),
    "rows": (everywhere(mixes_rows), {"rows", "state"}),
    "nothing": (everywhere(reads_nothing), {"reach"}),
    "number": (everywhere(is_no_number), {"widths", "large", "reach"}),
    "widths": (SOUND._replace(widths=lambda sizes: {"state": 1}), {"widths"}),
    "overflow": (everywhere(overflows), {"large"}),
    "context": (
        everywhere(names_the_context)._replace(widths=context_and_state),
        {"widths"},
    ),
    "names": (
        over_time(lambda inputs, _: {"word": inputs["word"]}),
        {"widths", "steps"},
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_target_context_is_caught(name):
    context, broken = WRONG[name]
    verdicts = kvnmt.check(context)
    assert set(verdicts.failed) == broken, verdicts


def test_every_law_catches_something():
    assert set().union(*(broken for _, broken in WRONG.values())) == set(NAMES)
