# SPDX-License-Identifier: Apache-2.0
"""Additive attention: D. Bahdanau, K. Cho, Y. Bengio (2015), sections 3.1 and A.1.2.

The annotations are addressed by the query and read; nothing is rewritten.

=============  ==============================================================
parameters     v, W, U, b                              A (D + C + 2) numbers
source         annotations h, mask, projected keys ``U h_j + b``
state, carried none
result         context ``sum_j a_j h_j``, alignment a
=============  ==============================================================

::

    e_j = v . tanh(W q + U h_j + b)        a = softmax(e)        c = sum_j a_j h_j

Departure: the papers print no bias b; the codes they come from have one.
"""

from dataclasses import dataclass

from kvnmt.attention import base
from kvnmt.attention.address import (
    Params,
    Source,
    address,
    init_address,
    prepare,
    read_values,
)
from kvnmt.initializers import Weights
from kvnmt.typing import Array, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Additive attention has no static choices."""


def init(key: Key[Array, ""], sizes: Sizes, weights: Weights) -> Params:
    """Makes the parameters of one round."""
    return Params(
        init_address(key, sizes.state, sizes.annotation, sizes.alignment, weights)
    )


def read(
    params: Params, source: Source, state: tuple[()], moment: base.Moment
) -> base.Attended:
    """Addresses the annotations by the query and reads them."""
    alignment = address(
        params.address, moment.query, source.projected_keys, source.mask
    )
    return base.Attended(read_values(alignment, source.annotations), alignment)


def build(options: Options) -> base.Attention:
    """Additive attention under the contract."""
    return base.Attention(
        init=init,
        prepare=prepare,
        read=read,
    )
