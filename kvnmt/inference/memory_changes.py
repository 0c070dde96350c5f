# SPDX-License-Identifier: Apache-2.0
"""What happens to a memory of slots under forced decoding, for people to see."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.buckets import BATCH_SIZE, BATCH_TOKENS
from kvnmt.inference.recording import record, tells
from kvnmt.model.assembly import Params
from kvnmt.model.config import ModelConfig


class Changes(NamedTuple):
    """One pair; a matrix per round, ``[target + 1, source + 1]``: EOS comes last.

    Row t holds what the write of the step that predicts the t-th target word did to
    every slot, as lengths of vectors. The next round of that step reads it, and the
    steps after it; the word itself is not known yet.
    """

    changed: list[NDArray[np.floating]]
    forgotten: list[NDArray[np.floating]]
    added: list[NDArray[np.floating]]


def has_memory(config: ModelConfig) -> bool:
    """Whether the mechanism rewrites a memory that `memory_changes` can tell of."""
    return tells(config, "explain")


def memory_changes(
    config: ModelConfig,
    params: Params,
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    advance: Callable[[int], None] = lambda pairs: None,
    limits: tuple[int, int] = (BATCH_SIZE, BATCH_TOKENS),
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
        UserError: The sides differ in number, or an id is no word of the vocabulary.
    """
    told = record(config, "explain", params, source, target, advance, limits)
    return [Changes(*map(list, (c.changed, c.forgotten, c.added))) for c in told]
