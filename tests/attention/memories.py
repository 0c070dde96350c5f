# SPDX-License-Identifier: Apache-2.0
"""Linear memories of a few words, written step by step."""

from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.layers.linear_memory import Shape, Update, Writer
from kvnmt.layers.write_chunks import fill

UPDATES = get_args(Update)
B, T, WIDTH, SHAPE = 2, 11, 7, Shape(heads=2, key=3, value=4)
MASK = np.arange(T) < np.array([[T], [6]])
OFF = 1e9  # of a bias that shuts a gate, or opens it
close = {"rtol": 1e-10, "atol": 1e-10}


def draw(seed: int, *shape: int) -> jax.Array:
    return jax.device_put(np.random.default_rng(seed).normal(size=shape))


# Compiled: one by one, their operations would be a program each.
filled = jax.jit(fill)


def without_decay(writer: Writer) -> Writer:
    assert writer.decay is not None
    none = writer.decay.replace(A=jnp.full(SHAPE.heads, -np.inf))
    return writer.replace(decay=none)
