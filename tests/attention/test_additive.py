# SPDX-License-Identifier: Apache-2.0
import jax.numpy as jnp
import numpy as np

from kvnmt.attention import Attended, Moment, additive
from kvnmt.initializers import gaussian
from kvnmt.typing import Sizes

SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=5, alignment=6)


def test_nothing_is_carried_or_written(key):
    attention = additive.build(additive.Options())
    params = attention.init(key, SIZES, gaussian(1.0))
    annotations = jnp.ones((2, 4, 8))
    source = attention.prepare(params, annotations, jnp.ones((2, 4), bool))
    state = attention.initial_state(params, source)
    query = jnp.ones((2, 5))
    moment = Moment(query, jnp.ones((2, 3)), query, decoder_state=query)
    attended = attention.read(params, source, state, moment)
    assert isinstance(attended, Attended)
    assert attention.write is None and state == ()
    np.testing.assert_allclose(attended.alignment, np.full((2, 4), 0.25), rtol=1e-6)
    np.testing.assert_allclose(attended.context, np.ones((2, 8)), rtol=1e-6)
