# SPDX-License-Identifier: Apache-2.0
"""The decoder state alone: the previous word reaches the readout only through it.

Attention without feeding back (Luong et al. 2015; Mino et al. 2017) and the plain
language models read out ``s_t`` and nothing else of the target. No parameters,
nothing carried.
"""

from dataclasses import dataclass

from kvnmt.initializers import Weights
from kvnmt.target_context import base
from kvnmt.typing import Array, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """The state alone has no static choices."""


def init(key: Key[Array, ""], sizes: Sizes, weights: Weights) -> tuple[()]:
    """No parameters."""
    return ()


def widths(sizes: Sizes) -> dict[str, int]:
    """Width of s_t."""
    return {"state": sizes.state}


def over_time(
    params: tuple[()], states: Float[Array, "B T D"], embedded: Float[Array, "B T E"]
) -> dict[str, Float[Array, "B T _"]]:
    """Passes the states on."""
    return {"state": states}


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
    """Passes the state on."""
    return (), {"state": state}


def build(options: Options) -> base.TargetContext:
    """The state alone under the contract."""
    return base.TargetContext(init, widths, over_time, initial_state, step)
