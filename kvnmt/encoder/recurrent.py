# SPDX-License-Identifier: Apache-2.0
"""Stacks of recurrent layers, each in the direction of its stack.

A padded position leaves the state unchanged, so that padding is never read.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from kvnmt.encoder.base import Choices, Stack
from kvnmt.initializers import Weights
from kvnmt.layers import (
    GRU,
    LSTM,
    Scanning,
    dropout,
    gru,
    init_gru,
    init_lstm,
    lstm,
    precise,
    recurrent_inputs,
    scan,
    split_key,
)
from kvnmt.typing import Array, Bool, Float, Key

SCAN = "encoder_scan"  # what a scan over source words is called in a traced program


class _Cell(NamedTuple):
    init: Callable[..., Any]
    step: Callable[..., tuple[Array, ...]]  # (params, state, inputs) -> state
    arrays: int  # in a state; the first is what a layer above reads


def init(
    cell: _Cell,
    key: Key[Array, ""],
    below: int,
    size: int,
    choices: Choices,
    weights: Weights,
) -> tuple[GRU | LSTM, ...]:
    """Makes every layer."""
    keys = [key, *(jax.random.fold_in(key, n) for n in range(1, choices.layers))]
    widths = [below] + [size] * (choices.layers - 1)
    return tuple(cell.init(k, [n], size, weights) for k, n in zip(keys, widths))


def run(
    cell: _Cell,
    params: tuple[GRU | LSTM, ...],
    x: Float[Array, "B S _"],
    mask: Bool[Array, "B S"],
    choices: Choices,
    *,
    reverse: bool,
    scanning: Scanning,
    key: Key[Array, "*B"] | None,
) -> Float[Array, "B S H"]:
    """Runs a stack, layer by layer."""
    first, *others = params
    x = _run_layer(first, cell, x, mask, scanning, reverse)
    for layer, drop in zip(others, split_key(key, len(others))):
        below = dropout(drop, choices.dropout, x)
        above = _run_layer(layer, cell, below, mask, scanning, reverse)
        x = x + above if choices.residual else above
    return x


def _run_layer(
    params: GRU | LSTM,
    cell: _Cell,
    x: Array,
    mask: Array,
    scanning: Scanning,
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
    # The chunks are of target steps; states of the source are small, and all products
    # are vectors, in both directions at once, too.
    scanning = scanning._replace(chunk=0, residuals="products")
    with jax.named_scope(SCAN):
        start = zero, precise(zero)  # an LSTM's cell is a sum over the whole source
        states = scan(step, start[: cell.arrays], steps, scanning, reverse)
    return jnp.swapaxes(states, 0, 1)


def _stack(cell: _Cell) -> Stack:
    return Stack(partial(init, cell), partial(run, cell))


GRU_AFTER = _stack(_Cell(init_gru, lambda p, s, x: (gru(p, s[0], x),), 1))
GRU_BEFORE = _stack(_Cell(init_gru, lambda p, s, x: (gru(p, s[0], x, "before"),), 1))
LSTM_STACK = _stack(_Cell(init_lstm, lambda p, s, x: lstm(p, s[0], s[1], x), 2))
