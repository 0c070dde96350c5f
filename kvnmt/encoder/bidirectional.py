# SPDX-License-Identifier: Apache-2.0
"""The encoder: embedded source to annotations, by a stack for each direction.

Each direction is a stack of ``layers`` layers of H units; layer n + 1 reads what layer
n of its own direction gives (`Choices`). ``merge`` says how what both top layers give,
f_j and b_j, becomes one annotation:

===========  ===========================================================  =====
``concat``   ``[f ; b]`` (Bahdanau et al. 2015)                           C = 2H
``sum``      ``f + b``: the only parameter-free merge that, with
             ``stack``, fits the counts of Meng et al. (2018)             C = H
``stack``    a backward stack over the states of the forward stack        C = H
``project``  ``W [f ; b] + b`` (Mino et al. 2017, equation 3)             C = H
``halves``   ``[W_f [kf ; kb] ; W_g [vf ; vb]]``, where f = [kf ; vf] and
             b = [kb ; vb]: keys first, then values (Mino et al. 2017)    C = H
``forward``  f alone; there is no backward stack (RNNencdec, and every
             encoder of Transformer layers, which have no direction)      C = H
``none``     nothing: no source is read (language models)                 C = 0
===========  ===========================================================  =====

The projections have biases ("affine" in the text of Mino et al.).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.encoder import recurrent, transformer
from kvnmt.encoder.base import CellName, Choices, Encoded, Merge, Stack
from kvnmt.errors import OptionError
from kvnmt.initializers import Weights
from kvnmt.layers import Linear, Scanning, init_linear, linear, split_key
from kvnmt.typing import Array, Bool, Float, Key, PyTree, Sizes, typed

CELLS: dict[CellName, Stack] = {
    "gru": recurrent.GRU_AFTER,
    "gru_before": recurrent.GRU_BEFORE,
    "lstm": recurrent.LSTM_STACK,
    "transformer": transformer.STACK,
}


@struct.dataclass
class Params:
    """A stack for each direction and, where the merge needs them, projections."""

    forward: PyTree  # (): there is no such stack
    backward: PyTree
    project: tuple[Linear, ...]


def _init_project(key: Array, size: int, weights: Weights) -> tuple[Linear, ...]:
    return (init_linear(key, [size, size], size, weights),)


def _init_halves(key: Array, size: int, weights: Weights) -> tuple[Linear, ...]:
    if size % 2:
        raise OptionError(
            f"{{0}} halves needs an even encoder size, not {size}; give {{1}} an even "
            "number, or choose another {0}.",
            *("merge", "encoder"),
            prefix="model.",
        )
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


def entry_gain(choices: Choices, encoder: int) -> float:
    """Returns what a stack of H units multiplies embedded words by."""
    return CELLS[choices.cell].gain(encoder)


def annotation_size(merge: Merge, encoder: int) -> int:
    """Returns C for H units in each direction."""
    return MERGES[merge].width(encoder)


def init(
    choices: Choices, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the encoder's parameters.

    Raises:
        UserError: ``halves`` of an odd number of units, or two stacks of layers that
            have no direction.
    """
    key_forward, key_backward, key_project = jax.random.split(key, 3)
    E, H = sizes.embedding, sizes.encoder
    how, kind = MERGES[choices.merge], CELLS[choices.cell]
    if "backward" in how.stacks and not kind.directed:
        raise OptionError(
            f"an encoder of cell '{choices.cell}' sees the whole sentence at once and "
            "has one stack; set {0} forward.",
            "merge",
            prefix="model.",
        )

    def stack(direction: str, key: Array, below: int) -> PyTree:
        if direction not in how.stacks:
            return ()
        return kind.init(key, below, H, choices, weights)

    return Params(
        forward=stack("forward", key_forward, E),
        backward=stack("backward", key_backward, H if how.chained else E),
        project=how.project(key_project, H, weights),
    )


@typed
def encode(
    choices: Choices,
    params: Params,
    sizes: Sizes,
    embedded: Float[Array, "B S E"],
    mask: Bool[Array, "B S"],
    scanning: Scanning = Scanning(),
    key: Key[Array, "*_"] | None = None,
) -> Encoded:
    """Reads the source in both directions; annotations of padding are zero."""
    how, kind = MERGES[choices.merge], CELLS[choices.cell]
    keys = split_key(key, 2)

    def run(stack: PyTree, x: Array, mask: Array, key: Array | None, **way: Any) -> Any:
        if not stack:  # there is none
            return x
        return kind.run(stack, x, mask, choices, scanning=scanning, key=key, **way)

    both = params.forward and params.backward and not how.chained
    # In a turned source other words would be dropped.
    drops = choices.layers > 1 and choices.dropout and key is not None
    if scanning.joined and kind.recurs and both and not drops:
        read = partial(run, key=None, reverse=False)
        forward, backward = _at_once(read, params, embedded, mask)
    else:
        forward = run(params.forward, embedded, mask, keys[0], reverse=False)
        below = forward if how.chained else embedded
        backward = run(params.backward, below, mask, keys[1], reverse=True)
    annotations = how.join(params.project, forward, backward)
    return Encoded(
        annotations=jnp.where(mask[..., None], annotations, 0),
        mask=mask,
        backward_first=backward[:, 0] if params.backward else None,
        sizes=sizes,
    )


def _at_once(
    run: Callable[..., Array],
    params: Params,
    embedded: Array,
    mask: Array,
) -> tuple[Array, Array]:
    """Both directions in one scan, which starts half as many kernels."""

    def turned(x: Array) -> Array:
        return jnp.stack([x, x[:, ::-1]])

    stacks = jax.tree.map(lambda *two: jnp.stack(two), params.forward, params.backward)
    forward, backward = jax.vmap(run)(stacks, turned(embedded), turned(mask))
    return forward, backward[:, ::-1]
