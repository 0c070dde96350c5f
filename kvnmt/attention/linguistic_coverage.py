# SPDX-License-Identifier: Apache-2.0
"""Linguistic coverage: each word sums up the attention that it receives.

Z. Tu, Z. Lu, Y. Liu, X. Liu, H. Li (2016), "Modeling Coverage for Neural Machine
Translation", section 3; details from the authors' code.

=============  ==============================================================
parameters     v, W, U, b, G; U_f, b_f of fertility
source         annotations, mask, projected keys; fertility
state, carried coverage [B, S, 1]
result         context ``sum_j a_j h_j``, alignment a
=============  ==============================================================

::

    e_j   = v . tanh(W q_t + U h_j + G cov_{t-1,j} + b)           cov_0 = 0
    cov_j = cov_j + a_j / Phi_j
    Phi_j = N sig(U_f h_j + b_f), the fertility of a word; 1 where it is not modelled

``subtractive``: coverage starts at 1 and loses ``a_j / Phi_j``. Departure: the sigmoid
is taken as a millionth at least, so that coverage stays finite.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import address, base, coverage
from kvnmt.attention.address import init_address
from kvnmt.attention.coverage import State, read, received
from kvnmt.fields import at_least
from kvnmt.initializers import Weights
from kvnmt.layers import Linear, init_linear, linear, precise
from kvnmt.typing import Array, Bool, Float, Key, Sizes

LEAST = 1e-6  # share of N that any word has


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices; the defaults are the plain sum of attention."""

    max_fertility: Annotated[float | None, at_least(1)] = None  # N; None: Phi is 1
    subtractive: bool = False  # coverage counts down, so its weights mean the opposite


@struct.dataclass
class Params(coverage.Params):
    """One round."""

    fertility: Linear | None  # U_f, b_f


@struct.dataclass
class Source(address.Source):
    """Constants of a sentence."""

    fertility: Float[Array, "B S"] | None  # Phi; None: 1


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the parameters of one round."""
    key_address, key_G, key_fertility = jax.random.split(key, 3)
    C, D, A = sizes.annotation, sizes.state, sizes.alignment
    fertility = None
    if options.max_fertility is not None:
        fertility = init_linear(key_fertility, [C], 1, weights)
    return Params(
        address=init_address(key_address, D, C, A, weights),
        G=weights.address(key_G, (1, A), jnp.float32),
        fertility=fertility,
    )


def prepare(
    options: Options,
    params: Params,
    annotations: Float[Array, "B S C"],
    mask: Bool[Array, "B S"],
) -> Source:
    """Projects the annotations once for the energy and the fertility."""
    fertility = None
    if params.fertility is not None:
        assert options.max_fertility is not None
        share = jax.nn.sigmoid(linear(params.fertility, annotations)[..., 0])
        fertility = options.max_fertility * jnp.maximum(share, LEAST)
    keys = address.project_keys(params.address, annotations)
    return Source(annotations, keys, mask, fertility)


def initial_state(options: Options, params: Params, source: Source) -> State:
    """Nothing is covered; all is left to cover in the subtractive form."""
    nothing = jnp.zeros((*source.mask.shape, 1), source.annotations.dtype)
    start = 1.0 if options.subtractive else 0.0
    return State(precise(nothing) + start)  # a sum over the whole target


def write(
    options: Options,
    params: Params,
    source: Source,
    state: State,
    moment: base.Moment,
) -> State:
    """Books what was read."""
    covered = received(moment)
    if source.fertility is not None:
        covered = covered / source.fertility[..., None]
    return State(state.coverage + (-covered if options.subtractive else covered))


def build(options: Options) -> base.Attention:
    """Linguistic coverage under the contract."""
    return base.Attention(
        init=partial(init, options),
        prepare=partial(prepare, options),
        read=read,
        initial_state=partial(initial_state, options),
        write=partial(write, options),
    )
