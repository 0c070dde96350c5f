# SPDX-License-Identifier: Apache-2.0
"""Attentions that are wrong in one way each, and the laws that must catch them."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from kvnmt.attention import Attention, additive, base, kv_memory
from kvnmt.attention.address import energies, read_values
from kvnmt.laws.attention import LAWS
from kvnmt.layers import masked_softmax
from kvnmt.typing import Array
from tests.laws.wrong_told import WRONG_TOLD

SOUND = additive.build(additive.Options())
MEMORY = kv_memory.build(kv_memory.Options())
NAMES = [law.name for law in LAWS]


@struct.dataclass
class Received:
    """What every source word was given so far."""

    weights: Array


def scores(params, source, moment):
    query = moment.query @ params.address.W_query
    return energies(params.address.v_energy, query, source.projected_keys)


def attended(source, alignment):
    return base.Attended(read_values(alignment, source.annotations), alignment)


def changed(change) -> Attention:
    """Additive attention that reads what ``change`` makes of its scores."""

    def read(params, source, state, moment):
        return attended(source, change(scores(params, source, moment), source))

    return SOUND._replace(read=read)


def leaks_mass(scores, source):
    return 0.9 * masked_softmax(scores, source.mask)


def sees_padding(scores, source):
    weights = jax.nn.softmax(scores)
    return jnp.where(source.mask.any(axis=1, keepdims=True), weights, 0)


def has_no_gradient_without_words(scores, source):
    weights = jnp.exp(scores) * source.mask
    total = weights.sum(axis=1, keepdims=True)
    return jnp.where(source.mask, weights / total, 0)


def knows_places(scores, source):
    return masked_softmax(scores + jnp.arange(scores.shape[1]), source.mask)


def counts_columns(scores, source):
    return masked_softmax(scores / scores.shape[1], source.mask)


def looks_at_one_word(scores, source):
    best = jnp.where(source.mask, scores, -1e9).argmax(axis=1)
    return masked_softmax(scores, source.mask & _at(best, scores.shape[1]))


def _at(place, columns):
    return place[:, None] == jnp.arange(columns)


def ignores_its_scores(scores, source):
    return masked_softmax(0 * scores, source.mask)


def mixes_rows(scores, source):
    return masked_softmax(scores + scores.mean(axis=0), source.mask)


def carrying(start, write) -> Attention:
    """Additive attention that has a State."""
    return SOUND._replace(initial_state=start, write=write)


def nothing_received(params, source):
    return Received(jnp.zeros(source.mask.shape, source.annotations.dtype))


def received_coarsely(params, source):
    return Received(jnp.zeros(source.mask.shape, jnp.float32))


def books_coarsely(params, source, state, moment):
    return Received((state.weights + moment.attended.alignment).astype(jnp.float32))


def books_padding(params, source, state, moment):
    return Received(state.weights + 1 + moment.attended.alignment)


def books_nothing(params, source, state, moment):
    return state


def narrows(params, source, state, moment):
    return Received((state.weights + moment.attended.alignment)[:, :1])


def no_heads(params, source):
    """A memory with its heads before its slots."""
    rows, columns = source.mask.shape
    return Received(jnp.zeros((rows, 2, columns), source.annotations.dtype))


def writes_everywhere(params, source, state, moment):
    return Received(state.weights + 1 + moment.attended.alignment[:, None])


def forgets(params, source, state, moment):
    """KVMemAtt that addresses the annotations, not the keys that it has written."""
    begun = MEMORY.initial_state(params, source)
    return MEMORY.read(params, source, begun, moment)


def keeps_projected_keys(params, source):
    return Received(source.projected_keys)


def reads_kept_keys(params, source, state, moment):
    return SOUND.read(params, source.replace(projected_keys=state.weights), (), moment)


def rewrites_kept_keys(params, source, state, moment):
    received = source.mask * moment.attended.alignment
    return Received(state.weights * (1 + received[..., None]))


def counts_steps(params, source, state, moment):
    return state + 1


def reads_too_wide(params, source, state, moment):
    look = SOUND.read(params, source, state, moment)
    return look.replace(context=jnp.pad(look.context, ((0, 0), (0, 1))))


def measures_angles(params, annotations, mask):
    """Keys of length 1, though a word that is not there has none."""
    source = SOUND.prepare(params, annotations, mask)
    keys = annotations @ params.address.U_key
    lengths = jnp.linalg.norm(keys, axis=-1, keepdims=True)
    return source.replace(projected_keys=keys / lengths)


def differs_when_compiled(scores, source):
    compiled = isinstance(scores, jax.core.Tracer)
    return masked_softmax(scores + compiled * source.annotations[..., 0], source.mask)


def telling(change) -> Attention:
    """Additive attention that tells what ``change`` makes of its alignment."""

    def weigh(params, source, state, moment):
        alignment = SOUND.read(params, source, state, moment).alignment
        return change(alignment, source)

    return SOUND._replace(weigh=weigh)


def tells_squares(alignment, source):
    return base.Weighed(alignment[:, None] ** 2, own=0 * alignment[:, 0])


def tells_of_padding(alignment, source):
    signed = jnp.where(source.mask, -alignment, 1e-9)
    return base.Weighed(signed[:, None], own=0 * alignment[:, 0])


def tells_too_large_a_share(alignment, source):
    return base.Weighed(alignment[:, None], own=0 * alignment[:, 0] + 2)


def tells_of_writes_that_never_were(alignment, source):
    return base.Weighed(alignment[:, None], own=0 * alignment[:, 0] + 0.5)


def tells_of_columns(alignment, source):
    own = 0 * alignment[:, 0] + 1 / alignment.shape[1]
    return base.Weighed(alignment[:, None], own=own)


def tells_coarsely(alignment, source):
    return base.Weighed(alignment[:, None].astype(jnp.float32), own=0 * alignment[:, 0])


def tells_no_head(alignment, source):
    return base.Weighed(alignment, own=0 * alignment[:, 0])


def counts_in_python() -> Attention:
    """Prefers later words the more, the more often Python came by."""
    looks = []

    def prepare(params, annotations, mask):
        looks.clear()
        return SOUND.prepare(params, annotations, mask)

    def read(params, source, state, moment):
        looks.append(1)
        return changed(
            lambda scores, source: masked_softmax(len(looks) * scores, source.mask)
        ).read(params, source, state, moment)

    return SOUND._replace(prepare=prepare, read=read)


@struct.dataclass
class Projecting:
    """A Source with a matrix that is of no row."""

    sound: object
    W_query: Array


def keeps_a_matrix(params, annotations, mask):
    return Projecting(SOUND.prepare(params, annotations, mask), params.address.W_query)


def unpacks(params, source, state, moment):
    return SOUND.read(params, source.sound, state, moment)


def knows_the_largest(scores, source):
    return masked_softmax(scores * jnp.abs(source.annotations).max(), source.mask)


def counts_rows(scores, source):
    return masked_softmax(scores / scores.shape[0], source.mask)


def calls_back(scores, source):
    same = jax.ShapeDtypeStruct(scores.shape, scores.dtype)
    told = jax.pure_callback(lambda x: x, same, jax.lax.stop_gradient(scores))
    return masked_softmax(scores + 0 * told, source.mask)


def overflows(scores, source):
    lengths = jnp.abs(source.annotations).sum(axis=-1)
    weights = jnp.exp(scores * lengths / 10) * source.mask
    total = weights.sum(axis=1, keepdims=True)
    return weights / jnp.where(total == 0, 1, total)


def beginning_with(number) -> Attention:
    """Additive attention with a number that cannot be trained."""

    def init(key, sizes, weights):
        return SOUND.init(key, sizes, weights), number

    def prepare(params, annotations, mask):
        return SOUND.prepare(params[0], annotations, mask)

    def read(params, source, state, moment):
        look = SOUND.read(params[0], source, state, moment)
        return look.replace(context=params[1] * look.context)

    return SOUND._replace(init=init, prepare=prepare, read=read)


def heeds_no_query(params, source, state, moment):
    query = jax.lax.stop_gradient(moment.query)
    return SOUND.read(params, source, state, moment.replace(query=query))


def shows_more_than_it_reads(params, source, state, moment):
    shown = masked_softmax(scores(params, source, moment), source.mask)
    best = _at(shown.argmax(axis=1), shown.shape[1]) & source.mask
    context = read_values(best.astype(shown.dtype), source.annotations)
    return base.Attended(context, shown)


def has_no_gradient_by_the_query(params, source, state, moment):
    look = SOUND.read(params, source, state, moment)
    apart = moment.query - jax.lax.stop_gradient(moment.query)
    nothing = jnp.sqrt(jnp.sum(apart**2, axis=1, keepdims=True))
    return look.replace(context=look.context + nothing)


def is_coarse(scores, source):
    return masked_softmax(scores.astype(jnp.float32), source.mask)


def starting(change, sound=SOUND) -> Attention:
    """An attention whose parameters begin otherwise."""

    def init(key, sizes, weights):
        return change(sound.init, key, sizes, weights)

    return sound._replace(init=init)


def from_one_key(init, key, sizes, weights):
    return init(jax.random.key(0), sizes, weights)


def from_a_key_twice(init, key, sizes, weights):
    """Of KVMemAtt, whose gates then are the same gate at first."""
    params = init(key, sizes, weights)
    return params.replace(add=params.forget)


def from_no_key(init, key, sizes, weights):
    noise = np.random.normal()
    return jax.tree.map(lambda leaf: leaf + noise, init(key, sizes, weights))


def from_infinity(init, key, sizes, weights):
    return jax.tree.map(lambda leaf: leaf / 0, init(key, sizes, weights))


WRONG = {
    "mass": (changed(leaks_mass), {"sum"}),
    "padding": (changed(sees_padding), {"padding", "unread", "wider"}),
    "rows": (changed(mixes_rows), {"rows", "unread"}),
    "empty": (changed(has_no_gradient_without_words), {"gradient", "large"}),
    "places": (changed(knows_places), {"order"}),
    "columns": (changed(counts_columns), {"wider"}),
    "hard": (changed(looks_at_one_word), {"support", "reach"}),
    "dead": (changed(ignores_its_scores), {"reach"}),
    "tracer": (changed(differs_when_compiled), {"compiled"}),
    "signs": (telling(tells_squares), {"weighed"}),
    "width": (SOUND._replace(read=reads_too_wide), {"context"}),
    "slots": (carrying(nothing_received, books_padding), {"kept", "state"}),
    "idle": (carrying(nothing_received, books_nothing), {"state"}),
    "form": (carrying(nothing_received, narrows), {"state", "scanned"}),
    "wide": (carrying(received_coarsely, books_coarsely), {"precision", "state"}),
    "coarse": (changed(is_coarse), {"precision"}),
    "largest": (changed(knows_the_largest), {"rows", "unread"}),
    "matrix": (SOUND._replace(prepare=keeps_a_matrix, read=unpacks), {"source"}),
    "python": (counts_in_python(), {"scanned", "hypotheses"}),
    "rows-counted": (changed(counts_rows), {"rows"}),
    "callback": (changed(calls_back), {"hypotheses"}),
    "overflow": (changed(overflows), {"large"}),
    "float": (beginning_with(1.0), {"init"}),
    "whole": (beginning_with(jnp.int32(1)), {"init"}),
    "heedless": (SOUND._replace(read=heeds_no_query), {"reach"}),
    "distance": (
        SOUND._replace(read=has_no_gradient_by_the_query),
        {"gradient", "reach"},
    ),
    "shown": (SOUND._replace(read=shows_more_than_it_reads), {"reach"}),
    "all-unread": (SOUND._replace(unread=lambda sizes: sizes.annotation), {"context"}),
    "unused": (MEMORY._replace(read=forgets), {"state", "reach"}),
    "one-round": (
        carrying(keeps_projected_keys, rewrites_kept_keys)._replace(
            read=reads_kept_keys
        ),
        {"reach"},
    ),
    "twins": (starting(from_a_key_twice, MEMORY), {"init"}),
    "own-share": (telling(tells_of_columns), {"weighed", "wider"}),
    "own-writes": (telling(tells_of_writes_that_never_were), {"weighed"}),
    "angles": (SOUND._replace(prepare=measures_angles), {"gradient", "reach"}),
    "told-coarsely": (telling(tells_coarsely), {"precision"}),
    "heads": (carrying(no_heads, writes_everywhere), {"kept", "state"}),
    "key": (starting(from_one_key), {"init"}),
    "no-key": (starting(from_no_key), {"init"}),
    "infinite": (starting(from_infinity), {"init"}),
    "axis": (
        carrying(lambda *_: jnp.zeros(()), counts_steps),
        {"state", "rows", "hypotheses"},
    ),
} | WRONG_TOLD
