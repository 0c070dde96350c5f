# SPDX-License-Identifier: Apache-2.0
"""How weights start: the schemes of the papers and of the codes behind them.

=============  ===============================================================
``gaussian``   N(0, 0.01²), recurrent matrices orthogonal, biases 0: Wang et al.
               2016, section 4 (recalled); dl4mt but for its square matrices.
               The default of a config and of ``--recipe papers``.
``dl4mt``      as ``gaussian``, every other square matrix but those of the readout
               orthogonal too: the code of Miculicich et al. 2018, which draws both
               gates of a context as one matrix, where here each is drawn by itself.
``groundhog``  as ``gaussian``, but W, U of an alignment N(0, 0.001²) and v = 0:
               Bahdanau et al. 2015. The first alignments are then uniform and W, U
               get no gradient at the very first update, as intended.
``wide``       N(0, 0.05²) everywhere, recurrent matrices included: Mino et al. 2017.
``glorot``     Glorot's uniform, embeddings N(0, 0.1²), recurrent matrices
               orthogonal: no paper's. Where products are normalised, as in ``--recipe
               modern``, small embeddings cost nothing, and Adam changes them sooner.
``unit``       as ``glorot``, but words enter as N(0, 1) and Glorot's rule holds for
               each gate by itself: from no paper. The first inputs are large enough to
               tell words apart without normalised products, so that training leaves
               the plateau of word frequencies sooner. Embeddings are N(0, 1/g²) where a
               stack multiplies them by g, as Transformers do by sqrt(D), and N(0, 1/E)
               or less where the output layer is tied to them, so that its products,
               too, are of unit size.
=============  ===============================================================

What a mechanism starts otherwise in its paper (zero blocks, write biases, the noise
of a memory) is said in its own file.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from kvnmt.typing import Key, PyTree, Sizes

Initializer: TypeAlias = Callable[..., jax.Array]  # (key, shape, dtype) -> array
Scheme: TypeAlias = Literal["gaussian", "dl4mt", "groundhog", "wide", "glorot", "unit"]


class Weights(NamedTuple):
    """One initialiser for every kind of weight."""

    matrix: Initializer  # feed-forward
    inputs: Initializer  # those of recurrent layers, [inputs, gates, size]
    recurrent: Initializer  # each square block of a recurrent matrix
    address: Initializer  # W and U of an alignment
    energy: Initializer  # v of an alignment
    table: Callable[[float], Initializer]  # embeddings that are multiplied by this
    readout: Initializer
    gain: float = 0.0  # of recurrent layers' normalised products; 0: none is normalised
    forget: float = 0.0  # the biases of forget gates of LSTMs


# What makes the parameters of a mechanism.
Init: TypeAlias = Callable[[Key[jax.Array, ""], Sizes, Weights], PyTree]


def gaussian(deviation: float = 0.01) -> Weights:
    """N(0, deviation²), recurrent matrices orthogonal."""
    normal = jax.nn.initializers.normal(deviation)
    square = jax.nn.initializers.orthogonal()
    return Weights(normal, normal, square, normal, normal, lambda gain: normal, normal)


def weights(scheme: Scheme) -> Weights:
    """The initialisers of a scheme."""
    basic = gaussian()
    initializers = jax.nn.initializers
    if scheme == "dl4mt":
        square = {"matrix": _square_orthogonal, "address": _square_orthogonal}
        return basic._replace(**square, inputs=_square_gates)
    if scheme == "groundhog":
        flat = initializers.normal(0.001)
        return basic._replace(address=flat, energy=initializers.zeros)
    if scheme == "wide":
        wide = gaussian(0.05)
        return wide._replace(recurrent=wide.matrix)
    if scheme in ("glorot", "unit"):
        each = {"out_axis": 2, "batch_axis": 1}  # or all gates as one wide output
        gates = each if scheme == "unit" else {"out_axis": (1, 2)}
        inputs = partial(_glorot, in_axis=0, **gates)
        unit = scheme == "unit"
        table = lambda gain: initializers.normal(1 / gain if unit else 0.1)  # noqa: E731
        orthogonal = basic.recurrent
        return Weights(_glorot, inputs, orthogonal, _glorot, _glorot, table, _glorot)
    return basic


def _square_orthogonal(
    key: jax.Array, shape: tuple[int, int], dtype: jax.typing.DTypeLike
) -> jax.Array:
    if shape[0] == shape[1]:
        return jax.nn.initializers.orthogonal()(key, shape, dtype)
    return jax.nn.initializers.normal(0.01)(key, shape, dtype)


def _square_gates(
    key: jax.Array, shape: tuple[int, int, int], dtype: jax.typing.DTypeLike
) -> jax.Array:
    """Each gate by itself, as that code draws the gates that read a word."""
    width, gates, size = shape
    keys = jax.random.split(key, gates)
    each = [_square_orthogonal(key, (width, size), dtype) for key in keys]
    return jnp.stack(each, axis=1)


def _glorot(
    key: jax.Array,
    shape: tuple[int, ...],
    dtype: jax.typing.DTypeLike,
    **axes: Any,
) -> jax.Array:
    if 0 in shape:  # an input of no width, such as the context of a language model
        return jax.nn.initializers.zeros(key, shape, dtype)
    return jax.nn.initializers.glorot_uniform(**axes)(key, shape, dtype)
