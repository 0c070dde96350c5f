# SPDX-License-Identifier: Apache-2.0
"""Forced decoding: how probable given translations are, and how they are aligned."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from kvnmt.data.buckets import BATCH_SIZE, BATCH_TOKENS, pairs_in_batches
from kvnmt.devices import one_behind, own_mesh, replicate, split_rows
from kvnmt.inference.ids import check_counts, check_ids
from kvnmt.inference.trained import KEPT, Trained
from kvnmt.model.assembly import Model, Params
from kvnmt.model.contract import negative_log_likelihood
from kvnmt.typing import Array, Float, Int

LIMITS = BATCH_SIZE, BATCH_TOKENS
ROOM = 2**24  # most numbers of the alignments of one round that are held at once


class Scored(NamedTuple):
    """One pair; natural logarithms, EOS last and included.

    There is an alignment per round, ``[target + 1, source + 1]``: EOS has the last row
    and the last column; row t belongs to the t-th target word. There is a
    self-attention per mechanism that looks at earlier words, ``[target + 1, target +
    1]``: column 0 stands before the first word, column i at the i-th.
    """

    token_log_probs: list[float]
    alignments: list[NDArray[np.floating]]
    self_attention: list[NDArray[np.floating]]

    @property
    def log_prob(self) -> float:
        """Of the whole translation."""
        return sum(self.token_log_probs)


def in_parts(sizes: Iterable[int]) -> Iterator[slice]:
    """Parts of lines whose alignments are held at once.

    Args:
        sizes: How many numbers the alignments of each line are, in one round.
    """
    first, n, room = 0, -1, ROOM
    for n, size in enumerate(sizes):
        if n > first and size > room:
            yield slice(first, n)
            first, room = n, ROOM
        room -= size
    if first <= n:
        yield slice(first, n + 1)


def score(
    model: Model,
    params: Params,
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    *,
    limits: tuple[int, int] = LIMITS,
    advance: Callable[[int], None] = lambda pairs: None,
    aligned: bool = True,
    scored: bool = True,
) -> list[Scored]:
    """Scores and aligns pairs of ids without EOS; empty sentences are sentences.

    Args:
        model: The functions.
        params: The arrays.
        source: What is translated; a language model does not read it.
        target: Its translations.
        limits: Most pairs in a batch, and most positions of its longer side, padding
            included.
        advance: Called after every batch with how many pairs it held.
        aligned: Whether to tell alignments and self-attention, too.
        scored: Whether to tell log-probabilities; else no output layer is computed.

    Raises:
        UserError: The sides differ in number, or an id is no word of the vocabulary.
    """
    check_counts(len(source), "source sentences", len(target), "target sentences")
    if model.reads_source:
        check_ids(source, model.source_words, "source sentence")
    check_ids(target, model.target_words, "target sentence")
    run, mesh = compiled_score(model, aligned, scored), own_mesh()
    params = replicate(params, mesh)
    results = [Scored([], [], [])] * len(source)

    batches = pairs_in_batches(source, target, *limits, multiple=mesh.size)
    sent = ((places, run(params, *split_rows(rows, mesh))) for places, *rows in batches)
    for places, outputs in one_behind(sent):
        log_probs, rounds, looks = jax.device_get(outputs)
        for row, i in enumerate(places):
            T, S = len(target[i]) + 1, len(source[i]) + 1
            results[i] = Scored(
                token_log_probs=log_probs[row, :T].tolist() if scored else [],
                # copies, which do not keep the arrays of the batch
                alignments=[matrix[row, :T, :S].copy() for matrix in rounds],
                self_attention=[matrix[row, :T, :T].copy() for matrix in looks],
            )
        advance(len(places))
    return results


def rounds_of(model: Model, params: Params) -> int:
    """How many alignments a model gives: 0 without a source or without attention."""
    if not model.reads_source:
        return 0
    return len(_traced(model, params).features.alignments)


def looks_back(model: Model, params: Params) -> int:
    """How many mechanisms of a model look at earlier target words by self-attention."""
    return len(_traced(model, params).self_attention)


def _traced(model: Model, params: Params) -> Any:
    """The shapes of what a model predicts; nothing is computed."""
    word = jax.ShapeDtypeStruct((1, 1), np.int32)
    return jax.eval_shape(model.forward, params, word, word)


def score_lines(
    run: Trained,
    source: Sequence[str],
    target: Sequence[str],
    advance: Callable[[int], None] = lambda pairs: None,
    aligned: bool = True,
    scored: bool = True,
    limits: tuple[int, int] = LIMITS,
) -> list[Scored]:
    """Scores and aligns pairs of lines, over tokens, as `score` does."""
    return score(
        run.model,
        run.params,
        [run.vocabularies.source.encode(line) for line in source],
        [run.vocabularies.target.encode(line) for line in target],
        limits=limits,
        advance=advance,
        aligned=aligned,
        scored=scored,
    )


@lru_cache(maxsize=KEPT)
def compiled_score(
    model: Model, aligned: bool, scored: bool
) -> Callable[
    [Params, Int[Array, "B S"], Int[Array, "B T"]],
    tuple[
        Float[Array, "B T"] | None,
        tuple[Float[Array, "B T S"], ...],
        tuple[Float[Array, "B T T"], ...],
    ],
]:
    """The jitted forced decoding: log-probabilities, alignments, self-attention.

    Unless ``aligned``, the alignments and the self-attention are empty; unless
    ``scored``, the log-probabilities are None.

    The last few are kept, with their models; see `kvnmt.inference.program`.
    """

    def run(params: Params, source: Array, target: Array) -> tuple[Any, tuple, tuple]:
        prediction = model.forward(params, source, target)
        log_probs = None
        if scored:
            log_probs = -negative_log_likelihood(prediction.logits, target)
        if not aligned:
            return log_probs, (), ()
        looks = prediction.self_attention
        return log_probs, prediction.features.alignments, looks

    return jax.jit(run)
