# SPDX-License-Identifier: Apache-2.0
"""The contract of what, of the target so far, reaches the readout.

A target context turns the decoder states s_t and the embedded previous words x_t
into the target-side inputs of the readout. It never feeds the recurrence, so in
training ``over_time`` sees all steps at once after the scan, while search calls
``step``, which carries what it must in a State of its own. The two agree.
"""

from typing import NamedTuple, Protocol

from kvnmt.typing import Array, Float, Key, PyTree, Sizes, Weights


class Options:
    """Base of the static choices of a target context, so that a config holds any."""


class Init(Protocol):  # noqa: D101
    def __call__(self, key: Key[Array, ""], sizes: Sizes, weights: Weights) -> PyTree:
        """Makes the parameters."""
        ...


class Widths(Protocol):  # noqa: D101
    def __call__(self, sizes: Sizes) -> tuple[int, ...]:
        """Returns the widths of the readout inputs."""
        ...


class OverTime(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        states: Float[Array, "B T D"],
        embedded: Float[Array, "B T E"],
    ) -> tuple[Float[Array, "B T _"], ...]:
        """Computes the readout inputs of every step; step t sees steps 1..t."""
        ...


class InitialState(Protocol):  # noqa: D101
    def __call__(
        self, params: PyTree, state: Float[Array, "B D"], length: int
    ) -> PyTree:
        """Returns the State before the first of at most ``length`` steps.

        Args:
            params: The parameters.
            state: Any decoder state; tells rows and dtype.
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
    ) -> tuple[PyTree, tuple[Float[Array, "B _"], ...]]:
        """Computes the readout inputs of one step and the next State."""
        ...


class TargetContext(NamedTuple):
    """One target context: pure functions."""

    init: Init
    widths: Widths
    over_time: OverTime
    initial_state: InitialState
    step: Step
