# SPDX-License-Identifier: Apache-2.0
"""Scans over time: what of them is kept for the gradient, and how products are made.

The gradient of a step needs values of the step: its residuals. Left alone, all are kept
for every step, though most are cheap to compute again. Two choices are better:

============  =================================================================
``products``  keep the results of products of matrices, which are costly
``vectors``   keep of those the vectors [B, D] alone: what has a source axis,
              [B, S, A], is large, and an accelerator computes it again in less
              time than it takes to write and read it
============  =================================================================

A GPU makes one product of several that meet the same array, which saves it the start of
many kernels (`kvnmt.layers.merged`), and writes the states of a scan once, though both
the result and the gradient need them. In training and search, any accelerator reads the
source in both directions at once.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from kvnmt.layers.merged import merged
from kvnmt.typing import Array, PyTree

Residuals: TypeAlias = Literal["products", "vectors"]
# (state after the last step, what all steps gave) -> results
Complete: TypeAlias = Callable[[PyTree, PyTree], PyTree]


class Scanning(NamedTuple):
    """How a scan is computed; its results do not depend on it."""

    residuals: Residuals = "products"  # what every step keeps for the gradient
    chunk: int = 0  # steps between those whose state is kept, if nothing else is;
    # 0: the residuals of every step are
    merged: bool = False  # products of the same array are one, states written once
    joined: bool = False  # both directions of an encoder are one scan


def scan(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    state: PyTree,
    inputs: PyTree,
    scanning: Scanning = Scanning(),
    reverse: bool = False,
) -> PyTree:
    """Runs a step over time and returns what every step gives.

    Args:
        step: ``(state, inputs of a step) -> (state, what it gives)``.
        state: Before the first step.
        inputs: Arrays with time as their first axis.
        scanning: How. With a chunk only the state before every ``chunk``
            steps is kept, and the steps between are computed again.
        reverse: From the last step to the first; without a chunk.
    """
    assert not (scanning.chunk and reverse)
    complete = _as_they_are
    if scanning.merged:
        step = merged(step, state, jax.tree.map(lambda x: x[0], inputs))
        step, complete = _states_once(step, reverse)
    policy = _POLICIES[scanning.residuals]
    # A scan keeps XLA from merging both computations; outside of one it must be told.
    frugal = jax.checkpoint(step, policy=policy, prevent_cse=False)

    def run(state: PyTree, inputs: PyTree) -> tuple[PyTree, PyTree]:
        end, results = jax.lax.scan(frugal, state, inputs, reverse=reverse)
        return end, complete(end, results)

    chunk = scanning.chunk
    if not chunk:
        return run(state, inputs)[1]
    length = jax.tree.leaves(inputs)[0].shape[0]
    whole = length // chunk * chunk

    def split(x: Array) -> Array:
        return x[:whole].reshape(-1, chunk, *x.shape[1:])

    def join(x: Array, rest: Array) -> Array:
        return jnp.concatenate([x.reshape(whole, *rest.shape[1:]), rest])

    inside = jax.checkpoint(run, prevent_cse=False)
    state, results = jax.lax.scan(inside, state, jax.tree.map(split, inputs))
    rest = jax.tree.map(lambda x: x[whole:], inputs)
    return jax.tree.map(join, results, jax.checkpoint(run)(state, rest)[1])


def keep(x: Array) -> Array:
    """Marks a small result that is no product as one to be kept."""
    return checkpoint_name(x, _KEPT)


def _states_once(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]], reverse: bool
) -> tuple[Callable[[PyTree, PyTree], tuple[PyTree, PyTree]], Complete]:
    """A step that returns old states in place of new ones, and what shifts them back.

    For the gradient a scan keeps the state before each step. A result that is the new
    state is the same array, one step later; so XLA writes it once, not twice.
    """
    places: dict[int, int] = {}  # of results that are new states: among the states

    def lean(state: PyTree, inputs: PyTree) -> tuple[PyTree, PyTree]:
        new, results = step(state, inputs)
        news = [id(leaf) for leaf in jax.tree.leaves(new)]
        leaves, tree = jax.tree.flatten(results)
        places.update(
            (n, news.index(id(leaf)))
            for n, leaf in enumerate(leaves)
            if id(leaf) in news
        )
        before = jax.tree.leaves(state)
        for n, place in places.items():
            leaves[n] = before[place]
        return new, jax.tree.unflatten(tree, leaves)

    def complete(end: PyTree, results: PyTree) -> PyTree:
        leaves, tree = jax.tree.flatten(results)
        last = jax.tree.leaves(end)
        for n, place in places.items():
            one = last[place][None]
            both = [one, leaves[n]] if reverse else [leaves[n], one]
            rows = slice(-1) if reverse else slice(1, None)
            leaves[n] = jnp.concatenate(both)[rows]
        return jax.tree.unflatten(tree, leaves)

    return lean, complete


def _as_they_are(end: PyTree, results: PyTree) -> PyTree:
    return results


def _is_vector(primitive: Any, *operands: Any, **params: Any) -> bool:
    """Whether something is a product with at most one axis beside that of rows."""
    if primitive.name != "dot_general":
        return False
    (contracted, _), (rows, _) = params["dimension_numbers"]
    axes = sum(len(operand.shape) for operand in operands[:2])
    return axes - 2 * len(contracted) - len(rows) <= 2


_KEPT = "kept"
_MARKED = jax.checkpoint_policies.save_only_these_names(_KEPT)
_POLICIES = {
    "products": jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.dots_saveable, _MARKED
    ),
    "vectors": jax.checkpoint_policies.save_from_both_policies(_is_vector, _MARKED),
}
