# SPDX-License-Identifier: Apache-2.0
"""Neural coverage: a small recurrent cell per source word keeps what it received.

Z. Tu, Z. Lu, Y. Liu, X. Liu, H. Li (2016), "Modeling Coverage for Neural Machine
Translation", section 3; details from the authors' code.

=============  ==============================================================
parameters     v, W, U, b, G; a GRU, or four matrices without bias
source         annotations, mask, projected keys; h_j as the cell takes it
state, carried coverage [B, S, k]
result         context ``sum_j a_j h_j``, alignment a
=============  ==============================================================

::

    e_j  = v . tanh(W q_t + U h_j + G cov_{t-1,j} + b)            cov_0 = 0
    gru  cov_j = GRU(cov_j, [a_j; h_j; s_{t-1}])
    tanh cov_j = tanh(W_c cov_j + W_a a_j + W_h h_j + W_s s_{t-1})

One set of weights serves all positions; the products of h_j are made once per
sentence. The state fed is s_{t-1}, or what a decoder has in its place, not the query
(authors' code). The reset gate of ``gru`` acts after the product, that of
``gru_before`` before it: the authors have a code for each. Coverage of padding may
drift; nothing reads it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import address, base, coverage
from kvnmt.attention.address import init_address
from kvnmt.attention.coverage import State, read, received
from kvnmt.fields import EXTENDS, WIDEST, between
from kvnmt.initializers import Weights
from kvnmt.layers import GRU, gru, init_gru, init_linear, precise
from kvnmt.typing import Array, Bool, Float, Key, Sizes

CellName: TypeAlias = Literal["gru", "gru_before", "tanh"]


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices; the defaults are the gated coverage of the paper."""

    cell: CellName = "gru"
    size: Annotated[int, between(1, WIDEST), EXTENDS] = 1  # k


@struct.dataclass
class Ungated:
    """The cell without gates; the paper prints no bias."""

    W: tuple[Float[Array, "_ K"], ...]  # of a_j, h_j, s
    U: Float[Array, "K K"]  # of cov_j


@struct.dataclass
class Params(coverage.Params):
    """One round."""

    cell: GRU | Ungated


@struct.dataclass
class Source(address.Source):
    """Constants of a sentence."""

    cell: Float[Array, "B S _"]  # the cell's product of h_j, and its bias


class _Cell(NamedTuple):
    init: Callable[..., Any]
    prepare: Callable[[Any, Array], Array]  # (params, annotations) -> Source.cell
    step: Callable[[Any, Array, Array], Array]  # (params, coverage, inputs) -> new


def init_ungated(
    key: Key[Array, ""], inputs: list[int], size: int, weights: Weights
) -> Ungated:
    """Makes the cell without gates."""
    key_coverage, key_inputs = jax.random.split(key)
    return Ungated(
        W=init_linear(key_inputs, inputs, size, weights).W,
        U=weights.matrix(key_coverage, (size, size), jnp.float32),
    )


CELLS: dict[CellName, _Cell] = {
    "gru": _Cell(init_gru, lambda p, h: h @ p.W[1] + p.b, gru),
    "gru_before": _Cell(
        init_gru, lambda p, h: h @ p.W[1] + p.b, partial(gru, reset="before")
    ),
    "tanh": _Cell(
        init_ungated,
        lambda p, h: h @ p.W[1],
        lambda p, c, x: jnp.tanh(c.astype(p.U.dtype) @ p.U + x),
    ),
}


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the parameters of one round."""
    key_address, key_G, _, key_cell = jax.random.split(key, 4)
    C, D, A, K = sizes.annotation, sizes.state, sizes.alignment, options.size
    # The few numbers of a position, perhaps one, leave nothing to normalise.
    plain = weights._replace(gain=0.0)
    return Params(
        address=init_address(key_address, D, C, A, weights),
        G=weights.address(key_G, (K, A), jnp.float32),
        cell=CELLS[options.cell].init(key_cell, [1, C, D], K, plain),
    )


def prepare(
    options: Options,
    params: Params,
    annotations: Float[Array, "B S C"],
    mask: Bool[Array, "B S"],
) -> Source:
    """Projects the annotations once for the energy and the cell."""
    cell = CELLS[options.cell].prepare(params.cell, annotations)
    keys = address.project_keys(params.address, annotations)
    return Source(annotations, keys, mask, cell)


def initial_state(options: Options, params: Params, source: Source) -> State:
    """Nothing is covered."""
    shape = (*source.mask.shape, options.size)
    return State(precise(jnp.zeros(shape, source.annotations.dtype)))


def write(
    options: Options,
    params: Params,
    source: Source,
    state: State,
    moment: base.Moment,
) -> State:
    """Advances the cell of every position by what it received."""
    W_a, _, W_s = params.cell.W
    fresh = source.cell + received(moment) * W_a
    fresh = fresh + (moment.previous_state @ W_s)[:, None, :]
    new = CELLS[options.cell].step(params.cell, state.coverage, fresh)
    return State(precise(new))


def build(options: Options) -> base.Attention:
    """Neural coverage under the contract."""
    return base.Attention(
        init=partial(init, options),
        prepare=partial(prepare, options),
        read=read,
        initial_state=partial(initial_state, options),
        write=partial(write, options),
    )
