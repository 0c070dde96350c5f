# SPDX-License-Identifier: Apache-2.0
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import initializers, readout
from kvnmt.initializers import Scheme, Weights

SQUARE, OBLONG = (60, 60), (60, 90)
GLOROT = (2 / (60 + 90)) ** 0.5  # standard deviation of its uniform distribution


GAIN = 5.0  # of a stack that multiplies embeddings
PACKED = (2 / (60 + 3 * 90)) ** 0.5  # of three gates drawn as one wide matrix


def draw(scheme: Scheme, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    if kind == "inputs":  # three gates
        shape = shape[0], 3, shape[1]
    initializer = getattr(initializers.weights(scheme), kind)
    if kind == "table":
        initializer = initializer(GAIN)
    return np.asarray(initializer(jax.random.key(5), shape, jnp.float32))


KINDS = ("matrix", "inputs", "recurrent", "address", "energy", "readout")
# Standard deviation by kind of weight; 1 stands for an orthogonal square matrix.
DEVIATIONS = {
    "gaussian": dict.fromkeys(KINDS, 0.01) | {"recurrent": 1},
    "dl4mt": dict.fromkeys(KINDS, 0.01) | {"recurrent": 1},
    "groundhog": dict.fromkeys(KINDS, 0.01)
    | {"recurrent": 1, "address": 0.001, "energy": 0},
    "wide": dict.fromkeys(KINDS, 0.05),
    "glorot": dict.fromkeys(KINDS, GLOROT) | {"recurrent": 1, "inputs": PACKED},
    "unit": dict.fromkeys(KINDS, GLOROT) | {"recurrent": 1},
}
TABLES = {"wide": 0.05, "glorot": 0.1, "unit": 1 / GAIN}


def test_every_scheme_is_described():
    assert set(get_args(Scheme)) == set(DEVIATIONS)
    of_config = {"gain", "forget"}  # numbers that no scheme chooses
    kinds = set(Weights._fields) - {"table", *of_config}
    assert all(set(kind) == kinds for kind in DEVIATIONS.values())


@pytest.mark.parametrize("scheme", DEVIATIONS)
def test_deviations(scheme):
    for kind, deviation in DEVIATIONS[scheme].items():
        if kind == "recurrent" and deviation == 1:
            block = draw(scheme, kind, SQUARE)
            np.testing.assert_allclose(block @ block.T, np.eye(60), atol=1e-5)
            continue
        drawn = draw(scheme, kind, OBLONG)
        assert abs(drawn.std() - deviation) <= 0.05 * deviation, kind
        assert abs(drawn.mean()) <= 0.05 * deviation, kind
    table = draw(scheme, "table", OBLONG).std()
    assert abs(table / TABLES.get(scheme, 0.01) - 1) < 0.05


@pytest.mark.parametrize("scheme", DEVIATIONS)
def test_square_matrices_are_orthogonal_in_one_scheme_alone(scheme):
    for kind in ("matrix", "address"):
        square = draw(scheme, kind, SQUARE)
        orthogonal = np.allclose(square @ square.T, np.eye(60), atol=1e-4)
        assert orthogonal == (scheme == "dl4mt")
    for gate in np.swapaxes(draw(scheme, "inputs", SQUARE), 0, 1):
        orthogonal = np.allclose(gate @ gate.T, np.eye(60), atol=1e-4)
        assert orthogonal == (scheme == "dl4mt")
    # A vocabulary as large as its vectors, and a readout as wide as what it reads.
    for kind in ("table", "readout"):
        square = draw(scheme, kind, SQUARE)
        assert not np.allclose(square @ square.T, np.eye(60), atol=1e-4)


@pytest.mark.parametrize("kind", ["tanh", "maxout"])
def test_a_readout_is_drawn_as_one(kind):
    """Where that is not as other matrices are."""
    scheme = initializers.weights("dl4mt")
    inputs = {"state": 60 if kind == "tanh" else 120, "context": 60}
    made = readout.init(jax.random.key(1), kind, inputs, 60, 60, 0, scheme)
    for matrix in (*made.W.values(), made.low_rank):
        assert abs(np.std(matrix) - 0.01) < 0.001


def test_gaussian_takes_its_deviation():
    matrix = initializers.gaussian(1.0).matrix(jax.random.key(0), OBLONG, jnp.float32)
    assert abs(np.asarray(matrix).std() - 1) < 0.05
