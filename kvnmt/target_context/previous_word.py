# SPDX-License-Identifier: Apache-2.0
"""The usual target context: the decoder state and the previous word alone.

The readout reads ``s_t`` and ``x_t``, the embedding of y_{t-1} (RNNsearch and all
that extends it). No parameters, nothing carried.
"""

from dataclasses import dataclass

from kvnmt.initializers import Weights
from kvnmt.target_context import base
from kvnmt.typing import Array, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """The previous word has no static choices."""


def init(key: Key[Array, ""], sizes: Sizes, weights: Weights) -> tuple[()]:
    """No parameters."""
    return ()


def widths(sizes: Sizes) -> dict[str, int]:
    """Widths of s_t and x_t."""
    return {"state": sizes.state, "word": sizes.embedding}


def over_time(
    params: tuple[()], states: Float[Array, "B T D"], embedded: Float[Array, "B T E"]
) -> dict[str, Float[Array, "B T _"]]:
    """Passes states and embedded previous words on."""
    return {"state": states, "word": embedded}


def initial_state(
    params: tuple[()],
    state: Float[Array, "B D"],
    embedded: Float[Array, "B E"],
    length: int,
) -> tuple[()]:
    """Carries nothing."""
    return ()


def step(
    params: tuple[()],
    memory: tuple[()],
    state: Float[Array, "B D"],
    embedded: Float[Array, "B E"],
) -> tuple[tuple[()], dict[str, Float[Array, "B _"]]]:
    """Passes the state and the embedded previous word on."""
    return (), {"state": state, "word": embedded}


def build(options: Options) -> base.TargetContext:
    """The previous word under the contract."""
    return base.TargetContext(init, widths, over_time, initial_state, step)
