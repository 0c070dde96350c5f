# SPDX-License-Identifier: Apache-2.0
"""What happens to a memory of slots while a translation is forced, for people to see.

The mechanism is run inside another one that has its parameters, does what it does and
writes down what each of its writes changes. Any decoder carries it, since it carries
the State of any attention.
"""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from numpy.typing import NDArray

from kvnmt import models
from kvnmt.attention import CATALOGUE, Attended, Attention, Change, Moment
from kvnmt.data.batches import pad, with_end
from kvnmt.data.buckets import edge, in_batches
from kvnmt.inference.ids import check_counts, check_ids
from kvnmt.inference.score import rounds_of
from kvnmt.inference.trained import KEPT
from kvnmt.model_config import ModelConfig
from kvnmt.models import Params
from kvnmt.typing import Array, Bool, Float, Int, PyTree


class Changes(NamedTuple):
    """One pair; a matrix per round, ``[target + 1, source + 1]``: EOS comes last.

    Row t holds what the write after the t-th target word did to every slot, as lengths
    of vectors.
    """

    changed: list[NDArray[np.floating]]
    forgotten: list[NDArray[np.floating]]
    added: list[NDArray[np.floating]]


@struct.dataclass
class Source:
    """The Source of the mechanism, and how many slots there are."""

    inner: PyTree
    mask: Bool[Array, "B S"]


@struct.dataclass
class State:
    """The State of the mechanism, and what the last writes did to it."""

    inner: PyTree
    changes: Change  # [B, R, S], oldest first


def has_memory(config: ModelConfig) -> bool:
    """Whether the mechanism rewrites a memory that `memory_changes` can tell of."""
    return CATALOGUE.build(config.attention).explain is not None


def memory_changes(
    config: ModelConfig,
    params: Params,
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    advance: Callable[[int], None] = lambda pairs: None,
) -> list[Changes]:
    """Forces translations and tells what each write did to the memory.

    Args:
        config: Of a model that has a memory; see `has_memory`.
        params: Its arrays.
        source: Ids without EOS.
        target: Ids of the translations, without EOS.
        advance: Called after every batch with how many pairs it held.

    Raises:
        UserError: The sides differ in number, or an id is no word of the vocabulary.
    """
    assert params.source_embedding is not None
    check_counts(len(source), "source sentences", len(target), "target sentences")
    check_ids(source, params.source_embedding.shape[0], "source sentence")
    check_ids(target, params.target_embedding.shape[0], "target sentence")
    replay = _compiled(config)
    results = [Changes([], [], [])] * len(source)
    for places, block in in_batches(source, keep_empty=True):
        ended = [with_end(target[i]) for i in places]
        rows = pad(ended, len(block), edge(max(map(len, ended))))
        change = jax.device_get(replay(params, block, rows))
        for row, i in enumerate(places):
            T, S = len(target[i]) + 1, len(source[i]) + 1
            kinds = (change.changed, change.forgotten, change.added)
            parts = (np.moveaxis(kind[:T, row, :, :S], 1, 0) for kind in kinds)
            results[i] = Changes(*map(list, parts))
        advance(len(places))
    return results


@cache
def recording(rounds: int) -> Callable[[Attention], Attention]:
    """Makes of a mechanism one that remembers its last so many writes."""

    def around(attention: Attention) -> Attention:
        tell, rewrite = attention.explain, attention.write
        assert tell is not None and rewrite is not None  # see `has_memory`

        def prepare(params: PyTree, annotations: Array, mask: Array) -> Source:
            return Source(attention.prepare(params, annotations, mask), mask)

        def initial_state(params: PyTree, source: Source) -> State:
            B, S = source.mask.shape
            nothing = jnp.zeros((B, rounds, S))
            inner = attention.initial_state(params, source.inner)
            return State(inner, Change(nothing, nothing, nothing))

        def read(
            params: PyTree, source: Source, state: State, moment: Moment
        ) -> Attended:
            return attention.read(params, source.inner, state.inner, moment)

        def write(
            params: PyTree, source: Source, state: State, moment: Moment
        ) -> State:
            change = tell(params, source.inner, state.inner, moment)
            changes = jax.tree.map(_append, state.changes, change)
            inner = rewrite(params, source.inner, state.inner, moment)
            return State(inner, changes)

        return attention._replace(
            prepare=prepare, initial_state=initial_state, read=read, write=write
        )

    return around


def _append(
    old: Float[Array, "B R S"], new: Float[Array, "B S"]
) -> Float[Array, "B R S"]:
    return jnp.concatenate([old[:, 1:], new[:, None]], axis=1)


@lru_cache(maxsize=KEPT)
def _compiled(config: ModelConfig) -> Callable[..., Change]:
    """The jitted replay, [T, B, R, S]; the last few are kept."""

    def run(
        params: Params, source: Int[Array, "B S"], target: Int[Array, "B T"]
    ) -> Change:
        assert params.source_embedding is not None
        sizes = params.source_embedding.shape[0], params.target_embedding.shape[0]
        rounds = rounds_of(models.build(config, *sizes), params)
        model = models.build(config, *sizes, recording(rounds))
        constants = model.encode(params, source)
        previous = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=-1)

        def step(state: models.State, tokens: Array) -> tuple[models.State, Any]:
            state, _ = model.step(params, constants, state, tokens)
            return state, _recorded(state)

        start = model.initial_state(params, constants, target.shape[1])
        return jax.lax.scan(step, start, previous.T)[1]

    return jax.jit(run)


def _recorded(state: PyTree) -> Change:
    leaves = jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, State))
    return next(part.changes for part in leaves if isinstance(part, State))
