# SPDX-License-Identifier: Apache-2.0
"""Minimum risk training (Shen et al. 2016): the model learns from its own translations.

The likelihood knows the words of the reference alone, each after the right ones before.
The risk of a sentence is what whole translations by the model lack, on average::

    R = sum_y Q(y) (1 - BLEU(y, y*))          over the candidates y of a sentence
    Q(y) = P(y | x)^a / sum_y' P(y' | x)^a

Candidates are drawn from the model as it is, each counts once, and the reference y* is
one of them, as in the paper. BLEU is that of one sentence, with one added to the counts
of 2- to 4-grams (Lin and Och 2004). All of it is computed within a step, on the device.

Departures: BLEU is of the words of the vocabulary, subwords if it has those, and a word
that is not in it is like no other. P is of the main predictor, where several learn
together. The a of the paper is 0.005; ours is ``1 / |y*|``, so that Q is as even among
long translations as among short ones, and R is weighted by ``|y*|``: a sum over words
as all other terms are, and ``d |y*| R / d log P(y) = Q(y) (1 - BLEU(y) - R)``.
"""

from typing import Any

import jax
import jax.numpy as jnp

from kvnmt.data.vocabulary import EOS, PAD, UNK
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.program import search_rows
from kvnmt.layers import Scanning
from kvnmt.model.assembly import Model, Params
from kvnmt.training.cross_entropy import word_nats
from kvnmt.typing import Array, Bool, Float, Int, Key

ORDER = 4  # of the longest n-grams
MULTIPLIER = 2654435761  # of a hash of words (Knuth)
ROOM = 4  # a draw may be longer than its reference by one word of so many
DRAWING, WEIGHING = 2**31 - 1, 2**31 - 2  # what keys are made apart by


def draw(
    model: Model,
    params: Params,
    source: Int[Array, "B S"],
    target: Int[Array, "B T"],
    keys: Key[Array, " B"],
    samples: int,
    scanning: Scanning = Scanning(),
) -> Int[Array, "B N L"]:
    """The candidates of every sentence: its reference, then what the model draws.

    A draw that reaches the most words, those of its reference and a quarter more, ends
    there. It depends on the sentence and its key alone, not on what else is in the
    batch. Nothing is drawn for a row that is no sentence.
    """
    most = _limit(target.shape[1])
    search = SearchConfig(
        sample=True, nbest=samples, length_ratio=0.0, length_extra=most
    )
    places = jax.vmap(jax.random.bits)(_apart(keys, DRAWING))
    drawn = search_rows(model, search, params, source, places, scanning).tokens
    limits = _limit(jnp.sum(target >= 0, axis=1))[:, None, None]
    place = jnp.arange(most)
    drawn = jnp.where((place == limits - 1) & (drawn >= 0), EOS, drawn)
    drawn = jnp.where(place < limits, drawn, PAD)
    # The search ranked the draws, some by words that are cut off now. This order
    # depends only on the words that are left.
    powers = jnp.uint32(MULTIPLIER) ** place.astype(jnp.uint32)
    order = jnp.argsort(jnp.sum((drawn + 1).astype(jnp.uint32) * powers, axis=-1))
    drawn = jnp.take_along_axis(drawn, order[..., None], axis=1)
    missing = most - target.shape[1]
    references = jnp.pad(target, ((0, 0), (0, missing)), constant_values=PAD)
    return jnp.concatenate([references[:, None], drawn], axis=1)


def expected(
    model: Model,
    params: Params,
    source: Int[Array, "B S"],
    candidates: Int[Array, "B N L"],
    keys: Key[Array, " B"],
    scanning: Scanning = Scanning(),
) -> Float[Array, " B"]:
    """The risk of every sentence, times the words of its reference, EOS included.

    Args:
        model: The functions.
        params: By which candidates are more or less probable.
        source: Ids.
        candidates: Of each sentence; the first is the reference.
        keys: Of the dropout, which is not that of the same keys elsewhere.
        scanning: How scans are computed.
    """
    (rows, count, _), references = candidates.shape, candidates[:, 0]
    several = jax.vmap(lambda key: jax.random.split(key, count))
    each = several(_apart(keys, WEIGHING)).reshape(-1)
    flat = candidates.reshape(rows * count, -1)
    sources = jnp.repeat(source, count, axis=0)
    prediction = model.forward(params, sources, flat, each, scanning)
    nats = jnp.sum(word_nats(prediction.heads[0], flat), axis=1).reshape(rows, count)
    words = jnp.sum(references >= 0, axis=1)
    scores = jnp.where(
        _first(candidates), -nats / jnp.maximum(words, 1)[:, None], -jnp.inf
    )
    lacks = 1 - sentence_bleu(candidates, references[:, None])
    return words * jnp.sum(jax.nn.softmax(scores, axis=1) * lacks, axis=1)


def sentence_bleu(
    hypotheses: Int[Array, "*N L"], references: Int[Array, "*N T"]
) -> Float[Array, "*N"]:
    """BLEU of one sentence, 0 to 1, with one added to counts of 2-grams and longer.

    EOS and padding are no words, and an unknown word is a wrong one. A hypothesis
    without a word of the reference has 0.
    """
    has, lacks = hypotheses > EOS, references > EOS
    same = _pairs(hypotheses, hypotheses, has, has)
    common = _pairs(hypotheses, references, has, lacks)
    earlier = jnp.tril(jnp.ones(same.shape[-2:], bool), -1)
    words = jnp.sum(has, axis=-1)
    logs = jnp.zeros(words.shape)
    right, repeated = common, same
    for n in range(1, ORDER + 1):
        if n > 1:
            right, repeated = (
                right & _moved(common, n - 1),
                repeated & _moved(same, n - 1),
            )
        # An n-gram that is said for the k-th time is right if the reference has k.
        said = jnp.sum(repeated & earlier, axis=-1)
        matches = jnp.sum(jnp.sum(right, axis=-1) > said, axis=-1)
        more = int(n > 1)
        total = jnp.maximum(words - n + 1, 0) + more
        logs = logs + jnp.log((matches + more) / jnp.maximum(total, 1))
    longer = jnp.sum(lacks, axis=-1) / jnp.maximum(words, 1)
    return jnp.exp(logs / ORDER + jnp.minimum(1 - longer, 0))


def _limit(words: Any) -> Any:
    """Most words of a draw, EOS included, by those of its reference."""
    return words + -(-words // ROOM)


def _apart(keys: Key[Array, " B"], purpose: int) -> Key[Array, " B"]:
    """Keys that have nothing to do with what others make of the same ones."""
    return jax.vmap(lambda key: jax.random.fold_in(key, purpose))(keys)


def _pairs(
    a: Int[Array, "*N L"], b: Int[Array, "*N T"], has: Array, others: Array
) -> Bool[Array, "*N L T"]:
    """Which words of two sentences are the same; unknown ones may be any."""
    known = has & (a != UNK)
    same = a[..., :, None] == b[..., None, :]
    return same & known[..., :, None] & others[..., None, :]


def _moved(same: Bool[Array, "*N L T"], by: int) -> Bool[Array, "*N L T"]:
    """What holds so many words later on both sides; nothing behind the end."""
    L, T = same.shape[-2:]
    by = min(by, L, T)
    around = [(0, 0)] * (same.ndim - 2) + [(0, by), (0, by)]
    return jnp.pad(same[..., by:, by:], around)


def _first(candidates: Int[Array, "B N L"]) -> Bool[Array, "B N"]:
    """Candidates that none before them is the same as."""
    same = jnp.all(candidates[:, :, None] == candidates[:, None], axis=-1)
    return ~jnp.any(jnp.tril(same, -1), axis=-1)
