# SPDX-License-Identifier: Apache-2.0
"""The bidirectional GRU encoder: embedded source to annotations.

``merge`` says how the states of the two directions become one annotation:

===========  ===========================================================  =====
``concat``   ``[forward ; backward]`` (Bahdanau et al. 2015)              C = 2H
``sum``      ``forward + backward``: the only parameter-free merge that,
             with ``stack``, fits the counts of Meng et al. (2018)        C = H
``stack``    a backward GRU over the states of the forward GRU            C = H
``project``  ``W [forward ; backward] + b``                               C = H
===========  ===========================================================  =====
"""

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.layers import GRU, Linear, gru, gru_inputs, init_gru, init_linear, linear
from kvnmt.typing import Array, Bool, Float, Key, Sizes, Weights, typed

Merge: TypeAlias = Literal["concat", "sum", "stack", "project"]


@struct.dataclass
class Params:
    """Two GRUs and, where the merge needs it, a projection."""

    forward: GRU
    backward: GRU
    project: Linear | None


def annotation_size(merge: Merge, encoder: int) -> int:
    """Returns C for H units in each direction."""
    return 2 * encoder if merge == "concat" else encoder


def init(key: Key[Array, ""], sizes: Sizes, merge: Merge, weights: Weights) -> Params:
    """Makes the encoder's parameters."""
    key_forward, key_backward, key_project = jax.random.split(key, 3)
    E, H = sizes.embedding, sizes.encoder
    project = None
    if merge == "project":
        project = init_linear(key_project, [H, H], H, weights)
    return Params(
        forward=init_gru(key_forward, [E], H, weights),
        backward=init_gru(key_backward, [H if merge == "stack" else E], H, weights),
        project=project,
    )


@typed
def encode(
    params: Params,
    merge: Merge,
    embedded: Float[Array, "B S E"],
    mask: Bool[Array, "B S"],
) -> Float[Array, "B S C"]:
    """Reads the source in both directions; annotations of padding are zero."""
    forward = _run(params.forward, embedded, mask, reverse=False)
    below = forward if merge == "stack" else embedded
    backward = _run(params.backward, below, mask, reverse=True)
    if merge == "concat":
        annotations = jnp.concatenate([forward, backward], axis=-1)
    elif merge == "sum":
        annotations = forward + backward
    elif merge == "project":
        assert params.project is not None
        annotations = linear(params.project, forward, backward)
    else:
        annotations = backward
    return jnp.where(mask[..., None], annotations, 0)


def _run(
    params: GRU,
    x: Float[Array, "B S _"],
    mask: Bool[Array, "B S"],
    *,
    reverse: bool,
) -> Float[Array, "B S H"]:
    """Scans a GRU over the source; a padded position keeps the state as it is."""

    def step(
        state: Float[Array, "B H"], now: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        inputs, real = now
        state = jnp.where(real[:, None], gru(params, state, inputs), state)
        return state, state

    inputs = gru_inputs(params, x)  # [B, S, 3H], hoisted out of the scan
    start = jnp.zeros((x.shape[0], params.U.shape[0]), inputs.dtype)
    steps = (jnp.swapaxes(inputs, 0, 1), mask.T)
    _, states = jax.lax.scan(step, start, steps, reverse=reverse)
    return jnp.swapaxes(states, 0, 1)
