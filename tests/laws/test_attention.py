# SPDX-License-Identifier: Apache-2.0
"""Laws of every source mechanism under its contract."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.attention import (
    CATALOGUE,
    Attended,
    Attention,
    Moment,
    Options,
    distortion,
    dot,
    key_value,
    kv_memory,
    linguistic_coverage,
    neural_coverage,
    none,
)
from kvnmt.initializers import gaussian
from kvnmt.typing import Sizes

SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=5, alignment=6)
B, S = 3, 5
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], dtype=bool)
OPTIONS: dict[str, Options] = {
    name: member.Options() for name, member in CATALOGUE.items()
} | {
    "annotation": none.Options(projection=False),
    "general": dot.Options(score="general"),
    "concat": dot.Options(score="concat"),
    "projection": key_value.Options(query="projection"),
    "fertility": linguistic_coverage.Options(max_fertility=2.0),
    "subtractive": linguistic_coverage.Options(subtractive=True),
    "ungated": neural_coverage.Options(cell="tanh", size=2),
    "before": neural_coverage.Options(cell="gru_before", size=2),
    "distortion-source": distortion.Options(context="source", window=6),
    "distortion-target": distortion.Options(context="target", renormalise="distortion"),
    "distortion-final": distortion.Options(renormalise="final"),
    "rewritten": kv_memory.Options(values="rewritten"),
    "shared-tanh": kv_memory.Options(share_addresses=True, add="tanh"),
}
POSITIONAL = none.Options, distortion.Options  # these know the order of the source


class Case(NamedTuple):
    options: Any
    attention: Attention
    params: Any
    annotations: jax.Array
    moments: list[Moment]
    # (params, annotations, mask) -> what was read at every moment, and every State
    run: Callable[..., tuple[list[Attended], list[Any]]]


@cache
def make(name: str) -> Case:
    options = OPTIONS[name]
    attention = CATALOGUE.build(options)
    # A product of query and annotation needs them equally wide.
    D = SIZES.annotation if options == dot.Options() else SIZES.state
    shapes = jax.eval_shape(
        lambda key: attention.init(key, SIZES._replace(state=D), gaussian()),
        jax.random.key(0),
    )
    normal = np.random.default_rng(3).normal

    def draw(*shape: int) -> jax.Array:
        return jnp.asarray(normal(0, 1, shape).astype(np.float32))

    moments = [
        Moment(draw(B, D), draw(B, 3), draw(B, D), decoder_state=draw(B, D))
        for _ in range(3)
    ]
    params = jax.tree.map(lambda x: draw(*x.shape), shapes)
    case = Case(options, attention, params, draw(B, S, 8), moments, lambda: ([], []))
    return case._replace(run=jax.jit(lambda *given: unroll(case, *given)))


@pytest.fixture(params=OPTIONS, name="case")
def _case(request) -> Case:
    return make(request.param)


def unroll(
    case: Case, params: Any, annotations: jax.Array, mask: Any
) -> tuple[list[Attended], list[Any]]:
    """Reads and writes at every moment; what was read, and every State."""
    attention = case.attention
    source = attention.prepare(params, annotations, jnp.asarray(mask))
    state = attention.initial_state(params, source)
    looks, states = [], [state]
    for moment in case.moments:
        before = moment.replace(decoder_state=None)
        looks.append(attention.read(params, source, state, before))
        after = moment.replace(attended=looks[-1])
        if attention.write is not None:
            state = attention.write(params, source, state, after)
        states.append(state)
    return looks, states


def alignments(looks: list[Attended]) -> list[np.ndarray]:
    return [np.asarray(a.alignment) for a in looks if a.alignment is not None]


def test_alignment_is_a_distribution_over_real_words(case):
    looks, _ = case.run(case.params, case.annotations, MASK)
    sizes = SIZES._replace(state=case.moments[0].query.shape[1])
    for look in looks:
        assert look.context.shape == (B, case.attention.context_size(sizes))
        assert np.isfinite(look.context).all()
    assert len(alignments(looks)) == (0 if type(case.options) is none.Options else 3)
    for t, alignment in enumerate(alignments(looks)):
        assert (alignment[~MASK] == 0).all()
        assert (alignment[MASK] > 0).all()
        total = alignment.sum(axis=1)
        loses = isinstance(case.options, distortion.Options)  # mass, over the edges
        if loses and t and case.options.renormalise != "final":
            assert (total[:2] < 1 + 1e-6).all() and total[2] == 0
            total = np.where([True, True, False], 1, total)
        np.testing.assert_allclose(total, [1, 1, 0], atol=1e-6)


def test_permuting_the_source_permutes_the_alignment(case):
    order = np.array([3, 0, 4, 2, 1])
    want, _ = case.run(case.params, case.annotations, MASK)
    got, _ = case.run(case.params, case.annotations[:, order], MASK[:, order])
    if isinstance(case.options, POSITIONAL):
        assert not np.allclose(got[-1].context, want[-1].context, atol=1e-3)
        return
    for plain, permuted in zip(alignments(want), alignments(got), strict=True):
        np.testing.assert_allclose(permuted, plain[:, order], atol=1e-6)
    for plain, permuted in zip(want, got, strict=True):
        np.testing.assert_allclose(permuted.context, plain.context, atol=1e-5)


def test_what_lies_at_padding_is_never_read(case):
    other = jnp.where(MASK[..., None], case.annotations, 1e3)
    want, _ = case.run(case.params, case.annotations, MASK)
    got, _ = case.run(case.params, other, MASK)
    for plain, padded in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
        np.testing.assert_array_equal(padded, plain)


def test_state_keeps_its_structure_and_its_padding(case):
    _, states = case.run(case.params, case.annotations, MASK)
    first = states[0]
    for state in states[1:]:
        assert jax.tree.structure(state) == jax.tree.structure(first)
        for old, new in zip(jax.tree.leaves(first), jax.tree.leaves(state)):
            old, new = np.asarray(old), np.asarray(new)
            assert (new.shape, new.dtype) == (old.shape, old.dtype)
            assert new.shape[0] == B  # a beam search reorders this axis
            assert np.any(new[:2] != old[:2])
            drifts = isinstance(case.options, neural_coverage.Options)  # unread
            if new.shape[:2] == (B, S) and not drifts:
                np.testing.assert_array_equal(new[~MASK], old[~MASK])


@pytest.mark.parametrize("name", CATALOGUE)
def test_jit_equals_eager(name):
    case = make(name)
    given = case.params, case.annotations, MASK
    want, got = unroll(case, *given), case.run(*given)
    for eager, jitted in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(jitted, eager, atol=1e-5)


def test_gradient_is_finite_with_an_empty_row(case):
    def total(params: Any, annotations: jax.Array) -> jax.Array:
        leaves = jax.tree.leaves(case.run(params, annotations, MASK))
        return jnp.asarray(sum(jnp.sum(jnp.sin(leaf)) for leaf in leaves))

    gradient = jax.jit(jax.grad(total, argnums=(0, 1)))(case.params, case.annotations)
    for leaf in jax.tree.leaves(jax.tree.map(np.asarray, gradient)):
        assert np.isfinite(leaf).all()
        assert np.any(leaf != 0)
