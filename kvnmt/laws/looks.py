# SPDX-License-Identifier: Apache-2.0
"""The laws of what an attention reads, each a list of what breaks it."""

from collections.abc import Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.laws.law import (
    LARGE,
    differences,
    faults_of_init,
    faults_of_sharp,
    named,
    not_finite,
)
from kvnmt.laws.trial import MASK, B, Course, S, Trial
from kvnmt.typing import PyTree

ORDER = np.array([3, 0, 4, 2, 1])  # of source words
# The empty row leaves and the first comes twice; each of the others alone.
ROWS = ([1, 0, 0], [0], [1])
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
    attention, sizes = trial.attention, trial.sizes
    shape = B, (width := attention.context_size(sizes))
    if not 0 <= attention.unread(sizes) < width:
        yield f"{attention.unread(sizes)} of {width} columns are to be unread"
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
        elif own.any() and (word == 1 or trial.attention.write is None):
            yield f"at word {word} it tells of own writes, and nothing is written yet"
        sizes = np.abs(signed).sum(axis=1)
        shares = sizes / np.maximum(sizes.sum(axis=1, keepdims=True), TINY)
        shown = course.looks[word - 1].alignment
        if shown is None or not np.allclose(shown, shares, rtol=0, atol=1e-5):
            yield f"at word {word} the alignment is not the share of the weights' sizes"


def unread(trial: Trial) -> Iterator[str]:
    """Other numbers at padding change nothing, to the bit."""
    other = np.where(MASK[..., None], trial.annotations, np.float32(1e3))
    changed = trial.run(trial.params, other, MASK, trial.moments)
    yield from differences(_told(trial.course()), _told(changed), tolerance=0)


def wider(trial: Trial) -> Iterator[str]:
    """More columns of padding change nothing."""
    annotations = np.pad(trial.annotations, ((0, 0), (0, MORE), (0, 0)))
    mask = np.pad(MASK, ((0, 0), (0, MORE)))
    course = trial.run(trial.params, jnp.asarray(annotations), mask, trial.moments)
    told = _told(course, np.arange(S))
    yield from differences(_told(trial.course()), told, tolerance=1e-5)


def order(trial: Trial) -> Iterator[str]:
    """Source words in another order: the alignment follows, the context stays."""
    annotations, mask = np.asarray(trial.annotations)[:, ORDER], MASK[:, ORDER]
    moved = trial.run(trial.params, annotations, mask, trial.moments)
    told = _told(trial.course(), ORDER)
    yield from differences(told, _told(moved), tolerance=1e-5)


def rows(trial: Trial) -> Iterator[str]:
    """Sentences in other rows and company, and each by itself."""
    for rows in ROWS:
        annotations, moments, course = jax.tree.map(
            lambda leaf, rows=rows: np.asarray(leaf)[rows],
            (trial.annotations, trial.moments, trial.course()),
        )
        other = trial.run(trial.params, annotations, MASK[rows], moments)
        for difference in differences(course, other, tolerance=1e-5):
            yield f"of a batch of rows {rows}, {difference}"


def large(trial: Trial) -> Iterator[str]:
    """Numbers far larger than usual: an exponential of an energy may overflow."""
    annotations, moments = jax.tree.map(
        lambda leaf: LARGE * leaf, (trial.annotations, trial.moments)
    )

    def run(params: PyTree, *arrays: PyTree) -> PyTree:
        course = trial.run(params, *arrays)
        return {"looks": course.looks, "states": course.states}

    yield from not_finite(run(trial.params, annotations, MASK, moments))
    # Additive energies are bounded whatever is read, but for larger parameters.
    usual = trial.annotations, MASK, trial.moments
    yield from faults_of_sharp(lambda params: run(params, *usual), trial.params)


def _alignments(course: Course) -> Iterator[tuple[int, np.ndarray]]:
    """The number of the target word, and its alignment where there is one."""
    for word, look in enumerate(course.looks, start=1):
        if look.alignment is not None:
            yield word, np.asarray(look.alignment)


def _told(course: Course, columns: np.ndarray | slice = slice(None)) -> PyTree:
    """What is read, and what people are told of it, at some source words."""
    looks = [
        look
        if look.alignment is None
        else replace(look, alignment=look.alignment[:, columns])
        for look in course.looks
    ]
    told = [replace(each, signed=each.signed[..., columns]) for each in course.told]
    changes = jax.tree.map(lambda x: x[:, columns] if x.ndim > 1 else x, course.changes)
    return looks, told, changes
