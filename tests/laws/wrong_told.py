# SPDX-License-Identifier: Apache-2.0
"""Key memories that tell people something else of their writes than they do."""

import jax
import jax.numpy as jnp

from kvnmt.attention import Attention, kv_memory

MEMORY = kv_memory.build(kv_memory.Options())


def explaining(change) -> Attention:
    """KVMemAtt that tells something else of its writes."""

    def explain(params, source, state, moment):
        return change(MEMORY.explain(params, source, state, moment), source)

    return MEMORY._replace(explain=explain)


def tells_squares_of_lengths(told, source):
    return told.replace(changed=told.changed**2)


def tells_one_number(told, source):
    return told.replace(added=told.added.sum(axis=1))


def tells_of_signs(told, source):
    return told.replace(forgotten=-told.forgotten)


def tells_nothing(told, source):
    return jax.tree.map(jnp.zeros_like, told)


def tells_a_hundredth(told, source):
    return jax.tree.map(lambda lengths: lengths / 100, told)


def tells_of_writes_at_padding(told, source):
    return told.replace(added=told.added + ~source.mask)


WRONG_TOLD = {
    "lengths": (explaining(tells_squares_of_lengths), {"explained"}),
    "shape": (explaining(tells_one_number), {"explained"}),
    "sign": (explaining(tells_of_signs), {"explained"}),
    "told-lies": (explaining(tells_nothing), {"explained"}),
    "told-less": (explaining(tells_a_hundredth), {"explained"}),
    "told-padding": (explaining(tells_of_writes_at_padding), {"explained"}),
}
