# SPDX-License-Identifier: Apache-2.0
"""What each look at a memory without a softmax consisted of, for people to see."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.buckets import BATCH_SIZE, BATCH_TOKENS
from kvnmt.inference.recording import record, tells
from kvnmt.model.assembly import Params
from kvnmt.model.config import ModelConfig


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


def has_signs(config: ModelConfig) -> bool:
    """Whether the mechanism has weights with signs, of which `signed_weights` tells."""
    return tells(config, "weigh")


def signed_weights(
    config: ModelConfig,
    params: Params,
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    advance: Callable[[int], None] = lambda pairs: None,
    limits: tuple[int, int] = (BATCH_SIZE, BATCH_TOKENS),
) -> list[SignedWeights]:
    """Forces translations and tells what each look consisted of.

    Args:
        config: Of a model that has signs; see `has_signs`.
        params: Its arrays.
        source: Ids without EOS.
        target: Ids of the translations, without EOS.
        advance: Called after every batch with how many pairs it held.
        limits: Most pairs in a batch, and most positions of its longer side.

    Raises:
        UserError: The sides differ in number, or an id is no word of the vocabulary.
    """
    told = record(config, "weigh", params, source, target, advance, limits)
    return [SignedWeights(list(w.signed.swapaxes(1, 2)), list(w.own)) for w in told]
