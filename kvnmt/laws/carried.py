# SPDX-License-Identifier: Apache-2.0
"""The laws of what an attention carries, and of how it runs."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.laws.law import (
    differences,
    faults_of_form,
    faults_of_gradient,
    faults_of_precision,
    leaves,
    named,
    normalised,
    pairs,
    size,
    unchanged,
)
from kvnmt.laws.trial import MASK, B, S, Trial, gradient_of, scan, step, unroll
from kvnmt.typing import Array, PyTree


def state(trial: Trial) -> Iterator[str]:
    """The State keeps its form and lets a search reorder it; every write is seen."""
    states = trial.course().states
    faults = list(faults_of_form(states, B))
    yield from faults
    if not faults:
        full = [jax.tree.map(lambda x: x[:2], state) for state in states]
        for name in unchanged(full):
            yield f"after every word {name} is what it was at first"
    if not faults and trial.attention.write is not None:
        yield from _writes_unread(trial)


def _writes_unread(trial: Trial) -> Iterator[str]:
    """What is read for the last word must differ from a read without any write."""
    fresh = trial.run(
        trial.params, trial.annotations, MASK, [trial.moments[-1]] * len(trial.moments)
    )
    first, last = fresh.looks[0].context, trial.course().looks[-1].context
    if np.array_equal(first, last):
        yield "what is written is not read: contexts are as without any write"


def kept(trial: Trial) -> Iterator[str]:
    """What is carried of padding stays as it began."""
    first, *later = trial.course().states
    slots = _slots(trial)
    for word, now in enumerate(later, start=1):
        for name, old, new in pairs(first, now):
            if name not in slots or old.shape != new.shape:
                continue
            was, now_is = (np.moveaxis(x, slots[name], 1) for x in (old, new))
            if np.any(now_is[~MASK] != was[~MASK]):
                yield f"after word {word} {name} has changed at padding"


def explained(trial: Trial) -> Iterator[str]:
    """Lengths of what a write does: new - old = added - forgotten."""
    course = trial.course()
    for word, change in enumerate(course.changes, start=1):
        told = {name: np.asarray(leaf) for name, leaf in leaves(change)}
        for name, lengths in told.items():
            if lengths.shape != (B, S):
                yield f"at word {word} {name} has shape {lengths.shape}"
                return
            if not (np.isfinite(lengths).all() and (lengths >= 0).all()):
                yield f"at word {word} {name} has what is no length"
            if np.any(lengths[~MASK] != 0):
                yield f"at word {word} {name} is not 0 at padding"
        changed, forgotten, added = told["changed"], told["forgotten"], told["added"]
        most, least = forgotten + added, np.abs(forgotten - added)
        room = 1e-5 * size(most)
        if np.any(changed > most + room) or np.any(changed < least - room):
            yield f"at word {word} what changed is not what was added and forgotten"
        moves = _moves(course.states[word - 1], course.states[word], _slots(trial))
        if moves and np.any((changed > room) & (sum(moves) == 0)):
            yield f"at word {word} it tells of slots that did not change"
        if moves and np.any((sum(moves) > 0) & (changed == 0)):
            yield f"at word {word} slots have changed that it does not tell of"
        if len(moves) == 1 and np.any(np.abs(changed - moves[0]) > 1e-3 * size(most)):
            yield f"at word {word} it tells other lengths than slots have moved by"


def scanned(trial: Trial) -> Iterator[str]:
    """In one scan over the target words, and word by word."""
    course = trial.course()
    run = jax.jit(scan, static_argnums=0)
    last, looks = run(
        trial.attention, trial.params, trial.annotations, MASK, trial.moments
    )
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *course.looks)
    yield from differences(stacked, looks, tolerance=1e-5)
    yield from differences(course.states[-1], last, tolerance=1e-5)


def hypotheses(trial: Trial) -> Iterator[str]:
    """As a search has them, on an axis behind the rows, with one Source for all."""
    attention, params = trial.attention, trial.params
    first, second = trial.moments[:2]

    @jax.jit
    def run(annotations: Array, mask: Array) -> tuple[PyTree, PyTree]:
        source = attention.prepare(params, annotations, mask)
        state = attention.initial_state(params, source)
        of = partial(step, attention, params, source)
        each = [of(state, first), of(state, second)]
        states, moments = (
            jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1), *both)
            for both in ((state, state), (first, second))
        )
        mapped = jax.vmap(of, in_axes=1, out_axes=1)(states, moments)
        return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1), *each), mapped

    by_itself, mapped = run(trial.annotations, jnp.asarray(MASK))
    yield from differences(by_itself, mapped, tolerance=1e-5)


def precision(trial: Trial) -> Iterator[str]:
    """From bfloat16 come bfloat16 contexts; from float64 nothing less precise."""

    def results(*arrays: PyTree) -> tuple[PyTree, PyTree, list[PyTree]]:
        looks, states, *shown = unroll(trial.attention, *arrays)
        contexts = [{"context": look.context} for look in looks]
        alignments = [{"alignment": look.alignment} for look in looks]
        return contexts, (alignments, *shown), states

    arrays = trial.params, trial.annotations, MASK, trial.moments
    yield from faults_of_precision(results, *arrays)


def compiled(trial: Trial) -> Iterator[str]:
    """Jitted and not."""
    eager = unroll(
        trial.attention, trial.params, trial.annotations, MASK, trial.moments
    )
    yield from differences(eager, trial.course(), tolerance=1e-5)


def gradient(trial: Trial) -> Iterator[str]:
    """No gradient is infinite or NaN, though one row has no words.

    Uncompiled: a compiler may by chance drop what is not a number.
    """
    for name, leaf in _leaves_of(trial, gradient_of(trial.attention, everything=True)):
        if not np.isfinite(leaf).all():
            yield f"the gradient of {name} is not finite"


def reach(trial: Trial) -> Iterator[str]:
    """The gradient reaches parameters and annotations, and the query if it matters."""
    *others, query = _leaves_of(trial, trial.gradient)
    yield from faults_of_gradient([*others, query] if _heeded(trial) else others)
    for params in normalised(trial.attention.init, trial.sizes):
        others = trial.annotations, MASK, trial.moments
        by_params, *_ = trial.gradient(params, *others)
        yield from faults_of_gradient(leaves(by_params))
    if trial.attention.write is not None:
        begun = {name for name, leaf in leaves(_by_first_state(trial)) if leaf.any()}
        others = [x for x in leaves(_by_second_round(trial)) if x[0] not in begun]
        for fault in faults_of_gradient(others):
            yield f"of two rounds with one State, in the second {fault}"


def _by_first_state(trial: Trial) -> PyTree:
    """The gradient of the State before the first word by parameters that begin it.

    Every State begins as the first round's, so that no other round's do.
    """
    attention = trial.attention
    source = attention.prepare(trial.params, trial.annotations, jnp.asarray(MASK))

    @jax.jit
    @jax.grad
    def gradient(params: PyTree) -> Array:
        arrays = jax.tree.leaves(attention.initial_state(params, source))
        return sum((jnp.sum(jnp.sin(x)) for x in arrays), start=jnp.zeros(()))

    return gradient(trial.params)


def _by_second_round(trial: Trial) -> PyTree:
    """The gradient by the parameters of a second round for each word.

    Its State begins as the first round's, which must not keep what only those
    parameters make.
    """
    attention, first = trial.attention, trial.params

    @jax.jit
    @jax.grad
    def gradient(second: PyTree) -> Array:
        mask = jnp.asarray(MASK)
        rounds = [
            (params, attention.prepare(params, trial.annotations, mask))
            for params in (first, second)
        ]
        state, total = attention.initial_state(*rounds[0]), jnp.zeros(())
        for moment in trial.moments[1:]:  # the first has no word to learn from
            for params, source in rounds:
                state, look = step(attention, params, source, state, moment)
                total += jnp.sum(jnp.sin(look.context))
        return total

    return gradient(first)


def _heeded(trial: Trial) -> bool:
    """Whether another query gives another context."""
    first, *others = trial.moments
    other = trial.run(
        *(trial.params, trial.annotations, MASK),
        [replace(first, query=-first.query), *others],
    )
    return bool(np.any(trial.course().looks[0].context != other.looks[0].context))


def _slots(trial: Trial) -> dict[str, int]:
    """The arrays of the State with as many rows as source words, and on which axis."""
    prepare, initial = trial.attention.prepare, trial.attention.initial_state

    def begin(columns: int) -> PyTree:
        annotations = jnp.zeros((B, columns, trial.sizes.annotation))
        source = prepare(trial.params, annotations, jnp.ones((B, columns), bool))
        return initial(trial.params, source)

    few, more = (dict(named(jax.eval_shape(partial(begin, n)))) for n in (S, S + 1))
    return {
        name: axis
        for name, leaf in few.items()
        for axis, length in reversed([*enumerate(leaf.shape)])  # the first counts
        if axis and leaf.shape[0] == B
        if (length, more[name].shape[axis : axis + 1]) == (S, (S + 1,))
    }


def _moves(before: PyTree, after: PyTree, slots: dict[str, int]) -> list[np.ndarray]:
    """By how much the slots of a State have changed, [B, S] for each array of them."""
    moved = (
        np.moveaxis(new - old, slots[name], 1)
        for name, old, new in pairs(before, after)
        if name in slots
    )
    return [np.sqrt(np.sum(x**2, axis=tuple(range(2, x.ndim)))) for x in moved]


def _leaves_of(
    trial: Trial, gradient: Callable[..., PyTree]
) -> Iterator[tuple[str, np.ndarray]]:
    by_params, by_annotations, by_query = gradient(
        trial.params, trial.annotations, MASK, trial.moments
    )
    yield from leaves(by_params)
    yield "the annotations", np.asarray(by_annotations)
    yield "the first query", np.asarray(by_query)
