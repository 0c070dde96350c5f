# SPDX-License-Identifier: Apache-2.0
"""Where a model and a search meet: the compiled program from source ids to hypotheses.

Numbers that change no shape (exponents, temperatures, the seed) are arguments of the
program, so that trying another value compiles nothing; see `kvnmt.inference.config`.

The last few programs are kept, with the models that they are of. What is older is
freed, so that a process may use any number of models one after the other.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from kvnmt.data.vocabulary import EOS, PAD, UNK
from kvnmt.devices import own_mesh
from kvnmt.errors import OptionError
from kvnmt.inference.config import (
    Number,
    Numbers,
    SearchConfig,
    Shape,
    check_search,
    numbers_of,
    shape_of,
)
from kvnmt.inference.trained import KEPT
from kvnmt.model.assembly import Model, Params
from kvnmt.search import (
    Hypotheses,
    Ranking,
    Sentences,
    Words,
    beam_search,
    greedy_search,
    length_divisors,
    normalise,
    sample_search,
)
from kvnmt.typing import Array, Bool, Float, Int, PyTree

ROUNDING = 1e-9  # a product that is a whole number may be less by this
LEAST_COVERED = 1e-6  # attention that a word counts as having had, at least


class _Source(NamedTuple):
    """What is constant for a sentence."""

    model: PyTree
    words: Bool[Array, "B S"]  # real words, EOS not among them
    limits: Int[Array, " B"]
    prefix: Int[Array, "B P"] | None


def compiled_search(model: Model, config: SearchConfig) -> Callable[..., Hypotheses]:
    """The jitted search of a model, over rows and among all words or some.

    It is called with ``(params, source, places, prefix, allowed, words=None)``, the
    first five by their places; prefix and allowed may be None, or left out.

    The source [B, S] holds ids; a row without any is no sentence. The places [B] of the
    sentences in their corpus, with the seed, decide what is drawn for them. A prefix
    [B, P] holds the ids that translations begin with, PAD behind them. With words [C],
    ids in rising order from EOS and UNK on, a sentence is translated with those that
    are allowed [B, C] for it, which EOS, UNK and its prefix must be.

    Raises:
        UserError: What `check_search` raises; from the call, that coverage is to be
            scored where nothing is aligned.
    """
    return partial(program(model, config), numbers_of(config))


def program(
    model: Model, config: SearchConfig, mesh: Mesh | None = None
) -> jax.stages.Wrapped:
    """What `compiled_search` runs; one for all configs of the same `Shape`.

    Args:
        model: The functions.
        config: How is searched.
        mesh: Of the devices that share the rows; None: those of this process.

    Raises:
        UserError: What `check_search` raises.
    """
    check_search(config)
    return _program(model, shape_of(config), mesh)


def search_rows(
    model: Model, config: SearchConfig, params: Params, source: Array, places: Array
) -> Hypotheses:
    """What `compiled_search` compiles, for a program that does more than search."""
    shape, numbers = shape_of(config), numbers_of(config)
    return _search(model, shape, numbers, params, None, source, places)


@lru_cache(maxsize=KEPT)
def _program(model: Model, shape: Shape, mesh: Mesh | None) -> jax.stages.Wrapped:
    return jax.jit(partial(_shared, partial(_search, model, shape), mesh))


def _shared(
    search: Callable[..., Hypotheses],
    mesh: Mesh | None,
    numbers: Numbers,
    params: Params,
    *rows: Array,
    words: Int[Array, " C"] | None = None,
) -> Hypotheses:
    """The search on every device's own rows, where they divide evenly."""
    mesh, by_rows = own_mesh() if mesh is None else mesh, PartitionSpec("data")
    if mesh.size == 1 or len(rows[0]) % mesh.size:
        return search(numbers, params, words, *rows)
    # Devices do not wait for each other's longest sentence, as one program would.
    return jax.shard_map(
        search,
        mesh=mesh,
        in_specs=(*[PartitionSpec()] * 3, *[by_rows] * len(rows)),
        out_specs=by_rows,
        check_vma=False,
    )(numbers, params, words, *rows)


def _search(
    model: Model,
    shape: Shape,
    numbers: Numbers,
    params: Params,
    words: Int[Array, " C"] | None,
    source: Int[Array, "B S"],
    places: Int[Array, " B"],
    prefix: Int[Array, "B P"] | None = None,
    allowed: Bool[Array, "B C"] | None = None,
) -> Hypotheses:
    limits, length = _limits(shape, source, prefix)
    constants = model.encode(params, source)
    if words is not None and allowed is not None:
        params, constants = model.narrow(params, constants, words, allowed)
        prefix = prefix if prefix is None else _places_among(words, prefix)
    state: dict[str, PyTree] = {"model": model.initial_state(params, constants, length)}
    if shape.covered:
        state["covered"] = jnp.zeros(source.shape)
    sentences = Sentences(
        source=_Source(constants, source > EOS, limits, prefix),
        state=jax.tree.map(
            lambda leaf: jnp.repeat(leaf[:, None], shape.width, axis=1), state
        ),
        limits=limits,
        keys=_keys(numbers.seed, places, shape.width) if shape.sample else None,
    )
    ranking = Ranking(
        length_divisors(length, numbers.alpha, numbers.offset),
        partial(_reward, numbers.coverage) if shape.covered else None,
    )
    step = partial(_step, model, params, shape.unknown, numbers.minimum)
    shrinks = max(len(source).bit_length() // 2 - 2, 0)  # 64 rows: once
    search = _strategy(shape, numbers)
    hypotheses = search(
        step, sentences, ranking, length=length, eos=EOS, pad=PAD, shrinks=shrinks
    )
    return hypotheses if words is None else _in_vocabulary(words, hypotheses)


def _in_vocabulary(words: Int[Array, " C"], hypotheses: Hypotheses) -> Hypotheses:
    """The same with ids of the vocabulary in the place of places among words."""
    tokens = hypotheses.tokens
    return replace(hypotheses, tokens=jnp.where(tokens < 0, tokens, words[tokens]))


def _places_among(words: Int[Array, " C"], ids: Int[Array, "B P"]) -> Int[Array, "B P"]:
    """Where ids stand among words in rising order; padding stays."""
    return jnp.where(ids < 0, ids, jnp.searchsorted(words, ids).astype(ids.dtype))


def _strategy(shape: Shape, numbers: Numbers) -> Callable[..., Hypotheses]:
    if shape.sample:
        return partial(
            sample_search,
            temperature=numbers.temperature,
            top_k=shape.top_k,
            top_p=numbers.top_p if shape.cut else None,
        )
    if shape.beam == 1:
        return greedy_search
    return partial(
        beam_search,
        beam=shape.beam,
        count=shape.nbest,
        diversity=numbers.diversity if shape.diverse else None,
    )


def _limits(
    shape: Shape, source: Int[Array, "B S"], prefix: Int[Array, "B P"] | None
) -> tuple[Int[Array, " B"], int]:
    """How many words each row may get, EOS included, and a static bound on it.

    A row's limit depends on the row alone; a prefix is always given room.
    """
    length = math.ceil(shape.length_ratio * (source.shape[1] - 1))
    length += shape.length_extra
    words = jnp.sum(source >= 0, axis=1) - 1
    # In float32, 0.42 times 150 words would be a word short. A row without a sentence
    # reads the last place.
    products = shape.length_ratio * np.arange(source.shape[1]) + ROUNDING
    limits = jnp.asarray(np.floor(products), jnp.int32)[words] + shape.length_extra
    if shape.max_length is not None:
        limits = jnp.minimum(limits, shape.max_length + 1)
        length = min(length, shape.max_length + 1)
    if prefix is not None:
        limits = jnp.maximum(limits, jnp.sum(prefix >= 0, axis=1) + 1)
        length = max(length, prefix.shape[1] + 1)
    return jnp.where(words >= 0, limits, 0), length


def _step(
    model: Model,
    params: Params,
    unknown: bool,
    minimum: Number,
    source: _Source,
    state: dict[str, PyTree],
    tokens: Int[Array, "B K"],
    t: Int[Array, ""],
) -> tuple[dict[str, PyTree], Words]:
    # Mapped over the beam, with one copy of the constants for all hypotheses.
    def advance(state: PyTree, tokens: Array) -> tuple[PyTree, Array, PyTree]:
        new, prediction = model.step(params, source.model, state, tokens)
        return new, prediction.logits, prediction.features.alignments[-1:]

    each = jax.vmap(advance, in_axes=1, out_axes=1)
    inner, logits, alignments = each(state["model"], tokens)
    new = {"model": inner}
    if "covered" in state:
        if not alignments:
            raise OptionError(
                "{0} needs an alignment, and this system has none.",
                "coverage",
                prefix="search.",
            )
        new["covered"] = state["covered"] + alignments[0]
    return new, _words(logits, source, t, unknown, minimum)


def _words(
    logits: Float[Array, "B K V"],
    source: _Source,
    t: Int[Array, ""],
    unknown: bool,
    minimum: Number,
) -> Words:
    """What may be written; it keeps its probability."""
    early = (t < minimum) & (t + 1 < source.limits)
    barred, forced = {EOS: early}, None
    if not unknown:
        barred[UNK] = jnp.ones_like(early)
    if source.prefix is not None:
        longest = source.prefix.shape[1]
        word = source.prefix[:, jnp.minimum(t, longest - 1)]
        forced = jnp.where(t < longest, word, PAD)
    peaks, totals = normalise(logits)
    return Words(
        logits=logits,
        peaks=peaks,
        totals=totals,
        barred=jnp.stack([*barred.values()], axis=1),
        barred_ids=(*barred,),
        forced=forced,
    )


def _reward(
    weight: Number, source: _Source, state: dict[str, PyTree]
) -> Float[Array, "B K"]:
    """The coverage penalty, at most 0: the sum of ``log min(attention had, 1)``."""
    had = jnp.clip(state["covered"], LEAST_COVERED, 1.0)
    logs = jnp.where(source.words[:, None], jnp.log(had), 0)
    return weight * jnp.sum(logs, axis=-1)


def _keys(seed: Number, places: Int[Array, " B"], draws: int) -> Array:
    """A key for every draw [B, draws], by its sentence's place in the corpus."""

    def of(place: Int[Array, ""], draw: Int[Array, ""]) -> Array:
        sentence = jax.random.fold_in(jax.random.key(seed), place)
        return jax.random.fold_in(sentence, draw)

    return jax.vmap(lambda n: jax.vmap(partial(of, n))(jnp.arange(draws)))(places)
