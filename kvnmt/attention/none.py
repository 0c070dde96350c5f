# SPDX-License-Identifier: Apache-2.0
"""No attention: one fixed context per sentence.

The RNN encoder-decoder (RNNencdec) that D. Bahdanau, K. Cho, Y. Bengio (2015) compare
with, after K. Cho et al. (2014).

=============  ==============================================================
parameters     V, b                                            D C + D numbers
source         c
state, carried none
result         context c, no alignment
=============  ==============================================================

::

    c = tanh(V h_S + b)          ``projection``; else c = h_S

With the encoder merge ``forward``, h_S is the last forward state, as in the paper. A
language model has neither encoder nor projection: its context has width 0.
"""

from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
from flax import struct

from kvnmt.attention import base
from kvnmt.initializers import Weights
from kvnmt.layers import Linear, init_linear, last_annotation, linear
from kvnmt.typing import Array, Bool, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices of the fixed context."""

    projection: bool = True


@struct.dataclass
class Params:
    """The projection, where there is one."""

    project: Linear | None


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the projection."""
    if not options.projection:
        return Params(None)
    return Params(init_linear(key, [sizes.annotation], sizes.state, weights))


def prepare(
    params: Params, annotations: Float[Array, "B S C"], mask: Bool[Array, "B S"]
) -> Float[Array, "B _"]:
    """Computes the context, once for all target steps: it is the Source."""
    last = last_annotation(annotations, mask)
    if params.project is None:
        return last
    return jnp.tanh(linear(params.project, last))


def read(
    params: Params,
    source: Float[Array, "B _"],
    state: tuple[()],
    moment: base.Moment,
) -> base.Attended:
    """Gives the same context at every step."""
    return base.Attended(source, None)


def build(options: Options) -> base.Attention:
    """The fixed context under the contract."""
    return base.Attention(
        init=partial(init, options),
        prepare=prepare,
        read=read,
        needs_source=False,
        context_size=lambda sizes: (
            sizes.state if options.projection else sizes.annotation
        ),
    )
