# SPDX-License-Identifier: Apache-2.0
"""Memories that are matrices, read by a product and rewritten one key at a time.

A memory M is ``[d_k, d_v]``, one for each head; a query q reads ``o = M^T q``. One
update covers the whole family; decay acts first, what is erased is read from the
decayed memory::

    M <- D M - k (b * k)^T D M + k (w * v)^T       D = Diag(a)

=============  ========  ===========  ===========  ======
name           a         b            w            source
=============  ========  ===========  ===========  ======
sum            1         0            1            1, 2
decay          scalar    0            1            3, 4
gated          channels  0            1            5
delta          1         beta         beta         6, 7
gated_delta    scalar    beta         beta         8
kda            channels  beta         beta         9
gated_delta_2  channels  channels     channels     10
=============  ========  ===========  ===========  ======

1.  J. Schmidhuber (1992), "Learning to Control Fast-Weight Memories".
2.  A. Katharopoulos et al. (2020), "Transformers are RNNs: Fast Autoregressive
    Transformers with Linear Attention", arXiv 2006.16236; without its normaliser.
3.  Y. Sun et al. (2023), "Retentive Network: A Successor to Transformer for Large
    Language Models", arXiv 2307.08621. Its decay is a fixed number for each head; that
    cannot be chosen here, it is what is left of ours where the matrix of a is 0.
4.  T. Dao, A. Gu (2024), "Transformers are SSMs: Generalized Models and Efficient
    Algorithms Through Structured State Space Duality" (Mamba-2), arXiv 2405.21060: the
    decay of ``decay``, from the input.
5.  S. Yang, B. Wang, Y. Shen, R. Panda, Y. Kim (2024), "Gated Linear Attention
    Transformers with Hardware-Efficient Training" (GLA), arXiv 2312.06635.
6.  I. Schlag, K. Irie, J. Schmidhuber (2021), "Linear Transformers Are Secretly Fast
    Weight Programmers", arXiv 2102.11174.
7.  S. Yang, B. Wang, Y. Zhang, Y. Shen, Y. Kim (2024), "Parallelizing Linear
    Transformers with the Delta Rule over Sequence Length" (DeltaNet), arXiv 2406.06484.
8.  S. Yang, J. Kautz, A. Hatamizadeh (2025), "Gated Delta Networks: Improving Mamba2
    with Delta Rule", arXiv 2412.06464.
9.  Kimi Team (2025), "Kimi Linear: An Expressive, Efficient Attention Architecture"
    (Kimi Delta Attention), arXiv 2510.26692.
10. A. Hatamizadeh, Y. Choi, J. Kautz (2026), "Gated DeltaNet-2: Decoupling Erase and
    Write in Linear Attention", arXiv 2605.22791.

::

    k, q = l2norm(silu(W x))              of the last four; the sum of squares + 1e-6
    k = W x,  q = W x / sqrt(d_k)         of the others: the query alone is scaled
    v = W x;  beta, b, w = sig(W x + bias)
    a = exp(-exp(A) softplus(W x + bias))      one A for each head

Departures: the papers also convolve over neighbours, and normalise and gate what is
read; none of that is here, so that only the updates differ. ``a`` begins near 0.95. In
the papers, the ``a`` of GLA is a root of a sigmoid, and two thin matrices make that of
Gated DeltaNet-2, whose code also gives v a silu, and b and w no bias. The authors' code
of the last four scales q as the others do, which scales what is read.

*What was read from where.* With ``A_i = (I - k_i (b_i * k_i)^T) D_i`` the memory after
n writes is ``sum_j p_j (w_j * v_j)^T``, ``p_j = A_n .. A_{j+1} k_j``: the exact weight
of the j-th write is ``q . p_j``, with its sign. The p_j are a memory, too: that of the
same writes with unit vectors for values.

Many writes at once: `kvnmt.layers.write_chunks`.
"""

from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.errors import OptionError
from kvnmt.initializers import Weights
from kvnmt.layers.basic import Linear, init_linear, linear, precise
from kvnmt.typing import Array, Bool, Float, Key

Update: TypeAlias = Literal[
    "sum", "decay", "gated", "delta", "gated_delta", "kda", "gated_delta_2"
]
Gate: TypeAlias = Literal["none", "scalar", "channels"]
TINY = 1e-6  # added to a sum of squares before its root
FADING = -3.0  # bias of a decay at the start: softplus of it is 0.05


class Gates(NamedTuple):
    """What an update has of a, and of b and w."""

    decay: Gate
    erase: Gate


GATES: dict[Update, Gates] = {
    "sum": Gates("none", "none"),
    "decay": Gates("scalar", "none"),
    "gated": Gates("channels", "none"),
    "delta": Gates("none", "scalar"),
    "gated_delta": Gates("scalar", "scalar"),
    "kda": Gates("channels", "scalar"),
    "gated_delta_2": Gates("channels", "channels"),
}


class Shape(NamedTuple):
    """Heads, and the widths of one."""

    heads: int  # N
    key: int  # d_k
    value: int  # d_v


@struct.dataclass
class Decay:
    """``exp(-exp(A) softplus(W x + bias))``."""

    A: Float[Array, " N"]
    gate: Linear  # to N or N d_k numbers


@struct.dataclass
class Writer:
    """Makes a write of a vector."""

    W_key: Float[Array, "I N*K"]
    W_value: Float[Array, "I N*V"]
    decay: Decay | None
    erase: Linear | None  # beta, N numbers, or b, N d_k
    write: Linear | None  # w, N d_v; None: beta, or 1


@struct.dataclass
class Writes:
    """Writes, or one; over time the axis of time stands before the last."""

    key: Float[Array, "*N K"]  # k
    value: Float[Array, "*N V"]  # w * v
    erase: Float[Array, "*N K"] | None  # b * k; None: nothing is erased
    log_decay: Float[Array, "*N _"]  # log a, of width 1 or d_k


def memory_shape(heads: int, key: int, value: int, part: str) -> Shape:
    """Splits the widths of keys and values among the heads.

    Args:
        heads: N.
        key: Width of all keys.
        value: Width of all values.
        part: Of the config of a model, that gives the first two.

    Raises:
        OptionError: They do not split evenly.
    """
    for name, width in (("keys", key), ("values", value)):
        if width % heads:
            others = " or {1}" if name == "keys" else ""
            raise OptionError(
                f"{name} of width {width} do not split in {heads} heads; give {{0}}"
                f"{others} another number.",
                *(f"{part}.heads", f"{part}.key_size"),
                prefix="model.",
            )
    return Shape(heads, key // heads, value // heads)


def init_writer(
    update: Update, key: Key[Array, ""], width: int, shape: Shape, weights: Weights
) -> Writer:
    """Makes the writer of vectors of some width."""
    key_k, key_v, key_a, key_b, key_w = jax.random.split(key, 5)
    N, K, V = shape
    gates = GATES[update]
    many = {"scalar": N, "channels": N * K}
    decay = erase = write = None
    if gates.decay != "none":
        gate = init_linear(key_a, [width], many[gates.decay], weights)
        decay = Decay(jnp.zeros(N, jnp.float32), Linear(gate.W, gate.b + FADING))
    if gates.erase != "none":
        erase = init_linear(key_b, [width], many[gates.erase], weights)
    if gates.erase == "channels":
        write = init_linear(key_w, [width], N * V, weights)
    return Writer(
        W_key=weights.matrix(key_k, (width, N * K), jnp.float32),
        W_value=weights.matrix(key_v, (width, N * V), jnp.float32),
        decay=decay,
        erase=erase,
        write=write,
    )


def queries(
    update: Update, W: Float[Array, "I N*K"], x: Float[Array, "*B I"], heads: int
) -> Float[Array, "*B N K"]:
    """The queries of every head."""
    q = precise(_heads(x @ W, heads))
    if GATES[update].erase != "none":
        return _unit(q)
    return q / q.shape[-1] ** 0.5


def writes(params: Writer, x: Float[Array, "*B I"], heads: int) -> Writes:
    """The write of every vector and head; heads stand before the last axis."""
    key = precise(_heads(x @ params.W_key, heads))
    value = precise(_heads(x @ params.W_value, heads))
    log_decay, erase = jnp.zeros_like(key[..., :1]), None
    if params.decay is not None:
        amount = jax.nn.softplus(_gate(params.decay.gate, x, heads))
        log_decay = -jnp.exp(precise(params.decay.A))[:, None] * amount
    if params.erase is not None:
        key = _unit(key)
        b = w = jax.nn.sigmoid(_gate(params.erase, x, heads))
        if params.write is not None:
            w = jax.nn.sigmoid(_gate(params.write, x, heads))
        erase, value = b * key, w * value
    return Writes(key, value, erase, log_decay)


def _gate(params: Linear, x: Float[Array, "*B I"], heads: int) -> Array:
    """What a gate is a function of, by head; in all bits, since it may be near 1."""
    return precise(_heads(linear(params, x), heads))


def in_order(made: Writes, mask: Bool[Array, "B T"] | None = None) -> Writes:
    """Writes [B, T, N, _] as [B, N, T, _]; what is masked leaves a memory as it is."""
    if mask is not None:
        real = mask[..., None, None]
        made = replace(
            made,
            key=jnp.where(real, made.key, 0),
            log_decay=jnp.where(real, made.log_decay, 0),
        )
    return jax.tree.map(lambda x: jnp.swapaxes(x, -3, -2), made)


def read(
    memory: Float[Array, "*N K V"], query: Float[Array, "*N K"]
) -> Float[Array, "*N V"]:
    """``M^T q``."""
    return jnp.einsum("...kv,...k->...v", memory, query)


def transit(memory: Float[Array, "*N K V"], write: Writes) -> Float[Array, "*N K V"]:
    """``A M``: what one write leaves of a memory."""
    memory = jnp.exp(write.log_decay)[..., None] * memory
    if write.erase is None:
        return memory
    return memory - write.key[..., None] * read(memory, write.erase)[..., None, :]


def rewrite(memory: Float[Array, "*N K V"], write: Writes) -> Float[Array, "*N K V"]:
    """``A M + k (w * v)^T``: one write."""
    return transit(memory, write) + write.key[..., None] * write.value[..., None, :]


def _heads(x: Float[Array, "*B _"], heads: int) -> Float[Array, "*B N _"]:
    return x.reshape(*x.shape[:-1], heads, -1)


def _unit(x: Float[Array, "*N K"]) -> Float[Array, "*N K"]:
    """``l2norm(silu(x))``."""
    x = jax.nn.silu(x)
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + TINY)
