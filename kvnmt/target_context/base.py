# SPDX-License-Identifier: Apache-2.0
"""The contract of what, of the target so far, reaches the readout.

A target context turns the decoder states s_t and the embedded previous words x_t
into the target-side inputs of the readout. It never feeds the recurrence, so in
training ``over_time`` sees all steps at once after the scan, while search calls
``step``, which carries what it must in a State of its own. The two agree.
"""

from typing import NamedTuple, Protocol

from kvnmt.initializers import Weights
from kvnmt.typing import Array, Float, Key, PyTree, Sizes


class Options:
    """Base of the static choices of a target context, so that a config holds any."""


class Init(Protocol):  # noqa: D101
    def __call__(self, key: Key[Array, ""], sizes: Sizes, weights: Weights) -> PyTree:
        """Makes the parameters."""
        ...


class Widths(Protocol):  # noqa: D101
    def __call__(self, sizes: Sizes) -> dict[str, int]:
        """Returns the widths of the readout inputs by name.

        ``state`` and ``word`` are the seats of s_t and x_t: what sits there is read
        by the same matrix, so that a baseline's fits.
        """
        ...


class OverTime(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        states: Float[Array, "B T D"],
        embedded: Float[Array, "B T E"],
    ) -> dict[str, Float[Array, "B T _"]]:
        """Computes the readout inputs of every step; step t sees steps 1..t."""
        ...


class InitialState(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        state: Float[Array, "B D"],
        embedded: Float[Array, "B E"],
        length: int,
    ) -> PyTree:
        """Returns the State before the first of at most ``length`` steps.

        Args:
            params: The parameters.
            state: Any decoder state, for its shape and dtype.
            embedded: Any embedded word, for its shape and dtype.
            length: Static bound on the number of steps, for histories.
        """
        ...


class Step(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        memory: PyTree,
        state: Float[Array, "B D"],
        embedded: Float[Array, "B E"],
    ) -> tuple[PyTree, dict[str, Float[Array, "B _"]]]:
        """Computes the readout inputs of one step and the next State."""
        ...


class SelfAttention(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        states: Float[Array, "B T D"],
        embedded: Float[Array, "B T E"],
    ) -> Float[Array, "B T T"] | None:
        """Computes the weights that ``over_time`` mixes with, for people to see.

        Row t belongs to the step that predicts word t, from 0. Column 0 stands before
        the first word, column i at word i - 1: its embedding, or the state that
        predicted it. None where no weights are learnt.
        """
        ...


def looks_at_none(
    params: PyTree, states: Float[Array, "B T D"], embedded: Float[Array, "B T E"]
) -> None:
    """``self_attention`` of a target context without learnt weights."""


class TargetContext(NamedTuple):
    """One target context: pure functions."""

    init: Init
    widths: Widths
    over_time: OverTime
    initial_state: InitialState
    step: Step
    self_attention: SelfAttention = looks_at_none
