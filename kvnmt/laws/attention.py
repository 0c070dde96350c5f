# SPDX-License-Identifier: Apache-2.0
"""The laws of an attention under its contract, each a list of what breaks it."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.attention import Attended
from kvnmt.laws.law import Law, differences, leaves, pairs
from kvnmt.laws.trial import MASK, B, Course, S, Trial, gradient_of, unroll
from kvnmt.typing import PyTree

ORDER = np.array([3, 0, 4, 2, 1])  # of source words
ROWS = np.array([1, 0, 0])  # the empty row leaves, the first comes twice
MORE = 2  # columns of padding
TINY = 1e-30  # for no sum to be divided by


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
    annotations, moments, course = jax.tree.map(
        lambda leaf: np.asarray(leaf)[ROWS],
        (trial.annotations, trial.moments, trial.course()),
    )
    other = trial.run(trial.params, annotations, MASK[ROWS], moments)
    yield from differences(course, other, tolerance=1e-5)


def state(trial: Trial) -> Iterator[str]:
    """The State keeps its form and lets a search reorder it; every write is seen."""
    first, *later = trial.course().states
    for word, now in enumerate(later, start=1):
        if jax.tree.structure(now) != jax.tree.structure(first):
            yield f"after word {word} the State has another structure"
            continue
        for name, old, new in pairs(first, now):
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                yield (
                    f"after word {word} {name} is {new.dtype}{list(new.shape)}, at "
                    f"first {old.dtype}{list(old.shape)}"
                )
            elif new.shape[:1] != (B,):
                yield f"{name} has shape {new.shape}; its first axis is not the rows"
            elif not np.any(new[:2] != old[:2]):
                yield f"after word {word} {name} is what it was at first"


def kept(trial: Trial) -> Iterator[str]:
    """What is carried of padding stays as it began."""
    first, *later = trial.course().states
    for word, now in enumerate(later, start=1):
        for name, old, new in pairs(first, now):
            slots = old.shape == new.shape and old.shape[:2] == (B, S)
            if slots and np.any(new[~MASK] != old[~MASK]):
                yield f"after word {word} {name} has changed at padding"


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
