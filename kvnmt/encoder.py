# SPDX-License-Identifier: Apache-2.0
"""The bidirectional encoder: embedded source to annotations.

Each direction is a stack of ``layers`` recurrent layers of H units; layer n + 1
reads the states of layer n of its own direction. ``merge`` says how the states f_j
and b_j of the two top layers become one annotation:

===========  ===========================================================  =====
``concat``   ``[f ; b]`` (Bahdanau et al. 2015)                           C = 2H
``sum``      ``f + b``: the only parameter-free merge that, with
             ``stack``, fits the counts of Meng et al. (2018)             C = H
``stack``    a backward stack over the states of the forward stack        C = H
``project``  ``W [f ; b] + b`` (Mino et al. 2017, equation 3)             C = H
``halves``   ``[W_f [kf ; kb] ; W_g [vf ; vb]]``, where f = [kf ; vf] and
             b = [kb ; vb]: keys first, then values (Mino et al. 2017)    C = H
``forward``  f alone; there is no backward stack (RNNencdec)              C = H
``none``     nothing: no source is read (language models)                 C = 0
===========  ===========================================================  =====

The projections have biases ("affine" in the text of Mino et al.).
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.errors import UserError
from kvnmt.initializers import Weights
from kvnmt.layers import (
    GRU,
    LSTM,
    Linear,
    gru,
    init_gru,
    init_linear,
    init_lstm,
    linear,
    lstm,
    recurrent_inputs,
)
from kvnmt.typing import Array, Bool, Float, Key, Sizes, typed

Merge: TypeAlias = Literal[
    "concat", "sum", "stack", "project", "halves", "forward", "none"
]
CellName: TypeAlias = Literal["gru", "gru_before", "lstm"]


@struct.dataclass
class Params:
    """A stack for each direction and, where the merge needs them, projections."""

    forward: tuple[GRU | LSTM, ...]
    backward: tuple[GRU | LSTM, ...]
    project: tuple[Linear, ...]


@struct.dataclass
class Encoded:
    """What a decoder may know of the source."""

    annotations: Float[Array, "B S C"]  # zero at padding
    mask: Bool[Array, "B S"]
    backward_first: Float[Array, "B _"]  # b_1, where the backward stack ends


class _Cell(NamedTuple):
    init: Callable[..., Any]
    step: Callable[..., tuple[Array, ...]]  # (params, state, inputs) -> state
    arrays: int  # in a state; the first is what a layer above reads


CELLS: dict[CellName, _Cell] = {
    "gru": _Cell(init_gru, lambda p, s, x: (gru(p, s[0], x),), 1),
    "gru_before": _Cell(init_gru, lambda p, s, x: (gru(p, s[0], x, "before"),), 1),
    "lstm": _Cell(init_lstm, lambda p, s, x: lstm(p, s[0], s[1], x), 2),
}


def annotation_size(merge: Merge, encoder: int) -> int:
    """Returns C for H units in each direction."""
    return {"concat": 2 * encoder, "none": 0}.get(merge, encoder)


def init(
    key: Key[Array, ""],
    sizes: Sizes,
    merge: Merge,
    weights: Weights,
    cell: CellName = "gru",
    layers: int = 1,
) -> Params:
    """Makes the encoder's parameters.

    Raises:
        UserError: ``halves`` of an odd number of units.
    """
    key_forward, key_backward, key_project = jax.random.split(key, 3)
    E, H = sizes.embedding, sizes.encoder

    def stack(key: Array, below: int) -> tuple[GRU | LSTM, ...]:
        keys = [key, *(jax.random.fold_in(key, n) for n in range(1, layers))]
        widths = [below] + [H] * (layers - 1)
        make = CELLS[cell].init
        return tuple(make(k, [n], H, weights) for k, n in zip(keys, widths))

    project: tuple[Linear, ...] = ()
    if merge == "project":
        project = (init_linear(key_project, [H, H], H, weights),)
    if merge == "halves":
        if H % 2:
            raise UserError(f"merge 'halves' needs an even encoder size, not {H}.")
        pair = jax.random.split(key_project)
        half = [H // 2, H // 2]
        project = tuple(init_linear(k, half, H // 2, weights) for k in pair)
    one_way = merge in ("forward", "none")
    return Params(
        forward=() if merge == "none" else stack(key_forward, E),
        backward=() if one_way else stack(key_backward, H if merge == "stack" else E),
        project=project,
    )


@typed
def encode(
    params: Params,
    merge: Merge,
    embedded: Float[Array, "B S E"],
    mask: Bool[Array, "B S"],
    cell: CellName = "gru",
) -> Encoded:
    """Reads the source in both directions; annotations of padding are zero."""
    forward = _run(params.forward, cell, embedded, mask, reverse=False)
    below = forward if merge == "stack" else embedded
    backward = _run(params.backward, cell, below, mask, reverse=True)
    annotations = _merge(merge, params.project, forward, backward)
    annotations = jnp.where(mask[..., None], annotations, 0)
    return Encoded(annotations, mask, backward[:, 0])


def _merge(
    merge: Merge, project: tuple[Linear, ...], forward: Array, backward: Array
) -> Array:
    if merge == "concat":
        return jnp.concatenate([forward, backward], axis=-1)
    if merge == "sum":
        return forward + backward
    if merge == "project":
        return linear(project[0], forward, backward)
    if merge == "halves":
        keys, values = zip(
            *(jnp.split(states, 2, axis=-1) for states in (forward, backward))
        )
        halves = [linear(project[0], *keys), linear(project[1], *values)]
        return jnp.concatenate(halves, axis=-1)
    if merge == "stack":
        return backward
    return forward if merge == "forward" else forward[..., :0]


def _run(
    stack: tuple[GRU | LSTM, ...],
    cell: CellName,
    x: Float[Array, "B S _"],
    mask: Bool[Array, "B S"],
    *,
    reverse: bool,
) -> Float[Array, "B S H"]:
    """Runs a stack, layer by layer; a padded position keeps the state as it is."""
    for params in stack:
        x = _run_layer(params, CELLS[cell], x, mask, reverse)
    return x


def _run_layer(
    params: GRU | LSTM, cell: _Cell, x: Array, mask: Array, reverse: bool
) -> Array:
    def step(
        state: tuple[Array, ...], now: tuple[Array, Array]
    ) -> tuple[tuple[Array, ...], Array]:
        inputs, real = now
        new = cell.step(params, state, inputs)
        state = tuple(jnp.where(real[:, None], n, o) for n, o in zip(new, state))
        return state, state[0]

    inputs = recurrent_inputs(params, x)  # [B, S, gates H], hoisted out of the scan
    zero = jnp.zeros((x.shape[0], params.U.shape[0]), inputs.dtype)
    steps = (jnp.swapaxes(inputs, 0, 1), mask.T)
    _, states = jax.lax.scan(step, (zero,) * cell.arrays, steps, reverse=reverse)
    return jnp.swapaxes(states, 0, 1)
