# SPDX-License-Identifier: Apache-2.0
"""Forced decoding that writes down what a mechanism tells of itself, for people to see.

The mechanism is run inside another one that has its parameters, does what it does and
notes what it tells of each look: of its write (``explain``) or of its read (``weigh``).
Any decoder carries the notes, since it carries the State of any attention; training and
search know nothing of them. Notes grow with every look, so that a step must make its
looks in Python, not in a scan; of a decoder that does otherwise, one sentence tells.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from numpy.typing import NDArray

from kvnmt.attention import Attended, Attention, Change, Moment, Weighed
from kvnmt.data.buckets import pairs_in_batches
from kvnmt.decoder import CATALOGUE as DECODERS
from kvnmt.errors import UserError, first_line
from kvnmt.inference.ids import check_counts, check_ids
from kvnmt.inference.score import LIMITS
from kvnmt.inference.trained import KEPT
from kvnmt.model import assembly
from kvnmt.model.assembly import Params
from kvnmt.model.config import ModelConfig
from kvnmt.typing import Array, Bool, Int, PyTree

Asked: TypeAlias = Literal["explain", "weigh"]


class Changes(NamedTuple):
    """One pair; a matrix per round, ``[target + 1, source + 1]``: EOS comes last.

    Row t holds what the write of the step that predicts the t-th target word did to
    every slot, as lengths of vectors. The next round of that step reads it, and the
    steps after it; the word itself is not known yet.
    """

    changed: list[NDArray[np.floating]]
    forgotten: list[NDArray[np.floating]]
    added: list[NDArray[np.floating]]


class SignedWeights(NamedTuple):
    """One pair; an array per round.

    ``signed``, [N, T, S], holds for each head the exact weight that the write of a
    source word has in what the head reads for a target word; it is negative where that
    is taken away. Heads that begin at the end of the source come last. ``own``, [T], is
    the share of the context, from 0 to 1, that the decoder itself has written. EOS is
    the last of the T and of the S words.
    """

    signed: list[NDArray[np.floating]]
    own: list[NDArray[np.floating]]


@struct.dataclass
class Source:
    """The Source of the mechanism, and how many source words there are."""

    inner: PyTree
    mask: Bool[Array, "B S"]


@struct.dataclass
class State:
    """The State of the mechanism, and what it told of the looks at this word."""

    inner: PyTree
    told: PyTree  # leaves [B, R, ...], in order; as many as there were looks


def has_memory(config: ModelConfig) -> bool:
    """Whether the mechanism rewrites a memory that `memory_changes` can tell of."""
    return _tells(config, "explain")


def has_signs(config: ModelConfig) -> bool:
    """Whether the mechanism has weights with signs, of which `signed_weights` tells."""
    return _tells(config, "weigh")


def memory_changes(
    config: ModelConfig,
    params: Params,
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    advance: Callable[[int], None] = lambda pairs: None,
    limits: tuple[int, int] = LIMITS,
) -> list[Changes]:
    """Forces translations and tells what each write did to the memory.

    Args:
        config: Of a model that has a memory; see `has_memory`.
        params: Its arrays.
        source: Ids without EOS.
        target: Ids of the translations, without EOS.
        advance: Called after every batch with how many pairs it held.
        limits: Most pairs in a batch, and most positions of its longer side.

    Raises:
        UserError: The sides differ in number, an id is no word of the vocabulary, or
            the decoder does not carry what each write gives.
    """
    told = _record(config, "explain", params, source, target, advance, limits)
    return [Changes(*map(list, (c.changed, c.forgotten, c.added))) for c in told]


def signed_weights(
    config: ModelConfig,
    params: Params,
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    advance: Callable[[int], None] = lambda pairs: None,
    limits: tuple[int, int] = LIMITS,
) -> list[SignedWeights]:
    """Forces translations and tells what each look consisted of.

    All is as in `memory_changes`, but for a model that has signs; see `has_signs`.
    """
    told = _record(config, "weigh", params, source, target, advance, limits)
    return [SignedWeights(list(w.signed.swapaxes(1, 2)), list(w.own)) for w in told]


def _tells(config: ModelConfig, asked: Asked) -> bool:
    """Whether the mechanism of a config has something to tell of a source."""
    return config.reads_source and getattr(config.built_attention, asked) is not None


def _record(
    config: ModelConfig,
    asked: Asked,
    params: Params,
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    advance: Callable[[int], None],
    limits: tuple[int, int],
) -> list[PyTree]:
    """Forces translations; returns what was told of each pair, [R, target + 1, ...]."""
    assert params.source_embedding is not None
    check_counts(len(source), "source sentences", len(target), "target sentences")
    check_ids(source, params.source_embedding.shape[0], "source sentence")
    check_ids(target, params.target_embedding.shape[0], "target sentence")
    replay = _compiled(config, asked, assembly.changes())
    results: list[PyTree] = [None] * len(source)
    for places, *rows in pairs_in_batches(source, target, *limits):
        told = jax.device_get(replay(params, *rows))  # leaves [T, B, R, ...]
        for row, i in enumerate(places):
            T, S = len(target[i]) + 1, len(source[i]) + 1

            def cut(leaf: Any, row: int = row, T: int = T, S: int = S) -> Any:
                leaf = leaf[:T, row].swapaxes(0, 1)
                return (leaf[..., :S] if leaf.ndim > 2 else leaf).copy()

            results[i] = jax.tree.map(cut, told)
        advance(len(places))
    return results


@cache
def recording(asked: Asked) -> Callable[[Attention], Attention]:
    """Wraps a mechanism so that it notes what it tells of each look.

    Its State grows with every note; `taken` takes the notes out of it.
    """

    def around(attention: Attention) -> Attention:
        tell, rewrite = getattr(attention, asked), attention.write
        assert tell is not None  # see `_tells`

        def prepare(params: PyTree, annotations: Array, mask: Array) -> Source:
            return Source(attention.prepare(params, annotations, mask), mask)

        def initial_state(params: PyTree, source: Source) -> State:
            inner = attention.initial_state(params, source.inner)
            return State(inner, _nothing(attention, asked, source.mask))

        def read(
            params: PyTree, source: Source, state: State, moment: Moment
        ) -> Attended:
            return attention.read(params, source.inner, state.inner, moment)

        def write(
            params: PyTree, source: Source, state: State, moment: Moment
        ) -> State:
            new = tell(params, source.inner, state.inner, moment)
            told = jax.tree.map(_appended, state.told, new)
            inner = state.inner
            if rewrite is not None:
                inner = rewrite(params, source.inner, inner, moment)
            return State(inner, told)

        return attention._replace(
            prepare=prepare, initial_state=initial_state, read=read, write=write
        )

    return around


def taken(state: PyTree) -> tuple[PyTree, PyTree]:
    """The State of a decoder without its notes, and the notes.

    If several layers have a memory: the notes of the last, whose alignments are shown.
    """

    def is_one(part: PyTree) -> bool:
        return isinstance(part, State)

    def emptied(part: PyTree) -> PyTree:
        if not is_one(part):
            return part
        return State(part.inner, jax.tree.map(lambda leaf: leaf[:, :0], part.told))

    told = [p.told for p in jax.tree.leaves(state, is_leaf=is_one) if is_one(p)]
    return jax.tree.map(emptied, state, is_leaf=is_one), told[-1]


def _nothing(
    attention: Attention, asked: Asked, mask: Bool[Array, "B S"]
) -> Change | Weighed:
    B, S = mask.shape
    words = jnp.zeros((B, 0, S))
    if asked == "explain":
        return Change(words, words, words)
    return Weighed(jnp.zeros((B, 0, attention.weighed_heads, S)), jnp.zeros((B, 0)))


def _appended(old: Array, new: Array) -> Array:
    """Leaves [B, R, ...] and one more."""
    return jnp.concatenate([old, new[:, None].astype(old.dtype)], axis=1)


@lru_cache(maxsize=KEPT)
def _compiled(
    config: ModelConfig,
    asked: Asked,
    changes: tuple[int, ...],  # of which the cache has to know
) -> Callable[..., PyTree]:
    """The jitted replay; the last few are kept."""

    def run(
        params: Params, source: Int[Array, "B S"], target: Int[Array, "B T"]
    ) -> PyTree:
        assert params.source_embedding is not None
        sizes = params.source_embedding.shape[0], params.target_embedding.shape[0]
        model = assembly.build(config, *sizes, recording(asked))
        constants = model.encode(params, source)
        previous = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=-1)

        def step(state: assembly.State, tokens: Array) -> tuple[assembly.State, PyTree]:
            state, _ = model.step(params, constants, state, tokens)
            return taken(state)

        with _blaming(config):
            start = model.initial_state(params, constants, target.shape[1])
            told = jax.lax.scan(step, start, previous.T)[1]
            if not jax.tree.leaves(told)[0].shape[2]:
                raise ValueError("nothing is written")
        return told

    return jax.jit(run)


@contextmanager
def _blaming(config: ModelConfig) -> Iterator[None]:
    """Says what a decoder has to do with a State that grows, where one fails."""
    try:
        yield
    except (TypeError, ValueError, IndexError) as error:
        name, why = DECODERS.name_of(config.decoder), first_line(error).rstrip(":")
        raise UserError(
            f"what the decoder '{name}' attends to cannot be told ({why}); let its "
            "step look at the source in Python, not in a scan, and carry the State of "
            "each `write`; or mend `explain` or `weigh` of its attention."
        ) from error
