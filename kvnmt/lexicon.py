# SPDX-License-Identifier: Apache-2.0
"""What the source words themselves, not their annotations, say of the next word.

The lexical module of Nguyen and Chiang (2018), "Improving Lexical Choice in Neural
Machine Translation", section 4. An annotation has read the whole sentence. A rare word
leads to its translation directly, by its embedding, weighted by the alignment::

    l_t = tanh(sum_s a_ts f_s)            f_s: the embedded source word
    h_t = tanh(W l_t + b) + l_t
    o_t = o_t + W_o h_t                   before the output layer

Departure: the paper gives ``h_t`` an output layer of its own and adds the logits. Here
both share one, with ``W_o`` between: the output layer is most of the work, and what it
has for a rare target word is learnt from both.

Without parameters there is no lexicon: nothing is added.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.errors import OptionError
from kvnmt.initializers import Weights
from kvnmt.layers import Linear, init_linear, linear
from kvnmt.typing import Array, Float, Key


@struct.dataclass
class Params:
    """How looked-up words become a part of the readout."""

    hidden: Linear  # W, b
    W: Float[Array, "E L"]  # W_o


def init(key: Key[Array, ""], embedding: int, width: int, weights: Weights) -> Params:
    """Makes the lexicon.

    Args:
        key: Random key.
        embedding: Width E of an embedded source word.
        width: Width L of what the output layer reads.
        weights: Initialisers.
    """
    key_hidden, key_output = jax.random.split(key)
    return Params(
        hidden=init_linear(key_hidden, [embedding], embedding, weights),
        W=weights.matrix(key_output, (embedding, width), jnp.float32),
    )


def add(
    params: Params | None,
    read: Float[Array, "B *T L"],
    words: Float[Array, "B S E"] | None,
    alignments: Sequence[Float[Array, "B *T S"]],
) -> Float[Array, "B *T L"]:
    """Adds what the words say to what the readout gives, by the last round's look.

    Raises:
        OptionError: Nothing aligns the words.
    """
    if params is None or words is None:
        return read
    if not alignments:
        raise OptionError(
            "{0} needs an attention that aligns source words, and this system has "
            "none; leave it out.",
            "lexicon",
            prefix="model.",
        )
    seen = jnp.tanh(jnp.einsum("b...s,bse->b...e", alignments[-1], words))  # l_t
    return read + (jnp.tanh(linear(params.hidden, seen)) + seen) @ params.W
