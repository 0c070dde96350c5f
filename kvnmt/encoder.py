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
    Kept,
    Linear,
    gru,
    init_gru,
    init_linear,
    init_lstm,
    linear,
    lstm,
    recurrent_inputs,
    scan,
)
from kvnmt.typing import Array, Bool, Float, Key, Sizes, typed

Merge: TypeAlias = Literal[
    "concat", "sum", "stack", "project", "halves", "forward", "none"
]
CellName: TypeAlias = Literal["gru", "gru_before", "lstm"]

SCAN = "encoder_scan"  # what a scan over source words is called in a traced program


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
    backward_first: Float[Array, "B H"] | None  # b_1, where the backward stack ends;
    # None: there is no such stack
    sizes: Sizes = struct.field(pytree_node=False)  # of the whole model


class _Cell(NamedTuple):
    init: Callable[..., Any]
    step: Callable[..., tuple[Array, ...]]  # (params, state, inputs) -> state
    arrays: int  # in a state; the first is what a layer above reads


CELLS: dict[CellName, _Cell] = {
    "gru": _Cell(init_gru, lambda p, s, x: (gru(p, s[0], x),), 1),
    "gru_before": _Cell(init_gru, lambda p, s, x: (gru(p, s[0], x, "before"),), 1),
    "lstm": _Cell(init_lstm, lambda p, s, x: lstm(p, s[0], s[1], x), 2),
}


def _init_project(key: Array, size: int, weights: Weights) -> tuple[Linear, ...]:
    return (init_linear(key, [size, size], size, weights),)


def _init_halves(key: Array, size: int, weights: Weights) -> tuple[Linear, ...]:
    if size % 2:
        raise UserError(f"merge 'halves' needs an even encoder size, not {size}.")
    half = size // 2
    keys = jax.random.split(key)
    return tuple(init_linear(k, [half, half], half, weights) for k in keys)


def _halves(project: tuple[Linear, ...], forward: Array, backward: Array) -> Array:
    parts = zip(jnp.split(forward, 2, axis=-1), jnp.split(backward, 2, axis=-1))
    merged = [linear(p, f, b) for p, (f, b) in zip(project, parts, strict=True)]
    return jnp.concatenate(merged, axis=-1)


class _Merge(NamedTuple):
    """How both directions become annotations.

    ``join`` gets the projections, f and b; where a direction has no stack, what the
    stack would have read stands in its place.
    """

    join: Callable[[tuple[Linear, ...], Array, Array], Array]
    project: Callable[[Array, int, Weights], tuple[Linear, ...]] = lambda *_: ()
    width: Callable[[int], int] = lambda units: units  # C for H units
    stacks: tuple[str, ...] = ("forward", "backward")  # which there are
    chained: bool = False  # the backward stack reads the forward one


MERGES: dict[Merge, _Merge] = {
    "concat": _Merge(
        join=lambda _, f, b: jnp.concatenate([f, b], axis=-1),
        width=lambda units: 2 * units,
    ),
    "sum": _Merge(join=lambda _, f, b: f + b),
    "stack": _Merge(join=lambda _, f, b: b, chained=True),
    "project": _Merge(
        join=lambda project, f, b: linear(project[0], f, b), project=_init_project
    ),
    "halves": _Merge(join=_halves, project=_init_halves),
    "forward": _Merge(join=lambda _, f, b: f, stacks=("forward",)),
    "none": _Merge(join=lambda _, f, b: f[..., :0], width=lambda units: 0, stacks=()),
}


def annotation_size(merge: Merge, encoder: int) -> int:
    """Returns C for H units in each direction."""
    return MERGES[merge].width(encoder)


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
    how = MERGES[merge]

    def stack(direction: str, key: Array, below: int) -> tuple[GRU | LSTM, ...]:
        if direction not in how.stacks:
            return ()
        keys = [key, *(jax.random.fold_in(key, n) for n in range(1, layers))]
        widths = [below] + [H] * (layers - 1)
        make = CELLS[cell].init
        return tuple(make(k, [n], H, weights) for k, n in zip(keys, widths))

    return Params(
        forward=stack("forward", key_forward, E),
        backward=stack("backward", key_backward, H if how.chained else E),
        project=how.project(key_project, H, weights),
    )


@typed
def encode(
    params: Params,
    sizes: Sizes,
    merge: Merge,
    embedded: Float[Array, "B S E"],
    mask: Bool[Array, "B S"],
    cell: CellName = "gru",
    kept: Kept = Kept(),
) -> Encoded:
    """Reads the source in both directions; annotations of padding are zero."""
    how = MERGES[merge]
    forward = _run(params.forward, cell, embedded, mask, kept, reverse=False)
    below = forward if how.chained else embedded
    backward = _run(params.backward, cell, below, mask, kept, reverse=True)
    annotations = how.join(params.project, forward, backward)
    return Encoded(
        annotations=jnp.where(mask[..., None], annotations, 0),
        mask=mask,
        backward_first=backward[:, 0] if params.backward else None,
        sizes=sizes,
    )


def _run(
    stack: tuple[GRU | LSTM, ...],
    cell: CellName,
    x: Float[Array, "B S _"],
    mask: Bool[Array, "B S"],
    kept: Kept,
    *,
    reverse: bool,
) -> Float[Array, "B S H"]:
    """Runs a stack, layer by layer; a padded position keeps the state as it is."""
    for params in stack:
        x = _run_layer(params, CELLS[cell], x, mask, kept, reverse)
    return x


def _run_layer(
    params: GRU | LSTM,
    cell: _Cell,
    x: Array,
    mask: Array,
    kept: Kept,
    reverse: bool,
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
    # The chunks are of target steps; states of the source are small.
    kept = kept._replace(chunk=0)
    with jax.named_scope(SCAN):
        states = scan(step, (zero,) * cell.arrays, steps, kept, reverse)
    return jnp.swapaxes(states, 0, 1)
