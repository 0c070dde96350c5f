# SPDX-License-Identifier: Apache-2.0
"""Where a model and a search meet: the compiled program from source ids to hypotheses.

Numbers that change no shape (exponents, temperatures, the seed) are arguments of the
program, so that trying another value compiles nothing.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from kvnmt.data.buckets import BATCH_SIZE, BATCH_TOKENS
from kvnmt.data.vocabulary import EOS, PAD, UNK
from kvnmt.devices import own_mesh
from kvnmt.errors import Range
from kvnmt.models import Model, Params
from kvnmt.search import (
    Hypotheses,
    Ranking,
    Sentences,
    beam_search,
    greedy_search,
    length_divisors,
    sample_search,
)
from kvnmt.typing import Array, Bool, Float, Int, PyTree


@dataclass(frozen=True)
class SearchConfig:
    """How translations are searched for."""

    beam: int = 10  # 1: greedy
    sample: bool = False  # draw words instead; draws are seeded sentence by sentence
    temperature: float = 1.0  # of drawing; below 1: more probable words
    top_k: int | None = None  # draw from so many words only
    top_p: float = 1.0  # draw from the likeliest words that reach this probability
    seed: int = 1  # of drawing
    normalization: Literal["gnmt", "length", "none"] = "gnmt"  # of log-probabilities
    alpha: float = 1.0  # its exponent: ((5 + n) / 6) ** alpha, or n ** alpha
    coverage: float = 0.0  # weight of the coverage penalty of Wu et al. (2016)
    diversity: float = 0.0  # nats a continuation costs per better sibling
    length_ratio: float = 1.5  # at most this many target words per source word ...
    length_extra: int = 10  # ... and this many more, EOS included
    max_length: int | None = None  # most target words, whatever the source
    min_length: int = 0  # fewest target words
    unknown: bool = True  # the unknown word may be written
    nbest: int = 1  # translations per sentence, at most as many as the beam
    batch_size: int = BATCH_SIZE  # most sentences at a time
    batch_tokens: int = BATCH_TOKENS  # most source positions at a time, padding too


RANGES: dict[str, Range] = {
    "beam": (1, None),
    "temperature": (0.001, None),
    "top_k": (1, None),
    "top_p": (0.001, 1),
    "seed": (0, None),
    "alpha": (0, None),
    "coverage": (0, None),
    "diversity": (0, None),
    "length_ratio": (0, None),
    "length_extra": (1, None),
    "max_length": (1, None),
    "min_length": (0, None),
    "nbest": (1, None),
    "batch_size": (1, None),
    "batch_tokens": (1, None),
}

LEAST_COVERED = 1e-6  # attention that a word counts as having had, at least


Number: TypeAlias = Array | float


class Numbers(NamedTuple):
    """What a program takes of a config when it runs."""

    offset: Number  # of the length normalisation
    alpha: Number
    coverage: Number
    diversity: Number
    temperature: Number
    top_p: Number
    seed: Number
    minimum: Number


class _Source(NamedTuple):
    """What is constant for a sentence."""

    model: PyTree
    words: Bool[Array, "B S"]  # real words, EOS not among them
    limits: Int[Array, " B"]
    prefix: Int[Array, "B P"] | None


def compiled_search(model: Model, config: SearchConfig) -> Callable[..., Hypotheses]:
    """The jitted search of a model, ``(params, source, places, prefix=None)``.

    The source [B, S] holds ids; a row without any is no sentence. The places [B] of the
    sentences in their corpus, with the seed, decide what is drawn for them. A prefix
    [B, P] holds the ids that translations begin with, PAD behind them.
    """
    return partial(program(model, config), _numbers(config))


def program(model: Model, config: SearchConfig) -> jax.stages.Wrapped:
    """What `compiled_search` runs; one for all configs of the same shapes."""
    neutral = SearchConfig()
    shapes = dataclasses.replace(
        config,
        normalization=neutral.normalization,
        alpha=neutral.alpha,
        coverage=float(config.coverage > 0),
        diversity=float(config.diversity > 0),
        temperature=neutral.temperature,
        top_p=0.5 if config.top_p < 1 else 1.0,
        seed=neutral.seed,
        min_length=neutral.min_length,
        batch_size=neutral.batch_size,
        batch_tokens=neutral.batch_tokens,
    )
    return _program(model, shapes)


@cache
def _program(model: Model, config: SearchConfig) -> jax.stages.Wrapped:
    return jax.jit(partial(_shared, partial(_search, model, config)))


def _shared(
    search: Callable[..., Hypotheses], numbers: Numbers, params: Params, *rows: Array
) -> Hypotheses:
    """The search on every device's own rows, where they divide evenly."""
    mesh, by_rows = own_mesh(), PartitionSpec("data")
    if mesh.size == 1 or len(rows[0]) % mesh.size:
        return search(numbers, params, *rows)
    given = PartitionSpec(), PartitionSpec(), *(by_rows for _ in rows)
    # Devices do not wait for each other's longest sentence, as one program would.
    return jax.shard_map(
        search, mesh=mesh, in_specs=given, out_specs=by_rows, check_vma=False
    )(numbers, params, *rows)


def _numbers(config: SearchConfig) -> Numbers:
    offset, alpha = {
        "gnmt": (5.0, config.alpha),
        "length": (0.0, config.alpha),
        "none": (0.0, 0.0),
    }[config.normalization]
    return Numbers(
        offset,
        alpha,
        config.coverage,
        config.diversity,
        config.temperature,
        config.top_p,
        config.seed,
        config.min_length,
    )


def _search(
    model: Model,
    config: SearchConfig,
    numbers: Numbers,
    params: Params,
    source: Int[Array, "B S"],
    places: Int[Array, " B"],
    prefix: Int[Array, "B P"] | None = None,
) -> Hypotheses:
    limits, length = _limits(config, source, prefix)
    constants = model.encode(params, source)
    state: dict[str, PyTree] = {"model": model.initial_state(params, constants, length)}
    if config.coverage:
        state["covered"] = jnp.zeros(source.shape)
    width = config.nbest if config.sample else config.beam
    sentences = Sentences(
        source=_Source(constants, source > EOS, limits, prefix),
        state=jax.tree.map(lambda x: jnp.repeat(x[:, None], width, axis=1), state),
        limits=limits,
        keys=_keys(numbers.seed, places, width) if config.sample else None,
    )
    ranking = Ranking(
        length_divisors(length, numbers.alpha, numbers.offset),
        partial(_reward, numbers.coverage) if config.coverage else None,
    )
    step = partial(_step, model, params, config.unknown, numbers.minimum)
    common: Any = {"length": length, "eos": EOS, "pad": PAD}
    common["shrinks"] = max(len(source).bit_length() // 2 - 2, 0)  # 64 rows: once
    if config.sample:
        common |= {"temperature": numbers.temperature, "top_k": config.top_k}
        common["top_p"] = numbers.top_p if config.top_p < 1 else None
        return sample_search(step, sentences, ranking, **common)
    if config.beam == 1:
        return greedy_search(step, sentences, ranking, **common)
    common |= {"beam": config.beam, "count": config.nbest}
    common["diversity"] = numbers.diversity if config.diversity else None
    return beam_search(step, sentences, ranking, **common)


def _limits(
    config: SearchConfig, source: Int[Array, "B S"], prefix: Int[Array, "B P"] | None
) -> tuple[Int[Array, " B"], int]:
    """How many words each row may get, EOS included, and a static bound on it.

    A row's limit depends on the row alone; a prefix is always given room.
    """
    length = math.ceil(config.length_ratio * (source.shape[1] - 1))
    length += config.length_extra
    words = jnp.sum(source >= 0, axis=1) - 1
    limits = jnp.floor(config.length_ratio * words.astype(jnp.float32))
    limits = limits.astype(jnp.int32) + config.length_extra
    if config.max_length is not None:
        limits = jnp.minimum(limits, config.max_length + 1)
        length = min(length, config.max_length + 1)
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
) -> tuple[dict[str, PyTree], Float[Array, "B K V"]]:
    # Mapped over the beam, with one copy of the constants for all hypotheses.
    each = jax.vmap(partial(model.step, params, source.model), in_axes=1, out_axes=1)
    inner, prediction = each(state["model"], tokens)
    new = {"model": inner}
    if "covered" in state:
        new["covered"] = state["covered"] + prediction.features.alignments[-1]
    log_probs = jax.nn.log_softmax(prediction.logits)
    return new, _allowed(log_probs, source, t, unknown, minimum)


def _allowed(
    log_probs: Float[Array, "B K V"],
    source: _Source,
    t: Int[Array, ""],
    unknown: bool,
    minimum: Number,
) -> Float[Array, "B K V"]:
    """Minus infinity for what may not be said; the rest keeps its probability."""
    words = jnp.arange(log_probs.shape[-1])
    early = (t < minimum) & (t + 1 < source.limits)
    banned = early[:, None, None] & (words == EOS)  # masks, as in `beam_search`
    if not unknown:
        banned |= words == UNK
    allowed = jnp.where(banned, -jnp.inf, log_probs)
    if source.prefix is None:
        return allowed
    longest = source.prefix.shape[1]
    word = source.prefix[:, jnp.minimum(t, longest - 1)]
    given = (t < longest) & (word >= 0)
    forced = jnp.where(words == word[:, None, None], log_probs, -jnp.inf)
    return jnp.where(given[:, None, None], forced, allowed)


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
