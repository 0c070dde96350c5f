# SPDX-License-Identifier: Apache-2.0
"""Where a model and a search meet: source ids to target ids, whole corpora at once.

Sentences are sorted by length, batched in a fixed table of shapes and given back in
the order they came, so that a corpus compiles at most one program per shape.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kvnmt.data.batches import pad, with_end
from kvnmt.data.corpus import Vocabularies
from kvnmt.data.vocabulary import EOS, PAD, UNK
from kvnmt.errors import Range, UserError
from kvnmt.models import Model, Params
from kvnmt.search import Hypotheses, beam_search, greedy_search, sample_search
from kvnmt.typing import Array, Float, Int, PyTree

EDGES = (8, 12, 16, 24, 32, 48, 64, 96, 128)  # padded source lengths, EOS included


@dataclass(frozen=True)
class SearchConfig:
    """How translations are searched for."""

    beam: int = 10  # 1: greedy
    sample: bool = False  # draw words instead; draws are seeded sentence by sentence
    temperature: float = 1.0  # of drawing; below 1: more probable words
    top_k: int | None = None  # draw from so many words only
    top_p: float = 1.0  # draw from the likeliest words that reach this probability
    seed: int = 1  # of drawing
    alpha: float = 1.0  # length penalty ((5 + n) / 6) ** alpha; 0: none
    length_ratio: float = 1.5  # at most this many target words per source word ...
    length_extra: int = 10  # ... and this many more, EOS included
    min_length: int = 0  # fewest target words
    unknown: bool = True  # the unknown word may be written
    nbest: int = 1  # translations per sentence, at most as many as the beam
    batch_size: int = 64  # sentences


RANGES: dict[str, Range] = {
    "beam": (1, None),
    "temperature": (0.001, None),
    "top_k": (1, None),
    "top_p": (0.001, 1),
    "seed": (0, None),
    "alpha": (0, None),
    "length_ratio": (0, None),
    "length_extra": (1, None),
    "min_length": (0, None),
    "nbest": (1, None),
    "batch_size": (1, None),
}


class Translation(NamedTuple):
    """One translated sentence: ids without EOS, sums in nats."""

    ids: list[int]
    log_prob: float
    score: float


def translate(
    model: Model,
    params: Params,
    sentences: Sequence[Sequence[int]],
    config: SearchConfig = SearchConfig(),
    advance: Callable[[int], None] = lambda sentences: None,
) -> list[Translation]:
    """Translates sentences; an empty one stays empty. See `translate_nbest`."""
    found = translate_nbest(model, params, sentences, config, advance)
    return [translations[0] for translations in found]


def translate_nbest(
    model: Model,
    params: Params,
    sentences: Sequence[Sequence[int]],
    config: SearchConfig = SearchConfig(),
    advance: Callable[[int], None] = lambda sentences: None,
) -> list[list[Translation]]:
    """Translates sentences, each in several ways, best first.

    There may be fewer than ``config.nbest`` where no more exist; an empty sentence has
    one translation, which is empty.

    Args:
        model: The functions.
        params: The arrays.
        sentences: Source ids, without EOS.
        config: How to search.
        advance: Told of every batch how many sentences it held.

    Raises:
        UserError: More translations are asked for than the beam holds.
    """
    if config.nbest > config.beam and not config.sample:
        raise UserError(
            f"--search.nbest is {config.nbest} but a beam of {config.beam} holds no "
            "more than that; widen --search.beam."
        )
    results = [[Translation([], 0.0, 0.0)] for _ in sentences]
    run = compiled_search(model, config)
    for places, block in in_batches(sentences, config.batch_size):
        numbers = np.zeros(len(block), np.int32)
        numbers[: len(places)] = places
        found = jax.device_get(run(params, jnp.asarray(block), jnp.asarray(numbers)))
        for row, place in enumerate(places):
            results[place] = [
                Translation(
                    [int(i) for i in found.tokens[row, n] if i > EOS],
                    float(found.log_probs[row, n]),
                    float(found.scores[row, n]),
                )
                for n in range(config.nbest)
                if found.scores[row, n] > -math.inf
            ]
        advance(len(places))
    return results


def align(
    model: Model,
    params: Params,
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    *,
    batch_size: int = 64,
    advance: Callable[[int], None] = lambda pairs: None,
) -> list[list[NDArray[np.floating]]]:
    """Alignments of given pairs by forced decoding.

    Returns:
        For every pair a list with one matrix per round, ``[target + 1, source + 1]``:
        EOS has the last row and the last column. Row t is the alignment of the t-th
        target word.
    """
    run = compiled_alignment(model)
    results: list[list[NDArray[np.floating]]] = [[] for _ in source]
    for places, block in in_batches(source, batch_size, keep_empty=True):
        longest = max(len(target[i]) for i in places) + 1
        given = [with_end(target[i]) for i in places]
        forced = pad(given, len(block), edge(longest))
        rounds = jax.device_get(run(params, block, forced))
        for row, i in enumerate(places):
            rows, columns = len(target[i]) + 1, len(source[i]) + 1
            results[i] = [matrix[row, :rows, :columns] for matrix in rounds]
        advance(len(places))
    return results


def translate_lines(
    words: Vocabularies,
    model: Model,
    params: Params,
    lines: Sequence[str],
    config: SearchConfig = SearchConfig(),
    advance: Callable[[int], None] = lambda sentences: None,
) -> list[str]:
    """Translates lines of text; one line out per line in, in order."""
    ids = [words.source.encode(line) for line in lines]
    found = translate(model, params, ids, config, advance)
    return [words.target.decode(translation.ids) for translation in found]


def align_lines(
    words: Vocabularies,
    model: Model,
    params: Params,
    source: Sequence[str],
    target: Sequence[str],
    advance: Callable[[int], None] = lambda pairs: None,
) -> list[list[NDArray[np.floating]]]:
    """Alignments of given pairs of lines, over tokens, as `align` gives them."""
    return align(
        model,
        params,
        [words.source.encode(line) for line in source],
        [words.target.encode(line) for line in target],
        advance=advance,
    )


@cache
def compiled_search(
    model: Model, config: SearchConfig
) -> Callable[[Params, Int[Array, "B S"], Int[Array, " B"]], Hypotheses]:
    """The jitted search of a model: source ids and their places to hypotheses.

    The place of a sentence in its corpus, with the seed, decides what is drawn for it.
    """
    return jax.jit(partial(_search, model, config))


@cache
def compiled_alignment(
    model: Model,
) -> Callable[..., tuple[Float[Array, "B T S"], ...]]:
    """The jitted forced decoding of a model, giving every round's alignment."""

    def run(params: Params, source: Array, target: Array) -> tuple[Array, ...]:
        return model.forward(params, source, target).features.alignments

    return jax.jit(run)


def in_batches(
    sentences: Sequence[Sequence[int]], batch_size: int, *, keep_empty: bool = False
) -> Iterator[tuple[list[int], NDArray[np.int32]]]:
    """Yields places in the corpus and their padded ids, longest sentences first."""
    order = [i for i, ids in enumerate(sentences) if keep_empty or len(ids)]
    order.sort(key=lambda i: -len(sentences[i]))
    rows = min(batch_size, 1 << max(len(order) - 1, 0).bit_length())
    for start in range(0, len(order), rows):
        places = order[start : start + rows]
        longest = len(sentences[places[0]]) + 1
        yield places, pad([with_end(sentences[i]) for i in places], rows, edge(longest))


def edge(length: int) -> int:
    """The padded length for a length: from the table, or the next hundred."""
    for known in EDGES:
        if length <= known:
            return known
    return -(-length // 100) * 100


def _search(
    model: Model,
    config: SearchConfig,
    params: Params,
    source: Int[Array, "B S"],
    places: Int[Array, " B"],
) -> Hypotheses:
    bound = int(config.length_ratio * source.shape[1]) + config.length_extra
    words = jnp.sum(source >= 0, axis=1) - 1
    limits = jnp.floor(config.length_ratio * words.astype(jnp.float32))
    limits = limits.astype(jnp.int32) + config.length_extra
    constants = model.encode(params, source)
    state = model.initial_state(params, constants, bound)
    width = config.nbest if config.sample else config.beam
    state = jax.tree.map(lambda x: jnp.repeat(x[:, None], width, axis=1), state)

    def step(state: PyTree, tokens: Int[Array, "B K"]) -> tuple[PyTree, Array]:
        # Mapped over the beam, with one copy of the constants for all hypotheses.
        each = jax.vmap(partial(model.step, params, constants), in_axes=1, out_axes=1)
        state, prediction = each(state, tokens)
        log_probs = jax.nn.log_softmax(prediction.logits)
        if not config.unknown:  # the rest keeps its probability, so scores stay true
            log_probs = log_probs.at[..., UNK].set(-jnp.inf)
        return state, log_probs

    common: Any = {"length": bound, "eos": EOS, "pad": PAD}
    common["minimum"] = config.min_length
    if config.sample:
        draws = jnp.arange(width)
        keys = jax.vmap(lambda n: jax.vmap(partial(_key, config.seed, n))(draws))
        common |= {"temperature": config.temperature, "top_k": config.top_k}
        return sample_search(
            step, state, limits, keys(places), top_p=config.top_p, **common
        )
    if config.beam == 1:
        return greedy_search(step, state, limits, **common)
    return beam_search(
        *(step, state, limits),
        **{"beam": config.beam, "alpha": config.alpha, "count": config.nbest},
        **common,
    )


def _key(seed: int, place: Int[Array, ""], draw: Int[Array, ""]) -> Array:
    key = jax.random.fold_in(jax.random.key(seed), place)
    return jax.random.fold_in(key, draw)
