# SPDX-License-Identifier: Apache-2.0
"""The laws of an attention under its contract, each a list of what breaks it."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.attention import Attended
from kvnmt.laws.law import (
    Law,
    differences,
    faults_of_form,
    faults_of_init,
    faults_of_precision,
    leaves,
    named,
    pairs,
)
from kvnmt.laws.trial import MASK, B, Course, S, Trial, gradient_of, scan, unroll
from kvnmt.typing import PyTree

ORDER = np.array([3, 0, 4, 2, 1])  # of source words
# The empty row leaves, the first comes twice; then each with copies of itself alone.
COMPANIES = ([1, 0, 0], [0, 0, 0], [1, 1, 1])
MORE = 2  # columns of padding
TINY = 1e-30  # for no sum to be divided by


def init(trial: Trial) -> Iterator[str]:
    """The numbers that training starts from."""
    yield from faults_of_init(trial.attention.init, trial.sizes)


def source(trial: Trial) -> Iterator[str]:
    """Every array of the Source begins with the rows, however many there are."""
    for rows in (B, B - 1):
        annotations, mask = np.asarray(trial.annotations)[:rows], MASK[:rows]
        prepared = jax.eval_shape(
            trial.attention.prepare, trial.params, annotations, mask
        )
        for name, leaf in named(prepared):
            if leaf.shape[:1] != (rows,):
                yield f"of {rows} rows, {name} has shape {leaf.shape}"


def context(trial: Trial) -> Iterator[str]:
    """Shapes and finite numbers of everything that is read."""
    shape = B, trial.attention.context_size(trial.sizes)
    for word, look in enumerate(trial.course().looks, start=1):
        if look.context.shape != shape:
            yield f"the context of word {word} has shape {look.context.shape}"
        if look.alignment is not None and look.alignment.shape != (B, S):
            yield f"the alignment of word {word} has shape {look.alignment.shape}"
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(look)):
            yield f"what is read at word {word} is not finite"


def total(trial: Trial) -> Iterator[str]:
    """Alignments are distributions."""
    for word, alignment in _alignments(trial.course()):
        sums = alignment.sum(axis=1)
        if not np.allclose(sums, [1, 1, 0], rtol=0, atol=1e-6):
            shown = ", ".join(f"{value:.4g}" for value in sums)
            yield f"at word {word} the alignments sum to {shown}"


def padding(trial: Trial) -> Iterator[str]:
    """Padding gets no weight."""
    for word, alignment in _alignments(trial.course()):
        if not (alignment[~MASK] == 0).all():
            most = np.abs(alignment[~MASK]).max()
            yield f"at word {word} padding gets up to {most:.2g}"


def support(trial: Trial) -> Iterator[str]:
    """Every real word gets some weight."""
    for word, alignment in _alignments(trial.course()):
        if not (alignment[MASK] > 0).all():
            yield f"at word {word} the least weight is {alignment[MASK].min():.2g}"


def weighed(trial: Trial) -> Iterator[str]:
    """Weights with signs are those that the alignment shows the sizes of."""
    course, heads = trial.course(), trial.attention.weighed_heads
    for word, told in enumerate(course.told, start=1):
        signed, own = np.asarray(told.signed), np.asarray(told.own)
        if signed.shape != (B, heads, S) or own.shape != (B,):
            yield f"what is told of word {word} has shapes {signed.shape}, {own.shape}"
            continue
        if np.any(np.moveaxis(signed, 1, -1)[~MASK] != 0):
            yield f"at word {word} padding has weights"
        if not ((own >= 0) & (own <= 1)).all():
            yield f"at word {word} shares of own writes lie outside of 0 to 1"
        sizes = np.abs(signed).sum(axis=1)
        shares = sizes / np.maximum(sizes.sum(axis=1, keepdims=True), TINY)
        shown = course.looks[word - 1].alignment
        if shown is None or not np.allclose(shown, shares, rtol=0, atol=1e-5):
            yield f"at word {word} the alignment is not the share of the weights' sizes"


def unread(trial: Trial) -> Iterator[str]:
    """Other numbers at padding change nothing, to the bit."""
    other = np.where(MASK[..., None], trial.annotations, np.float32(1e3))
    changed = trial.run(trial.params, other, MASK, trial.moments)
    yield from differences(trial.course().looks, changed.looks, tolerance=0)


def wider(trial: Trial) -> Iterator[str]:
    """More columns of padding change nothing."""
    annotations = np.pad(trial.annotations, ((0, 0), (0, MORE), (0, 0)))
    mask = np.pad(MASK, ((0, 0), (0, MORE)))
    course = trial.run(trial.params, jnp.asarray(annotations), mask, trial.moments)
    looks = _at(course.looks, np.arange(S))
    yield from differences(trial.course().looks, looks, tolerance=1e-5)


def order(trial: Trial) -> Iterator[str]:
    """Source words in another order: the alignment follows, the context stays."""
    annotations, mask = np.asarray(trial.annotations)[:, ORDER], MASK[:, ORDER]
    moved = trial.run(trial.params, annotations, mask, trial.moments)
    looks = _at(trial.course().looks, ORDER)
    yield from differences(looks, moved.looks, tolerance=1e-5)


def rows(trial: Trial) -> Iterator[str]:
    """Sentences in other rows and company."""
    for company in COMPANIES:
        annotations, moments, course = jax.tree.map(
            lambda leaf, rows=company: np.asarray(leaf)[rows],
            (trial.annotations, trial.moments, trial.course()),
        )
        other = trial.run(trial.params, annotations, MASK[company], moments)
        for difference in differences(course, other, tolerance=1e-5):
            yield f"in rows {company}, {difference}"


def state(trial: Trial) -> Iterator[str]:
    """The State keeps its form and lets a search reorder it; every write is seen."""
    states = trial.course().states
    faults = list(faults_of_form(states, B))
    yield from faults
    if not faults:
        first, *later = states
        for word, now in enumerate(later, start=1):
            for name, old, new in pairs(first, now):
                if not np.any(new[:2] != old[:2]):
                    yield f"after word {word} {name} is what it was at first"


def kept(trial: Trial) -> Iterator[str]:
    """What is carried of padding stays as it began."""
    first, *later = trial.course().states
    for word, now in enumerate(later, start=1):
        for name, old, new in pairs(first, now):
            slots = old.shape == new.shape and old.shape[:2] == (B, S)
            if slots and np.any(new[~MASK] != old[~MASK]):
                yield f"after word {word} {name} has changed at padding"


def explained(trial: Trial) -> Iterator[str]:
    """Lengths of what a write does: new - old = added - forgotten."""
    for word, change in enumerate(trial.course().changes, start=1):
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
        if np.any(changed > most + 1e-4) or np.any(changed < least - 1e-4):
            yield f"at word {word} what changed is not what was added and forgotten"


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


def precision(trial: Trial) -> Iterator[str]:
    """In bfloat16 contexts are of it, and in float64 nothing is coarser."""

    def results(*arrays: PyTree) -> tuple[PyTree, PyTree, list[PyTree]]:
        looks, states, *_ = unroll(trial.attention, *arrays)
        contexts = [{"context": look.context} for look in looks]
        alignments = [{"alignment": look.alignment} for look in looks]
        return contexts, alignments, states

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
    for name, leaf in _leaves_of(trial, gradient_of(trial.attention)):
        if not np.isfinite(leaf).all():
            yield f"the gradient of {name} is not finite"


def reach(trial: Trial) -> Iterator[str]:
    """The gradient reaches everything that it should."""
    for name, leaf in _leaves_of(trial, trial.gradient):
        if not np.isfinite(leaf).all():
            yield f"the gradient of {name} is not finite once compiled"
        elif not np.any(leaf != 0):
            yield f"the gradient of {name} is 0"


LAWS = (
    Law("init", "parameters begin with finite numbers, drawn from the key", init),
    Law("source", "every array of the Source begins with the rows", source),
    Law("context", "what is read has the promised shapes and is finite", context),
    Law("sum", "an alignment sums to 1, of a row without words to 0", total),
    Law("padding", "padding gets no weight", padding),
    Law("support", "every real word gets some weight", support),
    Law("weighed", "an alignment shows the sizes of what `weigh` tells", weighed),
    Law("unread", "what lies at padding is never read", unread),
    Law("wider", "more padding changes nothing", wider),
    Law("order", "source words in another order are read the same", order),
    Law("rows", "the rows of a batch do not know each other", rows),
    Law("state", "writes change the State and keep its form", state),
    Law("kept", "writes leave the slots at padding as they began", kept),
    Law("explained", "what `explain` tells of a write adds up", explained),
    Law("scanned", "in a scan it computes what it computes word by word", scanned),
    Law("precision", "it keeps to the precision of what it is given", precision),
    Law("compiled", "compiled it computes what it computes uncompiled", compiled),
    Law("gradient", "gradients are finite, also with an empty row", gradient),
    Law("reach", "the loss has a finite gradient in every parameter", reach),
)


def _alignments(course: Course) -> Iterator[tuple[int, np.ndarray]]:
    """The number of the target word, and its alignment where there is one."""
    for word, look in enumerate(course.looks, start=1):
        if look.alignment is not None:
            yield word, np.asarray(look.alignment)


def _at(looks: list[Attended], columns: np.ndarray) -> list[Attended]:
    """The same looks at some source words."""
    return [
        look
        if look.alignment is None
        else replace(look, alignment=look.alignment[:, columns])
        for look in looks
    ]


def _leaves_of(
    trial: Trial, gradient: Callable[..., PyTree]
) -> Iterator[tuple[str, np.ndarray]]:
    by_params, by_annotations = gradient(
        trial.params, trial.annotations, MASK, trial.moments
    )
    yield from leaves(by_params)
    yield "the annotations", np.asarray(by_annotations)
