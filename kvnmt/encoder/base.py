# SPDX-License-Identifier: Apache-2.0
"""The contract of every stack of layers, what is chosen of one, and what is read."""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, TypeAlias

from flax import struct

from kvnmt.initializers import Weights
from kvnmt.layers import Blocks, Scanning
from kvnmt.typing import Array, Bool, Float, Key, PyTree, Sizes

Merge: TypeAlias = Literal[
    "concat", "sum", "stack", "project", "halves", "forward", "none"
]
CellName: TypeAlias = Literal["gru", "gru_before", "lstm", "transformer"]


@struct.dataclass
class Encoded:
    """What a decoder may know of the source."""

    annotations: Float[Array, "B S C"]  # zero at padding
    mask: Bool[Array, "B S"]
    backward_first: Float[Array, "B H"] | None  # b_1, where the backward stack ends;
    # None: there is no such stack
    sizes: Sizes = struct.field(pytree_node=False)  # of the whole model


class Choices(NamedTuple):
    """What is chosen of an encoder.

    Recurrent layer n > 1 reads ``drop(x)``, where x is what layer n - 1 gives. With
    ``residual``, x is added to what it gives (Wu et al. 2016, equation 6).
    """

    merge: Merge
    cell: CellName
    layers: int
    blocks: Blocks  # of Transformer layers
    dropout: float = 0.0  # between recurrent layers
    residual: bool = False


class Init(Protocol):  # noqa: D101
    def __call__(
        self,
        key: Key[Array, ""],
        below: int,
        size: int,
        choices: Choices,
        weights: Weights,
    ) -> PyTree:
        """Makes a stack of ``size`` units that reads vectors of width ``below``."""
        ...


class Run(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        x: Float[Array, "B S _"],
        mask: Bool[Array, "B S"],
        choices: Choices,
        *,
        reverse: bool,
        scanning: Scanning,
        key: Key[Array, "*B"] | None,
    ) -> Float[Array, "B S H"]:
        """Reads a sentence; what lies at padding reaches no other position."""
        ...


class Stack(NamedTuple):
    """One kind of stack: pure functions."""

    init: Init
    run: Run
    directed: bool = True  # a position knows one side of the sentence alone
    # What a stack of so many units multiplies embedded words by.
    gain: Callable[[int], float] = lambda size: 1.0
    recurs: bool = True  # its layers are GRUs or LSTMs
    reads_blocks: bool = False  # its layers have what `Choices.blocks` says
