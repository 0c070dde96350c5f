# SPDX-License-Identifier: Apache-2.0
import jax.numpy as jnp
import numpy as np

from kvnmt.attention import kv_memory
from kvnmt.attention.kv_memory import Options
from kvnmt.initializers import gaussian
from kvnmt.typing import Sizes

SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=5, alignment=6)


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
    tanh = Options(write_bias=-2.0, add="tanh")  # of which -2 would add much
    params = kv_memory.build(tanh).init(key, SIZES, gaussian())
    assert np.all(params.forget.b == -2.0) and not np.any(np.asarray(params.add.b))
    params = kv_memory.build(Options()).init(key, SIZES, gaussian())
    assert not np.any(np.asarray(params.forget.b)) and params.write_address is not None
    assert not np.array_equal(params.address.U_key, params.write_address.U_key)
