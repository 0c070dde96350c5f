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

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from kvnmt.data.vocabulary import EOS, PAD
from kvnmt.devices import own_mesh
from kvnmt.errors import UserError
from kvnmt.inference.config import (
    Number,
    Numbers,
    SearchConfig,
    Shape,
    check_search,
    longest,
    numbers_of,
    shape_of,
)
from kvnmt.inference.step import Source, initial_state, reward, step
from kvnmt.inference.trained import KEPT
from kvnmt.layers import Scanning, joining_pays, merged, merging_pays
from kvnmt.model.assembly import Model, Params
from kvnmt.search import (
    Hypotheses,
    Loops,
    Ranking,
    Sentences,
    beam_search,
    greedy_search,
    length_divisors,
    sample_search,
)
from kvnmt.typing import Array, Bool, Int


def compiled_search(model: Model, config: SearchConfig) -> Callable[..., Hypotheses]:
    """The jitted search of a model, over rows and among all words or some.

    It is called with ``(params, source, places, prefix, allowed, words=None)``, the
    first five by their places; prefix and allowed may be None, or left out.

    The source [B, S] holds ids; a row without any is no sentence. The places [B] of the
    sentences in their corpus, with the seed, decide what is drawn for them. A prefix
    [B, P] holds the ids that translations begin with, PAD behind them. Words [C] are
    ids in rising order, EOS and UNK first: a sentence is translated with those that are
    allowed [B, C] for it. EOS, UNK and its prefix must be allowed. None: all words.

    Raises:
        UserError: What `check_search` raises; from the call, that coverage is to be
            scored where nothing is aligned, or what is allowed is of no words.
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
    model: Model,
    config: SearchConfig,
    params: Params,
    source: Array,
    places: Array,
    scanning: Scanning = Scanning(),
) -> Hypotheses:
    """What `compiled_search` compiles, for a program that does more than search.

    If products are merged in ``scanning``, its matrices are put side by side before its
    loops.
    """
    shape, numbers = shape_of(config), numbers_of(config)
    return _search(model, shape, scanning, numbers, params, None, source, places)


@lru_cache(maxsize=KEPT)
def _program(model: Model, shape: Shape, mesh: Mesh | None) -> jax.stages.Wrapped:
    return jax.jit(partial(_shared, model, shape, mesh))


def _shared(
    model: Model,
    shape: Shape,
    mesh: Mesh | None,
    numbers: Numbers,
    params: Params,
    *rows: Array,
    words: Int[Array, " C"] | None = None,
) -> Hypotheses:
    """The search on every device's own rows, where they divide evenly."""
    mesh, by_rows = own_mesh() if mesh is None else mesh, PartitionSpec("data")
    platform = mesh.devices.flat[0].platform
    scanning = Scanning(merged=merging_pays(platform), joined=joining_pays(platform))
    search = partial(_search, model, shape, scanning)
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
    scanning: Scanning,
    numbers: Numbers,
    params: Params,
    words: Int[Array, " C"] | None,
    source: Int[Array, "B S"],
    places: Int[Array, " B"],
    prefix: Int[Array, "B P"] | None = None,
    allowed: Bool[Array, "B C"] | None = None,
) -> Hypotheses:
    limits, length = _limits(shape, source, prefix)
    encoded = model.encode(params, source, scanning=scanning)
    if words is None and allowed is not None:
        raise UserError("what is allowed is of some words; pass these, too.")
    if words is not None:
        if allowed is None:
            allowed = jnp.ones((len(source), len(words)), bool)
        params, encoded = model.narrow(params, encoded, words, allowed)
        prefix = prefix if prefix is None else _places_among(words, prefix)
    constants = Source(encoded, source > EOS, limits, prefix)
    sentences = Sentences(
        source=constants,
        state=initial_state(model, shape, params, constants, length),
        limits=limits,
        keys=_keys(numbers.seed, places, shape.width) if shape.sample else None,
    )
    ranking = Ranking(
        length_divisors(length, numbers.alpha, numbers.offset),
        partial(reward, numbers.coverage) if shape.covered else None,
    )
    advance = partial(step, model, shape, params, numbers.minimum)
    lift = merged if scanning.merged else Loops().lift
    loops = Loops(shrinks=shrinks(len(source)), lift=lift)
    search = _strategy(shape, numbers)
    hypotheses = search(
        advance, sentences, ranking, length=length, eos=EOS, pad=PAD, loops=loops
    )
    return hypotheses if words is None else _in_vocabulary(words, hypotheses)


def _in_vocabulary(words: Int[Array, " C"], hypotheses: Hypotheses) -> Hypotheses:
    """Hypotheses with ids of the vocabulary instead of places among the words."""
    tokens = hypotheses.tokens
    return replace(hypotheses, tokens=jnp.where(tokens < 0, tokens, words[tokens]))


def _places_among(words: Int[Array, " C"], ids: Int[Array, "B P"]) -> Int[Array, "B P"]:
    """Where ids stand among words in rising order; padding stays."""
    return jnp.where(ids < 0, ids, jnp.searchsorted(words, ids).astype(ids.dtype))


def shrinks(rows: int) -> int:
    """How often a batch shrinks: once from 16 rows on, 3 times from 512."""
    return max(rows.bit_length() // 2 - 2, int(rows >= 16))


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
    if shape.max_length is not None:
        length = min(length, shape.max_length + 1)
    words = jnp.sum(source >= 0, axis=1) - 1
    # A row without a sentence has the index -1, which reads the last entry.
    limits = jnp.asarray(longest(shape, source.shape[1]), jnp.int32)[words]
    if prefix is not None:
        limits = jnp.maximum(limits, jnp.sum(prefix >= 0, axis=1) + 1)
        length = max(length, prefix.shape[1] + 1)
    return jnp.where(words >= 0, limits, 0), length


def _keys(seed: Number, places: Int[Array, " B"], draws: int) -> Array:
    """A key for every draw [B, draws], by its sentence's place in the corpus."""

    def of(place: Int[Array, ""], draw: Int[Array, ""]) -> Array:
        sentence = jax.random.fold_in(jax.random.key(seed), place)
        return jax.random.fold_in(sentence, draw)

    return jax.vmap(lambda n: jax.vmap(partial(of, n))(jnp.arange(draws)))(places)
