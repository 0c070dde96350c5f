# SPDX-License-Identifier: Apache-2.0
"""Key-value memory-augmented attention: KVMemAtt and MemAtt.

F. Meng, Z. Tu, Y. Cheng, H. Wu, J. Zhai, Y. Yang, D. Wang (2018),
"Neural Machine Translation with Key-Value Memory-Augmented Attention", section 3,
equations 6 to 16; with ``values = rewritten`` the interactive attention of
F. Meng, Z. Lu, H. Li, Q. Liu (2016), which the paper calls MemAtt.

The key memory is addressed by the query; the values are read; then the new decoder
state addresses the same keys again and rewrites them: it forgets and adds. Keys
start as the annotations of the source.

=============  ==============================================================
parameters     theta_r, theta_w: 2 A (D + C + 2); W_F, W_A, b_F, b_A: 2 (C D + C)
source         values (the annotations), mask
state, carried keys [B, S, C]
result         context ``sum_j a_j v_j``, alignment a
=============  ==============================================================

One round r, with every parameter its own (the superscript in the paper)::

    a   = Address(q, K; theta_r)                                    (7, 11, 12)
    c   = sum_j a_j v_j                                             (8, 13)
    s   = GRU2(q, c)                     in the decoder             (9)
    w   = Address(s, K; theta_w)                                    (15)
    F   = sig(W_F s + b_F)      A = sig(W_A s + b_A)
    k_j <- k_j * (1 - w_j F) + w_j A                                (14, 16)

Memory: nothing of the addressing can be hoisted, and under gradient the keys are
saved at every step, T x [B, S, C]; those between rounds are computed again.

Readings of the paper:

* *Biases b_F, b_A.* The text prints none. Without them forget and add both start
  near 0.5 and pull an addressed key towards the vector of ones from the first
  step on. The published parameter count allows both. ``write_bias`` is their
  initial value: 0 by default, negative for a gentle start from a trained model.
  Where A is a tanh, b_A starts at 0: A is then near 0 without it.
* *Add is a sigmoid*, stated twice in the paper; ``add = tanh`` is the option.
* *Read and write addresses are separate*, as the count of the paper requires;
  ``share_addresses`` ties them, as the experiments of the 2016 paper do.
* Padding is never written: both softmaxes are masked, so w_j = 0 there.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from flax import struct

from kvnmt.attention import base
from kvnmt.attention.address import (
    Address,
    address_memory,
    init_address,
    read_values,
)
from kvnmt.fields import EXTENDS
from kvnmt.initializers import Weights
from kvnmt.layers import Linear, init_linear, linear, precise
from kvnmt.typing import Array, Bool, Float, Key, Sizes, typed


@dataclass(frozen=True)
class Options(base.Options):
    """Static choices; the defaults are KVMemAtt as its paper counts it."""

    # rewritten: MemAtt
    values: Annotated[Literal["fixed", "rewritten"], EXTENDS] = "fixed"
    add: Literal["sigmoid", "tanh"] = "sigmoid"  # function of what is added (A)
    share_addresses: Annotated[bool, EXTENDS] = False  # theta_w is theta_r
    # initial value of b_F and, where A is a sigmoid, of b_A
    write_bias: Annotated[float, EXTENDS] = 0.0


@struct.dataclass
class Params:
    """One round."""

    address: Address  # theta_r
    write_address: Address | None  # theta_w; None: the same as theta_r
    forget: Linear  # W_F, b_F: D -> C
    add: Linear  # W_A, b_A: D -> C


@struct.dataclass
class Source:
    """Constants of a sentence."""

    values: Float[Array, "B S C"]
    mask: Bool[Array, "B S"]


@struct.dataclass
class State:
    """Carried from step to step and from round to round."""

    keys: Float[Array, "B S C"]


def init(
    options: Options, key: Key[Array, ""], sizes: Sizes, weights: Weights
) -> Params:
    """Makes the parameters of one round."""
    key_read, key_write, key_forget, key_add = jax.random.split(key, 4)
    widths = (sizes.state, sizes.annotation, sizes.alignment)
    forget = init_linear(key_forget, [sizes.state], sizes.annotation, weights)
    add = init_linear(key_add, [sizes.state], sizes.annotation, weights)
    write = None
    if not options.share_addresses:
        write = init_address(key_write, *widths, weights)
    return Params(
        address=init_address(key_read, *widths, weights),
        write_address=write,
        forget=Linear(forget.W, forget.b + options.write_bias),
        add=Linear(add.W, add.b + options.write_bias * (options.add == "sigmoid")),
    )


def prepare(
    params: Params, annotations: Float[Array, "B S C"], mask: Bool[Array, "B S"]
) -> Source:
    """Keeps the annotations: they are the values, and the keys to start from."""
    return Source(annotations, mask)


def initial_state(params: Params, source: Source) -> State:
    """The key memory before the first word is the annotations (section 3)."""
    return State(keys=precise(source.values))


def read(
    options: Options,
    params: Params,
    source: Source,
    state: State,
    moment: base.Moment,
) -> base.Attended:
    """Addresses the keys by the query and reads the values (7, 8, 11 to 13)."""
    alignment = address_memory(params.address, moment.query, state.keys, source.mask)
    values = source.values if options.values == "fixed" else state.keys
    return base.Attended(read_values(alignment, values), alignment)


def write(
    options: Options,
    params: Params,
    source: Source,
    state: State,
    moment: base.Moment,
) -> State:
    """Forgets and adds at the keys that the new state addresses (14 to 16)."""
    return State(
        keys=rewrite(state.keys, *_written(options, params, source, state, moment))
    )


@typed
def rewrite(
    keys: Float[Array, "B S C"],
    weights: Float[Array, "B S"],
    forget: Float[Array, "B C"],
    add: Float[Array, "B C"],
) -> Float[Array, "B S C"]:
    """``k_j * (1 - w_j F) + w_j A`` (14, 16)."""
    slots = weights[..., None]  # [B, S, 1]
    return keys * (1 - slots * forget[:, None, :]) + slots * add[:, None, :]


def explain(
    options: Options,
    params: Params,
    source: Source,
    state: State,
    moment: base.Moment,
) -> base.Change:
    """Takes a write apart: ``k_j * w_j F`` is forgotten, ``w_j A`` added."""
    weights, forget, add = _written(options, params, source, state, moment)
    slots = weights[..., None]  # [B, S, 1]
    forgotten, added = state.keys * slots * forget[:, None], slots * add[:, None]
    return base.Change(
        changed=jnp.linalg.norm(added - forgotten, axis=-1),
        forgotten=jnp.linalg.norm(forgotten, axis=-1),
        added=jnp.linalg.norm(added, axis=-1),
    )


def _written(
    options: Options,
    params: Params,
    source: Source,
    state: State,
    moment: base.Moment,
) -> tuple[Float[Array, "B S"], Float[Array, "B C"], Float[Array, "B C"]]:
    """Write weights w, F and A, as precise as the keys: a little may be forgotten."""
    assert moment.decoder_state is not None, base.NO_STATE
    theta = params.write_address
    if theta is None:
        theta = params.address
    weights = address_memory(theta, moment.decoder_state, state.keys, source.mask)
    squash = jax.nn.sigmoid if options.add == "sigmoid" else jnp.tanh
    forget = jax.nn.sigmoid(linear(params.forget, moment.decoder_state))
    add = squash(linear(params.add, moment.decoder_state))
    return precise(weights), precise(forget), precise(add)


def build(options: Options) -> base.Attention:
    """KVMemAtt or MemAtt under the contract."""
    return base.Attention(
        init=partial(init, options),
        prepare=prepare,
        read=partial(read, options),
        initial_state=initial_state,
        write=partial(write, options),
        explain=partial(explain, options),
    )
