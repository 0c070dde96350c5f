# SPDX-License-Identifier: Apache-2.0
"""An attention at work on small random numbers, for laws to be tried on."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.attention import Attended, Attention, Change, Moment, Weighed
from kvnmt.errors import UserError
from kvnmt.laws.law import drawn, normal_numbers
from kvnmt.typing import Array, PyTree, Sizes

# All widths differ, so that a transposed or swapped matrix cannot fit, and none is a
# number of rows or words.
SIZES = Sizes(embedding=9, encoder=4, annotation=8, state=7, alignment=6)
B, S, WORDS = 3, 5, 3  # sentences, source words, target words
# A full sentence, a short one, and a row without words.
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], dtype=bool)


class Course(NamedTuple):
    """What happened at every target word."""

    looks: list[Attended]
    states: list[PyTree]  # before the first word, and after each
    told: list[Weighed]  # of each look; none where the alignment tells all
    changes: list[Change]  # of each write; none where there is nothing to tell


class Trial(NamedTuple):
    """An attention, what it works on, and its two compiled programs."""

    attention: Attention
    sizes: Sizes
    params: PyTree
    annotations: Array  # [B, S, C]
    moments: list[Moment]
    run: Callable[..., Course]  # of params, annotations, mask, moments
    # likewise: by params and annotations of all looks, by the first query of its own
    gradient: Callable[..., tuple[PyTree, Array, Array]]

    def course(self) -> Course:
        """What happens with the arrays as they are."""
        return self.run(self.params, self.annotations, MASK, self.moments)


def make_trial(attention: Attention, sizes: Sizes = SIZES) -> Trial:
    """Draws parameters, annotations and queries, none of them tiny.

    As in a model, annotations are 0 at padding, and no word precedes the first.
    """
    draw = normal_numbers(3)
    moments = [
        Moment(
            previous_state=draw((B, sizes.state)),
            embedded=draw((B, sizes.embedding)),
            query=draw((B, sizes.state)),
            decoder_state=draw((B, sizes.state)),
        )
        for _ in range(WORDS)
    ]
    moments[0] = replace(moments[0], embedded=jnp.zeros((B, sizes.embedding)))
    return Trial(
        attention=attention,
        sizes=sizes,
        params=drawn(attention.init, sizes),
        annotations=draw((B, S, sizes.annotation)) * MASK[..., None],
        moments=moments,
        run=jax.jit(partial(unroll, attention)),
        gradient=jax.jit(gradient_of(attention)),
    )


def unroll(
    attention: Attention,
    params: PyTree,
    annotations: Array,
    mask: Array | np.ndarray,
    moments: Sequence[Moment],
) -> Course:
    """Reads and writes at every moment, one round each."""
    source = attention.prepare(params, annotations, jnp.asarray(mask))
    state = attention.initial_state(params, source)
    looks, states, told, changes = [], [state], [], []
    for moment in moments:
        before = replace(moment, decoder_state=None)
        if attention.weigh is not None:
            told.append(attention.weigh(params, source, state, before))
        earlier = state
        state, look = step(attention, params, source, state, moment)
        if attention.explain is not None:
            after = replace(moment, attended=look)
            changes.append(attention.explain(params, source, earlier, after))
        looks.append(look)
        states.append(state)
    return Course(looks, states, told, changes)


def step(
    attention: Attention,
    params: PyTree,
    source: PyTree,
    state: PyTree,
    moment: Moment,
) -> tuple[PyTree, Attended]:
    """Reads, and writes if the attention does."""
    look = attention.read(params, source, state, replace(moment, decoder_state=None))
    if not isinstance(look, Attended):
        raise UserError(f"`read` gives a {type(look).__name__}, not an Attended")
    if attention.write is not None:
        after = replace(moment, attended=look)
        state = attention.write(params, source, state, after)
    return state, look


def scan(
    attention: Attention,
    params: PyTree,
    annotations: Array,
    mask: Array | np.ndarray,
    moments: Sequence[Moment],
) -> tuple[PyTree, Attended]:
    """The last State and all looks, time first, as training computes them."""
    source = attention.prepare(params, annotations, jnp.asarray(mask))
    state = attention.initial_state(params, source)
    over_time = jax.tree.map(lambda *leaves: jnp.stack(leaves), *moments)
    return jax.lax.scan(partial(step, attention, params, source), state, over_time)


def gradient_of(
    attention: Attention, everything: bool = False
) -> Callable[..., tuple[PyTree, Array, Array]]:
    """Gradients, as `Trial` has them; or of States, too."""

    def total(*arrays: PyTree) -> Array:
        course = unroll(attention, *arrays)
        read = (course.looks, course.states) if everything else course.looks
        leaves = jax.tree.leaves(read)
        return jnp.asarray(sum(jnp.sum(jnp.sin(leaf)) for leaf in leaves))

    def first(
        query: Array, params: PyTree, annotations: Array, mask: Array, moment: Moment
    ) -> Array:
        moments = [replace(moment, query=query)]
        course = unroll(attention, params, annotations, mask, moments)
        return jnp.sum(jnp.sin(course.looks[0].context))

    def gradients(*arrays: PyTree) -> tuple[PyTree, Array, Array]:
        *before, moments = arrays
        by_query = jax.grad(first)(moments[0].query, *before, moments[0])
        return *jax.grad(total, argnums=(0, 1))(*arrays), by_query

    return gradients
