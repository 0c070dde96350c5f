# SPDX-License-Identifier: Apache-2.0
"""Content addressing: the scores that several mechanisms share.

The keys of additive attention and of its extensions are the annotations: `prepare`
projects them once per sentence.
"""

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention.base import Attended
from kvnmt.initializers import Weights
from kvnmt.layers import keep, masked_softmax, times_vector, weighted_sum
from kvnmt.typing import Array, Bool, Float, Key, typed


@struct.dataclass
class Address:
    """Parameters of Bahdanau et al. (2015), section A.1.2: A (D + C + 2) numbers."""

    v_energy: Float[Array, " A"]
    W_query: Float[Array, "D A"]
    U_key: Float[Array, "C A"]
    b: Float[Array, " A"]


@struct.dataclass
class Source:
    """Constants of a sentence whose annotations are keys and values."""

    annotations: Float[Array, "B S C"]
    projected_keys: Float[Array, "B S A"]
    mask: Bool[Array, "B S"]


@struct.dataclass
class Params:
    """What every attention has that addresses the annotations."""

    address: Address  # of the query that reads


@struct.dataclass
class KeysAndValues:
    """Constants of a sentence whose keys are compared as they stand."""

    keys: Float[Array, "B S _"]
    values: Float[Array, "B S _"]
    mask: Bool[Array, "B S"]


def init_address(
    key: Key[Array, ""], query: int, memory: int, size: int, weights: Weights
) -> Address:
    """Makes an address from queries and keys of the given widths."""
    key_v, key_W, key_U = jax.random.split(key, 3)
    return Address(
        v_energy=weights.energy(key_v, (size, 1), jnp.float32)[:, 0],
        W_query=weights.address(key_W, (query, size), jnp.float32),
        U_key=weights.address(key_U, (memory, size), jnp.float32),
        b=jnp.zeros(size, jnp.float32),
    )


@typed
def project_keys(params: Address, keys: Float[Array, "B S C"]) -> Float[Array, "B S A"]:
    """``U k_j + b``: constant over the target where the keys are."""
    return keys.astype(params.U_key.dtype) @ params.U_key + params.b


def prepare(
    params: Params,
    annotations: Float[Array, "B S C"],
    mask: Bool[Array, "B S"],
) -> Source:
    """Projects the annotations once for all target steps."""
    return Source(annotations, project_keys(params.address, annotations), mask)


@typed
def address(
    params: Address,
    query: Float[Array, "B D"],
    projected_keys: Float[Array, "B S A"],
    mask: Bool[Array, "B S"],
) -> Float[Array, "B S"]:
    """``a = softmax_j(v . tanh(W q + U k_j + b))`` over the real positions."""
    query = query @ params.W_query
    return masked_softmax(energies(params.v_energy, query, projected_keys), mask)


@typed
def address_memory(
    params: Address,
    query: Float[Array, "B D"],
    keys: Float[Array, "B S C"],
    mask: Bool[Array, "B S"],
) -> Float[Array, "B S"]:
    """As `address`, but over the keys of a memory, which are new in every step.

    The bias is added to the query, and v is repeated for every row, so that the
    gradients of both are computed together with their inputs, row by row.
    """
    query = query @ params.W_query + params.b
    keys = keys.astype(params.U_key.dtype) @ params.U_key
    v = jnp.broadcast_to(params.v_energy, query.shape)
    return masked_softmax(energies(v, query, keys), mask)


@jax.custom_vjp
def energies(
    v: Float[Array, " A"] | Float[Array, "B A"],
    query: Float[Array, "B A"],
    keys: Float[Array, "B S A"],
) -> Float[Array, "B S"]:
    """``v . tanh(q + k_j)`` of a projected query and projected keys.

    This is a sum, which fuses with the tanh; a product with a vector would first store
    the tanh in memory. The gradient is written by hand for the same reason: it needs
    one pass over the tanh, where automatic differentiation needs three.

    Args:
        v: What the tanh is multiplied by. Where the keys are projected in the same step
            there is one v for each row: the sum then fuses with that product.
        query: One for each row.
        keys: Of every position.
    """
    return _energies(v, query, keys)[0]


def _energies(v: Array, query: Array, keys: Array) -> tuple[Array, tuple[Array, Array]]:
    hidden = jnp.tanh(query[:, None, :] + keys)
    if v.ndim == 1:
        return times_vector(hidden, v), (v, hidden)
    return jnp.sum(hidden * v[:, None], axis=-1), (v, hidden)


def _energies_gradient(
    kept: tuple[Array, Array], above: Float[Array, "B S"]
) -> tuple[Array, Array, Array]:
    v, hidden = kept
    slope = above[..., None]
    d_v = jnp.sum(slope * hidden, axis=1)  # [B, A], in the same pass as the next line
    d_query = v * jnp.sum(slope * (1 - hidden**2), axis=1)
    if v.ndim == 1:
        return jnp.sum(d_v, axis=0), d_query, v * slope * (1 - hidden**2)
    return d_v, d_query, v[:, None] * slope * (1 - hidden**2)


energies.defvjp(_energies, _energies_gradient)


@typed
def read_values(
    alignment: Float[Array, "B S"], values: Float[Array, "B S C"]
) -> Float[Array, "B C"]:
    """``c = sum_j a_j v_j``."""
    return keep(weighted_sum(alignment, values.astype(alignment.dtype)))


def read_dot(source: KeysAndValues, query: Float[Array, "B _"]) -> Attended:
    """``a = softmax_j(q . k_j)``, ``c = sum_j a_j v_j``, over the real positions."""
    scores = jnp.einsum("bd,bsd->bs", query, source.keys)
    alignment = masked_softmax(scores, source.mask)
    return Attended(read_values(alignment, source.values), alignment)
