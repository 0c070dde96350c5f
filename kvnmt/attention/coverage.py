# SPDX-License-Identifier: Apache-2.0
"""Coverage: what was already translated takes part in the energy.

Z. Tu, Z. Lu, Y. Liu, X. Liu, H. Li (2016), "Modeling Coverage for Neural Machine
Translation", section 3; details from the authors' code.

=============  ==============================================================
parameters     v, W, U, b, G; U_f, b_f of fertility; neural: a GRU, or four
               matrices without bias
source         annotations, mask, projected keys; fertility; h_j as the coverage
               cell takes it
state, carried coverage [B, S, k]
result         context ``sum_j a_j h_j``, alignment a
=============  ==============================================================

::

    e_j   = v . tanh(W q_t + U h_j + G cov_{t-1,j} + b)           cov_0 = 0
    linguistic  cov_j += a_j / Phi_j,  Phi_j = N sig(U_f h_j + b_f) or 1      k = 1
                ``subtractive``: starts at 1 and loses a_j / Phi_j
    neural      gated    cov_j = GRU(cov_j, [a_j; h_j; s_{t-1}])
                ungated  cov_j = tanh(W_c cov_j + W_a a_j + W_h h_j + W_s s_{t-1})

One set of weights serves all positions; the products of h_j are made once per
sentence. The state fed is s_{t-1}, not the query (authors' code). ``reset`` is where
the GRU applies its reset gate: after the product in one of their codes, before it in
the other. Coverage of padding may drift; nothing reads it.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import base
from kvnmt.attention.address import (
    Address,
    address,
    init_address,
    project_keys,
    read_values,
)
from kvnmt.errors import UserError
from kvnmt.initializers import Weights
from kvnmt.layers import (
    GRU,
    Linear,
    Reset,
    gru,
    init_gru,
    init_linear,
    linear,
    precise,
)
from kvnmt.typing import Array, Bool, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices; the defaults are the neural coverage of the paper."""

    kind: Literal["linguistic", "neural"] = "neural"
    fertility: bool = False  # linguistic
    max_fertility: float = 2.0  # N
    subtractive: bool = False  # linguistic
    gated: bool = True  # neural
    size: int = 1  # k; neural
    reset: Reset = "after"  # neural, gated


@struct.dataclass
class Ungated:
    """The cell without gates; the paper prints no bias."""

    W: tuple[Float[Array, "_ K"], ...]  # of a_j, h_j, s
    U: Float[Array, "K K"]  # of cov_j


@struct.dataclass
class Params:
    """One round; what the kind does not use is None."""

    address: Address  # named as in additive, so that it can be warm-started
    G: Float[Array, "K A"]
    fertility: Linear | None
    cell: GRU | Ungated | None


@struct.dataclass
class Source:
    """Constants of a sentence."""

    annotations: Float[Array, "B S C"]
    projected_keys: Float[Array, "B S A"]
    mask: Bool[Array, "B S"]
    fertility: Float[Array, "B S"] | None
    cell: Float[Array, "B S _"] | None  # the cell's product of h_j, and its bias


@struct.dataclass
class State:
    """Carried from step to step."""

    coverage: Float[Array, "B S K"]


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the parameters of one round.

    Raises:
        UserError: Linguistic coverage of another size than 1.
    """
    if options.kind == "linguistic" and options.size != 1:
        raise UserError(f"linguistic coverage has size 1, not {options.size}.")
    key_address, key_G, key_fertility, key_cell = jax.random.split(key, 4)
    C, D, A, K = sizes.annotation, sizes.state, sizes.alignment, options.size
    fertility = cell = None
    if options.kind == "linguistic" and options.fertility:
        fertility = init_linear(key_fertility, [C], 1, weights)
    if options.kind == "neural" and options.gated:
        cell = init_gru(key_cell, [1, C, D], K, weights)
    if options.kind == "neural" and not options.gated:
        key_coverage, key_rest = jax.random.split(key_cell)
        square = weights.matrix(key_coverage, (K, K), jnp.float32)
        cell = Ungated(init_linear(key_rest, [1, C, D], K, weights).W, square)
    G = weights.address(key_G, (K, A), jnp.float32)
    return Params(init_address(key_address, D, C, A, weights), G, fertility, cell)


def prepare(
    options: Options,
    params: Params,
    annotations: Float[Array, "B S C"],
    mask: Bool[Array, "B S"],
) -> Source:
    """Projects the annotations once for the energy, the fertility and the cell."""
    fertility = cell = None
    if params.fertility is not None:
        share = jax.nn.sigmoid(linear(params.fertility, annotations)[..., 0])
        fertility = options.max_fertility * share
    if isinstance(params.cell, GRU):
        cell = annotations @ params.cell.W[1] + params.cell.b
    if isinstance(params.cell, Ungated):
        cell = annotations @ params.cell.W[1]
    keys = project_keys(params.address, annotations)
    return Source(annotations, keys, mask, fertility, cell)


def initial_state(options: Options, params: Params, source: Source) -> State:
    """Nothing is covered; all is left to cover in the subtractive form."""
    shape = (*source.mask.shape, options.size)
    covered = jnp.zeros(shape, source.annotations.dtype)
    if options.kind == "linguistic":  # a sum over the whole target
        covered = precise(covered) + options.subtractive
    return State(covered)


def read(
    params: Params, source: Source, state: State, moment: base.Moment
) -> base.Attended:
    """Addresses the annotations by the query and their coverage, and reads them."""
    coverage = state.coverage.astype(params.G.dtype)
    keys = source.projected_keys + coverage @ params.G
    alignment = address(params.address, moment.query, keys, source.mask)
    return base.Attended(read_values(alignment, source.annotations), alignment)


def write(
    options: Options,
    params: Params,
    source: Source,
    state: State,
    moment: base.Moment,
) -> State:
    """Covers what was read."""
    assert moment.attended is not None and moment.attended.alignment is not None
    a = moment.attended.alignment[..., None]  # [B, S, 1]
    if params.cell is None:
        covered = a if source.fertility is None else a / source.fertility[..., None]
        return State(state.coverage + (-covered if options.subtractive else covered))
    assert source.cell is not None
    W_a, _, W_s = params.cell.W
    total = source.cell + a * W_a + (moment.previous_state @ W_s)[:, None, :]
    if isinstance(params.cell, GRU):
        return State(gru(params.cell, state.coverage, total, options.reset))
    return State(jnp.tanh(state.coverage @ params.cell.U + total))


def build(options: Options) -> base.Attention:
    """Coverage under the contract."""
    return base.Attention(
        init=partial(init, options),
        prepare=partial(prepare, options),
        initial_state=partial(initial_state, options),
        read=read,
        write=partial(write, options),
    )
