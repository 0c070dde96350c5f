# SPDX-License-Identifier: Apache-2.0
"""What every search takes and gives.

A search never knows a model. It receives a function ``step(state, tokens)``, where
every leaf of the state and the tokens begin with the axes ``[B, K]`` (sentences,
hypotheses), and which returns the next state and ``log_probs [B, K, V]``. What is
constant for a sentence hides in that function and is never copied or reordered.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.typing import Array, Float, Int, PyTree

DecodeStep: TypeAlias = Callable[[PyTree, Array], tuple[PyTree, Array]]


@struct.dataclass
class Hypotheses:
    """The result, best first.

    Token ids end with EOS; `PAD` (-1) fills the rest. ``log_probs`` are sums in nats,
    EOS included; ``scores`` are what the search ranked by.
    """

    tokens: Int[Array, "B N T"]
    log_probs: Float[Array, "B N"]
    scores: Float[Array, "B N"]


def length_penalty(
    length: Int[Array, "..."] | int, alpha: float
) -> Float[Array, "..."]:
    """Divisor of Wu et al. (2016): ``((5 + n) / 6) ** alpha``, n counting EOS.

    It is 1 for ``alpha = 0`` (no normalisation) and never falls with n otherwise,
    which the stopping rule of the beam search relies on.
    """
    return ((5.0 + jnp.asarray(length, jnp.float32)) / 6.0) ** alpha


def gather_beams(tree: PyTree, parents: Int[Array, "B K"]) -> PyTree:
    """Takes, for each sentence, the hypotheses with these indices."""

    def take(leaf: Array) -> Array:
        index = parents.reshape(parents.shape + (1,) * (leaf.ndim - 2))
        return jnp.take_along_axis(leaf, index, axis=1)

    return jax.tree.map(take, tree)
