# SPDX-License-Identifier: Apache-2.0
"""Linear memories of the source: sums, delta rules and their gated forms.

The annotations are written one after the other into a matrix of fixed size; the query
reads it by a product. The updates, their papers and what is common to all of them are
in `kvnmt.layers.linear_memory`. Of the relatives of the key memory these are the ones
that modern sequence models use: S. Yang, B. Wang, Y. Zhang, Y. Shen, Y. Kim (2024),
"Parallelizing Linear Transformers with the Delta Rule over Sequence Length", for
``delta``; S. Yang, J. Kautz, A. Hatamizadeh (2025), "Gated Delta Networks: Improving
Mamba2 with Delta Rule", for ``gated_delta``.

=============  ==============================================================
parameters     W_q: D N d_k. A writer of width I: I N (d_k + d_v), and
               for a scalar a, (I + 2) N, by channels (I d_k + d_k + 1) N; for
               beta (I + 1) N; for b and w by channels (I + 1) N (d_k + d_v).
               The source's has I = C, the decoder's I = D
source         memory [N, d_k, d_v], weights [N, d_k, S]
state, carried with ``write = decoder``: the decoder's own memory [N, d_k, d_v] and,
               how it changes the source's: nothing for a sum, [N, 1] or [N, d_k] where
               it only decays, [N, d_k, d_k] where something is erased
result         what N heads read, N d_v = C numbers for each direction; alignment
=============  ==============================================================

::

    M <- D M - k (b * k)^T D M + k (w * v)^T      for h_1 .. h_S, from M = 0
    c = M^T q                                     q of the query q_t
    a_j = |q . p_j| / sum_i |q . p_i|             shown; q . p_j is the exact weight
    M <- D M - k (b * k)^T D M + k (w * v)^T      for s_t, with ``write = decoder``

With ``A_t = (I - k_t (b_t * k_t)^T) D_t`` of the decoder's writes and their product
``A = A_t .. A_1``, the memory is A M of the source and what the decoder has written
itself. So ``M^T q`` is the source's memory read by ``A^T q`` and the decoder's read by
q: neither memory nor weights of the source are copied for every hypothesis.

Our choices: with ``direction = both`` a memory is written from each end, with N heads
each, and both are read. ``write = decoder`` is the relative of the key memory's write:
the new decoder state rewrites what later queries read, with its own parameters. The
alignment sums the absolute weights of all heads. Signed weights are kept for each head;
the heads that begin at the end come last. With several rounds each fills its own memory
of the source; what the decoder writes and erases is common to all rounds.

With ``write = decoder`` training keeps the State of every step, for each word up to
N d_k (d_v + d_k) numbers: with N heads of the same total widths an N-th.

What lies at padding writes nothing. No softmax is involved: a weight may be negative.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import base
from kvnmt.fields import EXTENDS, WIDEST, between
from kvnmt.initializers import Weights
from kvnmt.layers import shares
from kvnmt.layers.linear_memory import (
    GATES,
    Shape,
    Update,
    Writer,
    Writes,
    in_order,
    init_writer,
    memory_shape,
    queries,
    rewrite,
    transit,
    writes,
)
from kvnmt.layers.linear_memory import read as read_memory
from kvnmt.layers.write_chunks import source_weights
from kvnmt.typing import Array, Bool, Float, Key, Sizes


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices; the defaults are the delta rule over the source alone."""

    update: Update = "delta"
    heads: Annotated[int, between(1, WIDEST)] = 1  # N in each direction
    # key width N d_k; None: A
    key_size: Annotated[int | None, between(1, WIDEST), EXTENDS] = None
    direction: Literal["forward", "both"] = "forward"  # both: a memory from each end
    # decoder: each new decoder state is written, too
    write: Annotated[Literal["none", "decoder"], EXTENDS] = "none"

    @property
    def ends(self) -> int:
        """From how many ends the source is written."""
        return 2 if self.direction == "both" else 1

    @property
    def erases(self) -> bool:
        """Whether a write takes more away than a decay does."""
        return GATES[self.update].erase != "none"

    def shape(self, sizes: Sizes) -> Shape:
        """The heads of all directions, and the widths of one."""
        key = self.key_size or sizes.alignment
        one = memory_shape(self.heads, key, sizes.annotation, "attention")
        return one._replace(heads=self.ends * self.heads)


@struct.dataclass
class Params:
    """One round."""

    W_query: Float[Array, "D N*K"]
    source: Writer
    decoder: Writer | None  # None: nothing is written while a sentence is translated


@struct.dataclass
class Source:
    """Constants of a sentence: the memory, and whose words are in it."""

    memory: Float[Array, "B N K V"]
    weights: Float[Array, "B N K S"]  # p_1 .. p_S


@struct.dataclass
class State:
    """What the decoder has written, and what it has done to what was there."""

    own: Float[Array, "B N K V"]
    # A; where nothing is erased, the logarithm of its diagonal. None: of a sum
    change: Float[Array, "B N K K"] | Float[Array, "B N _"] | None


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the parameters of one round.

    Raises:
        OptionError: Keys or values do not split among the heads.
    """
    key_query, key_source, key_decoder = jax.random.split(key, 3)
    shape, D = options.shape(sizes), sizes.state
    decoder = None
    if options.write == "decoder":
        decoder = init_writer(options.update, key_decoder, D, shape, weights)
    return Params(
        W_query=weights.matrix(key_query, (D, shape.heads * shape.key), jnp.float32),
        source=init_writer(
            options.update, key_source, sizes.annotation, shape, weights
        ),
        decoder=decoder,
    )


def prepare(
    options: Options,
    params: Params,
    annotations: Float[Array, "B S C"],
    mask: Bool[Array, "B S"],
) -> Source:
    """Writes the annotations in order, or from both ends."""
    heads = options.ends * options.heads
    made = in_order(writes(params.source, annotations, heads), mask)
    made = _from_both_ends(options, made)
    weights = source_weights(made)
    memory = jnp.einsum("bnks,bnsv->bnkv", weights, made.value)
    return Source(memory, _turned(options, weights, axis=-1))


def initial_state(
    options: Options, params: Params, source: Source
) -> State | tuple[()]:
    """Nothing is written and nothing changed yet."""
    if options.write == "none":
        return ()
    own = jnp.zeros_like(source.memory)
    if options.update == "sum":
        return State(own, change=None)
    *heads, K, _ = own.shape
    if not options.erases:
        width = 1 if GATES[options.update].decay == "scalar" else K
        return State(own, jnp.zeros((*heads, width), own.dtype))
    return State(own, jnp.broadcast_to(jnp.eye(K, dtype=own.dtype), (*heads, K, K)))


def read(
    options: Options,
    params: Params,
    source: Source,
    state: State | tuple[()],
    moment: base.Moment,
) -> base.Attended:
    """Reads the memory; the alignment is the share of each word's absolute weight."""
    looked = _look(options, params, source, state, moment)
    context = looked.theirs + looked.own  # [B, N, V]
    size = jnp.sum(jnp.abs(looked.signed), axis=1)  # [B, S]
    dtype = moment.query.dtype
    context = context.reshape(len(context), -1).astype(dtype)
    return base.Attended(context, shares(size).astype(dtype))


def write(
    options: Options,
    params: Params,
    source: Source,
    state: State,
    moment: base.Moment,
) -> State:
    """Writes the new decoder state; what it erases, it erases of the source too."""
    assert moment.decoder_state is not None, base.NO_STATE
    assert params.decoder is not None
    heads = options.ends * options.heads
    made = writes(params.decoder, moment.decoder_state, heads)
    change = state.change
    if change is not None:
        erases = options.erases
        change = transit(change, made) if erases else change + made.log_decay
    return State(rewrite(state.own, made), change)


def weigh(
    options: Options,
    params: Params,
    source: Source,
    state: State | tuple[()],
    moment: base.Moment,
) -> base.Weighed:
    """The signed weights, and how much of the context the decoder wrote itself."""
    looked = _look(options, params, source, state, moment)
    # Of all heads together: lengths, not norms of matrices.
    theirs, own = (jnp.linalg.norm(x, axis=(1, 2)) for x in (looked.theirs, looked.own))
    total = theirs + own
    return base.Weighed(looked.signed, own / jnp.where(total > 0, total, 1))


class _Look(NamedTuple):
    """What is read of the source's memory and of the decoder's own."""

    theirs: Float[Array, "B N V"]
    own: Float[Array, "B N V"]
    signed: Float[Array, "B N S"]  # the weights that make ``theirs``


def _look(
    options: Options,
    params: Params,
    source: Source,
    state: State | tuple[()],
    moment: base.Moment,
) -> _Look:
    heads = options.ends * options.heads
    query = queries(options.update, params.W_query, moment.query, heads)
    back = query if isinstance(state, tuple) else _asked_before(options, state, query)
    theirs = read_memory(source.memory, back)
    own = jnp.zeros_like(theirs)
    if not isinstance(state, tuple):
        own = read_memory(state.own, query)
    return _Look(theirs, own, read_memory(source.weights, back))


def _asked_before(
    options: Options, state: State, query: Float[Array, "B N K"]
) -> Float[Array, "B N K"]:
    """``A^T q``, which reads of the source's memory M what q reads of A M."""
    if state.change is None:
        return query
    if options.erases:
        return read_memory(state.change, query)
    return jnp.exp(state.change) * query


def _from_both_ends(options: Options, made: Writes) -> Writes:
    return jax.tree.map(lambda x: _turned(options, x, axis=-2), made)


def _turned(
    options: Options, x: Float[Array, "B N _ _"], axis: int
) -> Float[Array, "B N _ _"]:
    """Reverses time for the heads that begin at the end of the sentence."""
    if options.ends == 1:
        return x
    forward, backward = jnp.split(x, 2, axis=1)
    return jnp.concatenate([forward, jnp.flip(backward, axis)], axis=1)


def build(options: Options) -> base.Attention:
    """A linear memory under the contract."""
    return base.Attention(
        init=partial(init, options),
        prepare=partial(prepare, options),
        read=partial(read, options),
        initial_state=partial(initial_state, options),
        write=partial(write, options) if options.write == "decoder" else None,
        weigh=partial(weigh, options),
        weighed_heads=options.ends * options.heads,
        context_size=lambda sizes: options.ends * sizes.annotation,
    )
