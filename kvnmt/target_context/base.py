# SPDX-License-Identifier: Apache-2.0
"""The contract of what, of the target so far, reaches the readout.

A target context turns the decoder states s_t and the embedded previous words x_t
into the target-side inputs of the readout. It never feeds the recurrence, so in
training ``over_time`` sees all steps at once after the scan, while search calls
``step``, which carries what it must in a State of its own, leading axis of every array
the hypothesis. The two agree.

Names for a warm start. ``state`` and ``word`` are the seats of s_t and x_t in the
readout: what sits there is read by the same matrix, so that a trained baseline's fits.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from kvnmt.initializers import Init
from kvnmt.typing import Array, DType, Float, PyTree, Sizes


class Options:
    """Base of the static choices of a target context, so that a config holds any."""


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
        self, params: PyTree, sizes: Sizes, rows: int, length: int, dtype: DType
    ) -> PyTree:
        """Returns the State before the first of at most ``length`` steps.

        Args:
            params: The parameters.
            sizes: The widths of the model.
            rows: B.
            length: Static bound on the number of steps, for histories.
            dtype: Of states and embedded words.
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
    ) -> Float[Array, "B T T"]:
        """Computes the weights that ``over_time`` mixes with, for people to see.

        Row t belongs to the step that predicts word t, from 0. Column 0 stands before
        the first word, column i at word i - 1: its embedding, or the state that
        predicted it.
        """
        ...


class ReadoutInputs(Protocol):  # noqa: D101
    def __call__(
        self,
        params: PyTree,
        states: Float[Array, "*N D"],
        embedded: Float[Array, "*N E"],
    ) -> dict[str, Float[Array, "*N _"]]:
        """Computes the readout inputs of steps that look at nothing earlier."""
        ...


class TargetContext(NamedTuple):
    """One target context: pure functions.

    Only the first three are needed. What is left out does nothing.
    """

    widths: Callable[[Sizes], dict[str, int]]  # of the readout inputs, by name
    over_time: OverTime
    step: Step
    init: Init = lambda key, sizes, weights: ()
    initial_state: InitialState = lambda params, sizes, rows, length, dtype: ()
    self_attention: SelfAttention | None = None  # None: no weights are learnt


def state_and_word(sizes: Sizes) -> dict[str, int]:
    """Widths of s_t, and of x_t or what takes its seat."""
    return {"state": sizes.state, "word": sizes.embedding}


def with_summary(sizes: Sizes) -> dict[str, int]:
    """Widths of s_t, x_t and a summary of states."""
    return state_and_word(sizes) | {"summary": sizes.state}


def summarised(
    state: Float[Array, "*N D"],
    embedded: Float[Array, "*N E"],
    summary: Float[Array, "*N D"],
) -> dict[str, Float[Array, "*N _"]]:
    """The readout inputs whose widths are `with_summary`."""
    return {"state": state, "word": embedded, "summary": summary.astype(state.dtype)}


def forgetful(
    widths: Callable[[Sizes], dict[str, int]], inputs: ReadoutInputs
) -> TargetContext:
    """A target context without parameters that looks at no earlier step."""

    def step(
        params: PyTree, memory: PyTree, state: Array, embedded: Array
    ) -> tuple[PyTree, dict[str, Array]]:
        return memory, inputs(params, state, embedded)

    return TargetContext(widths, over_time=inputs, step=step)
