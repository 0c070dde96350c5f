# SPDX-License-Identifier: Apache-2.0
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.attention import Moment, kv_memory
from kvnmt.attention.kv_memory import Options
from kvnmt.initializers import gaussian
from kvnmt.typing import Sizes
from tests.references import attention as references
from tests.references import parameters

SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=5, alignment=6)
B, S = 2, 4
MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=bool)


def written(options: Options, key: jax.Array):
    """Random keys, also at padding, before and after one write; and the state."""
    attention = kv_memory.build(options)
    params = attention.init(key, SIZES, gaussian(1.0))
    params = jax.tree.map(lambda x: jnp.asarray(x, float), params)
    annotations = jax.random.normal(key, (B, S, 8))
    source = attention.prepare(params, annotations, jnp.asarray(MASK))
    state = attention.initial_state(params, source)
    query = jax.random.normal(jax.random.fold_in(key, 1), (B, 5))
    moment = Moment(query, jnp.zeros((B, 3)), query, decoder_state=query)
    after = attention.write(params, source, state, moment)
    return params, state.keys, after.keys, query


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(add="tanh"),
        Options(share_addresses=True),
        Options(values="rewritten"),
    ],
    ids=str,
)
def test_one_write_is_the_papers(options, key, x64):
    params, before, after, query = written(options, key)
    theta = parameters.attention(params)
    plain = {
        "values": "fixed",
        "add": options.add,
        "share_addresses": options.share_addresses,
    }
    for row, length in enumerate([4, 2]):
        cells = [np.asarray(k) for k in before[row, :length]]
        memory = {"Km": cells, "Vm": cells}
        want = references.memory_write(theta, plain, memory, np.asarray(query[row]))
        np.testing.assert_allclose(after[row, :length], want["Km"], rtol=1e-12)


def test_keys_start_as_annotations_and_padding_is_never_written(key):
    _, before, after, _ = written(Options(), key)
    before, after = np.asarray(before), np.asarray(after)
    np.testing.assert_array_equal(before, jax.random.normal(key, (B, S, 8)))
    np.testing.assert_array_equal(after[~MASK], before[~MASK])
    assert (after[MASK] != before[MASK]).all()


def test_rewrite_at_its_ends():
    keys = jnp.asarray([[[2.0, 4.0], [6.0, 8.0]]])
    one, half = jnp.ones((1, 2)), jnp.full((1, 2), 0.5)
    first, nowhere = jnp.asarray([[1.0, 0.0]]), jnp.zeros((1, 2))
    np.testing.assert_array_equal(kv_memory.rewrite(keys, nowhere, one, one), keys)
    got = kv_memory.rewrite(keys, first, one, half)  # forgotten, then added
    np.testing.assert_array_equal(got, [[[0.5, 0.5], [6, 8]]])
    got = kv_memory.rewrite(keys, half, half, one)
    np.testing.assert_array_equal(got, [[[2, 3.5], [5, 6.5]]])


def test_write_bias_is_where_the_gates_start(key):
    params = kv_memory.build(Options(write_bias=-2.0)).init(key, SIZES, gaussian())
    np.testing.assert_array_equal(params.forget.b, np.full(8, -2.0))
    np.testing.assert_array_equal(params.add.b, np.full(8, -2.0))
    params = kv_memory.build(Options()).init(key, SIZES, gaussian())
    assert not np.any(np.asarray(params.forget.b)) and params.write_address is not None
    assert not np.array_equal(params.address.U_key, params.write_address.U_key)


def test_shared_addresses_have_one_set_of_parameters(key):
    attention = kv_memory.build(Options(share_addresses=True))
    params = attention.init(key, SIZES, gaussian())
    assert params.write_address is None
    theta, gates = 6 * (5 + 8 + 2), 2 * (8 * 5 + 8)
    assert sum(x.size for x in jax.tree.leaves(params)) == theta + gates
