# SPDX-License-Identifier: Apache-2.0
"""Key-value attention: each annotation is half key, half value.

H. Mino, M. Utiyama, E. Sumita, T. Tokunaga (2017), "Key-value Attention Mechanism for
Neural Machine Translation", section 3.2.

=============  ==============================================================
parameters     none; Q, b of ``query = projection``
source         keys and values [B, S, C/2], mask
state, carried none
result         context ``sum_j a_j v_j`` of width C/2, alignment a
=============  ==============================================================

::

    h_j = [k_j ; v_j]        a = softmax_j(q[:C/2] . k_j)        c = sum_j a_j v_j

The encoder merge ``halves`` makes such annotations as the paper does, from halves of
the states of both directions.

Reading of the paper: it does not say how a state of width K meets keys of width K/2.
It says that modifying-IW starts in the same state as key-value; so the keys must meet
the first half of the query. A learnt projection is the option.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from flax import struct

from kvnmt.attention import base
from kvnmt.attention.address import KeysAndValues, read_dot
from kvnmt.errors import OptionError
from kvnmt.initializers import Weights
from kvnmt.layers import Linear, init_linear, linear
from kvnmt.typing import Array, Bool, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices of key-value attention."""

    query: Literal["half", "projection"] = "half"


@struct.dataclass
class Params:
    """The query's projection, where there is one."""

    query: Linear | None


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the projection.

    Raises:
        OptionError: Annotations of odd width, or wider than two states.
    """
    C, D = sizes.annotation, sizes.state
    if C % 2:
        raise OptionError(
            f"key-value attention needs annotations of even width, not {C}; change "
            "{0} or {1}.",
            *("encoder", "merge"),
            prefix="model.",
        )
    if options.query == "projection":
        return Params(init_linear(key, [D], C // 2, weights))
    if D < C // 2:
        raise OptionError(
            f"a decoder state of {D} has no half for keys of {C // 2}; give a larger "
            "{0}, or set {1} projection.",
            *("state", "attention.query"),
            prefix="model.",
        )
    return Params(None)


def prepare(
    params: Params, annotations: Float[Array, "B S C"], mask: Bool[Array, "B S"]
) -> KeysAndValues:
    """Splits the annotations."""
    half = annotations.shape[-1] // 2
    return KeysAndValues(annotations[..., :half], annotations[..., half:], mask)


def read(
    params: Params, source: KeysAndValues, state: tuple[()], moment: base.Moment
) -> base.Attended:
    """Scores the keys by the query and reads the values."""
    if params.query is None:
        return read_dot(source, moment.query[:, : source.keys.shape[-1]])
    return read_dot(source, linear(params.query, moment.query))


def build(options: Options) -> base.Attention:
    """Key-value attention under the contract."""
    return base.Attention(
        init=partial(init, options),
        prepare=prepare,
        read=read,
        context_size=lambda sizes: sizes.annotation // 2,
    )
