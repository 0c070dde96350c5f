# SPDX-License-Identifier: Apache-2.0
"""Laws of every source mechanism under its contract."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.attention import CATALOGUE, Attended, Attention, Moment, kv_memory
from kvnmt.layers import gaussian
from kvnmt.typing import Sizes

SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=5, alignment=6)
B, S = 3, 5
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], dtype=bool)
OPTIONS = {name: member.Options() for name, member in CATALOGUE.items()} | {
    "rewritten": kv_memory.Options(values="rewritten"),
    "shared-tanh": kv_memory.Options(share_addresses=True, add="tanh"),
}


class Case(NamedTuple):
    attention: Attention
    params: Any
    annotations: jax.Array
    moments: list[Moment]


@pytest.fixture(params=OPTIONS, name="case")
def _case(request) -> Case:
    attention = CATALOGUE.build(OPTIONS[request.param])
    shapes = jax.eval_shape(
        lambda key: attention.init(key, SIZES, gaussian()), jax.random.key(0)
    )
    normal = np.random.default_rng(3).normal

    def draw(*shape: int) -> jax.Array:
        return jnp.asarray(normal(0, 1, shape).astype(np.float32))

    moments = [
        Moment(draw(B, 5), draw(B, 3), draw(B, 5), decoder_state=draw(B, 5))
        for _ in range(3)
    ]
    params = jax.tree.map(lambda x: draw(*x.shape), shapes)
    return Case(attention, params, draw(B, S, 8), moments)


def run(
    case: Case, annotations: jax.Array, mask: np.ndarray
) -> tuple[list[Attended], list[Any]]:
    """Reads and writes at every moment; what was read, and every State."""
    attention, params = case.attention, case.params
    source = attention.prepare(params, annotations, jnp.asarray(mask))
    state = attention.initial_state(params, source)
    looks, states = [], [state]
    for moment in case.moments:
        before = moment.replace(decoder_state=None)
        looks.append(attention.read(params, source, state, before))
        after = moment.replace(attended=looks[-1])
        state = attention.write(params, source, state, after)
        states.append(state)
    return looks, states


def alignments(looks: list[Attended]) -> list[np.ndarray]:
    return [np.asarray(a.alignment) for a in looks if a.alignment is not None]


def test_alignment_is_a_distribution_over_real_words(case):
    looks, _ = run(case, case.annotations, MASK)
    for look in looks:
        assert look.context.shape == (B, case.attention.context_size(SIZES))
        assert np.isfinite(look.context).all()
    for alignment in alignments(looks):
        np.testing.assert_allclose(alignment.sum(axis=1), [1, 1, 0], atol=1e-6)
        assert (alignment[~MASK] == 0).all()
        assert (alignment[MASK] > 0).all()


def test_permuting_the_source_permutes_the_alignment(case):
    order = np.array([3, 0, 4, 2, 1])
    want, _ = run(case, case.annotations, MASK)
    got, _ = run(case, case.annotations[:, order], MASK[:, order])
    for plain, permuted in zip(alignments(want), alignments(got), strict=True):
        np.testing.assert_allclose(permuted, plain[:, order], atol=1e-6)
    for plain, permuted in zip(want, got):
        np.testing.assert_allclose(permuted.context, plain.context, atol=1e-5)


def test_state_keeps_its_structure_and_its_padding(case):
    _, states = run(case, case.annotations, MASK)
    first = states[0]
    for state in states[1:]:
        assert jax.tree.structure(state) == jax.tree.structure(first)
        for old, new in zip(jax.tree.leaves(first), jax.tree.leaves(state)):
            old, new = np.asarray(old), np.asarray(new)
            assert (new.shape, new.dtype) == (old.shape, old.dtype)
            assert new.shape[0] == B  # a beam search reorders this axis
            if new.shape[:2] == (B, S):
                np.testing.assert_array_equal(new[~MASK], old[~MASK])


def test_jit_equals_eager(case):
    want = run(case, case.annotations, MASK)
    got = jax.jit(lambda x: run(case, x, MASK))(case.annotations)
    for eager, jitted in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(jitted, eager, atol=1e-5)


def test_gradient_is_finite_with_an_empty_row(case):
    def total(params: Any, annotations: jax.Array) -> jax.Array:
        looks, states = run(case._replace(params=params), annotations, MASK)
        leaves = jax.tree.leaves((looks, states))
        return jnp.asarray(sum(jnp.sum(jnp.sin(leaf)) for leaf in leaves))

    gradient = jax.jit(jax.grad(total, argnums=(0, 1)))(case.params, case.annotations)
    for leaf in jax.tree.leaves(jax.tree.map(np.asarray, gradient)):
        assert np.isfinite(leaf).all()
        assert np.any(leaf != 0)
