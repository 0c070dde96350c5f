# SPDX-License-Identifier: Apache-2.0
"""The decoder state alone: the previous word reaches the readout only through it.

Attention without feeding back (Luong et al. 2015; Mino et al. 2017) and the plain
language models read out ``s_t`` and nothing else of the target. No parameters,
nothing carried.
"""

from dataclasses import dataclass

from kvnmt.target_context import base
from kvnmt.typing import Array, Float, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """The state alone has no static choices."""


def widths(sizes: Sizes) -> dict[str, int]:
    """Width of s_t."""
    return {"state": sizes.state}


def inputs(
    params: tuple[()], states: Float[Array, "*N D"], embedded: Float[Array, "*N E"]
) -> dict[str, Float[Array, "*N _"]]:
    """Passes the states on."""
    return {"state": states}


def build(options: Options) -> base.TargetContext:
    """The state alone under the contract."""
    return base.forgetful(widths, inputs)
