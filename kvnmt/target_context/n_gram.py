# SPDX-License-Identifier: Apache-2.0
"""N-gram recurrent network: parts of the last states side by side.

M. Daniluk, T. Rocktäschel, J. Welbl, S. Riedel (2017), section 2.4; beside
others in L. Miculicich Werlen et al. (2018), table 6, and in a translation model there.

=============  ==============================================================
parameters     W_N                                           D² / P numbers
state, carried the last P - 1 states [B, P - 1, D]
result         g_t of width D / P, and x_t unless ``word`` is off
=============  ==============================================================

::

    s_t = [h^1_t ; .. ; h^P_t]
    g_t = tanh(W_N [h^1_t ; h^2_{t-1} ; .. ; h^P_{t-P+1}])

Before the beginning the states are zero.

Reading of the paper: whether an N-gram model has N parts or N - 1 is not said; the
published sizes fit N (46.96 million parameters at 968 units in 4 parts).
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import jax.numpy as jnp
from flax import struct

from kvnmt.errors import OptionError
from kvnmt.fields import DEEPEST, EXTENDS, between
from kvnmt.initializers import Weights
from kvnmt.target_context import base
from kvnmt.typing import Array, DType, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices of the N-gram network."""

    parts: Annotated[int, between(1, DEEPEST), EXTENDS] = 4  # P
    word: bool = True  # the readout also reads x_t


@struct.dataclass
class Params:
    """The mixture; the paper prints no bias."""

    W: Float[Array, "D _"]


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the mixture.

    Raises:
        UserError: The state does not split into that many parts.
    """
    D, P = sizes.state, options.parts
    if beyond := D % P:
        raise OptionError(
            f"n_gram cannot split a decoder state of {D} in {P} parts; set {{0}} to a "
            f"multiple of {P}, such as {D - beyond + P}.",
            "state",
            prefix="model.",
        )
    return Params(weights.matrix(key, (D, D // P), jnp.float32))


def widths(options: Options, sizes: Sizes) -> dict[str, int]:
    """Widths of g_t, and of x_t where it is read."""
    predict = {"predict": sizes.state // options.parts}
    return predict | ({"word": sizes.embedding} if options.word else {})


def over_time(
    options: Options,
    params: Params,
    states: Float[Array, "B T D"],
    embedded: Float[Array, "B T E"],
) -> dict[str, Float[Array, "B T _"]]:
    """Shifts part n by n - 1 steps."""
    B, T, D = states.shape
    before = jnp.zeros((B, options.parts - 1, D), states.dtype)
    padded = jnp.concatenate([before, states], axis=1)
    last = options.parts - 1
    windows = [padded[:, last - n : last - n + T] for n in range(options.parts)]
    return _result(options, params, windows, embedded)


def initial_state(
    options: Options,
    params: Params,
    sizes: Sizes,
    rows: int,
    length: int,
    dtype: DType,
) -> Float[Array, "B P_1 D"]:
    """Zeros before the beginning; the latest state comes first."""
    return jnp.zeros((rows, options.parts - 1, sizes.state), dtype)


def step(
    options: Options,
    params: Params,
    memory: Float[Array, "B P_1 D"],
    state: Float[Array, "B D"],
    embedded: Float[Array, "B E"],
) -> tuple[Float[Array, "B P_1 D"], dict[str, Float[Array, "B _"]]]:
    """Puts the parts side by side, then takes this state in."""
    states = jnp.concatenate([state[:, None], memory], axis=1)
    windows = [states[:, n] for n in range(options.parts)]
    return states[:, :-1], _result(options, params, windows, embedded)


def _result(
    options: Options, params: Params, windows: list[Array], embedded: Array
) -> dict[str, Array]:
    """``windows[n]`` is the state n steps back; takes part n + 1 of each."""
    parts = [
        jnp.split(window, options.parts, axis=-1)[n] for n, window in enumerate(windows)
    ]
    result = jnp.tanh(jnp.concatenate(parts, axis=-1) @ params.W)
    return {"predict": result} | ({"word": embedded} if options.word else {})


def build(options: Options) -> base.TargetContext:
    """The N-gram network under the contract."""
    return base.TargetContext(
        init=partial(init, options),
        widths=partial(widths, options),
        over_time=partial(over_time, options),
        initial_state=partial(initial_state, options),
        step=partial(step, options),
    )
