# SPDX-License-Identifier: Apache-2.0
"""The contract of every recurrent decoder.

``step`` is the same function in training, where `jax.lax.scan` runs it over the
target, and in search, which calls it word by word. What does not feed the
recurrence is kept out of it: ``inputs`` projects the embedded previous words before
the scan, ``attend`` does after the scan whatever no later step depends on.
"""

from typing import NamedTuple, Protocol

from flax import struct

from kvnmt.typing import Array, Bool, Float, Key, PyTree, Sizes, Weights


class Options:
    """Base of the static choices of a decoder, so that a config can hold any."""


@struct.dataclass
class Features:
    """What one step gives to the readout, the losses and the reader of alignments.

    Leading axes are ``B`` out of ``step`` and ``B T`` after the scan.
    """

    state: Float[Array, "*N D"]  # what the readout takes for s_t
    context: Float[Array, "*N _"]  # c_t of the last round
    alignments: tuple[Float[Array, "*N S"], ...]  # one per round; () if none exists
    extras: tuple[Float[Array, "*N _"], ...] = ()  # further inputs of the readout


class Init(Protocol):  # noqa: D101
    def __call__(self, key: Key[Array, ""], sizes: Sizes, weights: Weights) -> PyTree:
        """Makes the decoder's parameters, those of its attention included."""
        ...


class Prepare(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        annotations: Float[Array, "B S C"],
        mask: Bool[Array, "B S"],
    ) -> PyTree:
        """Computes the Source: all that is constant while a sentence is decoded."""
        ...


class InitialState(Protocol):  # noqa: D101
    def __call__(self, params: PyTree, source: PyTree) -> PyTree:
        """Returns the State before the first word; its first leaf is s_0 [B, D]."""
        ...


class Inputs(Protocol):  # noqa: D101
    def __call__(self, params: PyTree, embedded: Float[Array, "*N E"]) -> PyTree:
        """Computes from the embedded previous words what ``step`` takes of them."""
        ...


class Step(Protocol):  # noqa: D101
    def __call__(
        self, params: PyTree, source: PyTree, state: PyTree, inputs: PyTree
    ) -> tuple[PyTree, Features]:
        """Advances by one word."""
        ...


class Attend(Protocol):  # noqa: D101
    def __call__(self, params: PyTree, source: PyTree, features: Features) -> Features:
        """Completes features with leading axes ``B T`` after the scan."""
        ...


class FeatureSizes(Protocol):  # noqa: D101
    def __call__(self, sizes: Sizes) -> tuple[int, ...]:
        """Returns the widths of the context and of the extras."""
        ...


class Decoder(NamedTuple):
    """One decoder: pure functions over Params, Source and State."""

    init: Init
    prepare: Prepare
    initial_state: InitialState
    inputs: Inputs
    step: Step
    attend: Attend
    feature_sizes: FeatureSizes


def attended_inside(params: PyTree, source: PyTree, features: Features) -> Features:
    """``attend`` of a decoder whose steps already looked at the source."""
    return features
