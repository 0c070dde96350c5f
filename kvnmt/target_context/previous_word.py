# SPDX-License-Identifier: Apache-2.0
"""The usual target context: the decoder state and the previous word alone.

The readout reads ``s_t`` and ``x_t``, the embedding of y_{t-1} (RNNsearch and all
that extends it). No parameters, nothing carried.
"""

from dataclasses import dataclass

from kvnmt.target_context import base
from kvnmt.typing import Array, Float


@dataclass(frozen=True)
class Options(base.Options):
    """The previous word has no static choices."""


def inputs(
    params: tuple[()], states: Float[Array, "*N D"], embedded: Float[Array, "*N E"]
) -> dict[str, Float[Array, "*N _"]]:
    """Passes states and embedded previous words on."""
    return {"state": states, "word": embedded}


def build(options: Options) -> base.TargetContext:
    """The previous word under the contract."""
    return base.forgetful(base.state_and_word, inputs)
