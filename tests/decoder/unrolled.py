# SPDX-License-Identifier: Apache-2.0
"""A decoder by itself, stepped over random words."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt import attention as attentions
from kvnmt import decoder as decoders
from kvnmt.attention import Attention, additive
from kvnmt.encoder import Encoded
from kvnmt.initializers import gaussian
from kvnmt.typing import Sizes

SIZES = Sizes(embedding=3, encoder=4, annotation=6, state=6, alignment=5)
MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]], dtype=bool)
B, T = MASK.shape[0], 3
ADDITIVE = attentions.CATALOGUE.build(additive.Options())


class Unrolled:
    """A decoder with random parameters, a source and embedded words."""

    def __init__(self, options: decoders.Options, attention: Attention = ADDITIVE):
        self.decoder = decoders.CATALOGUE.build(options, attention)
        key, draw = jax.random.key(4), jax.random.normal
        self.params = self.decoder.init(key, SIZES, gaussian(1.0))
        annotations = draw(key, (*MASK.shape, SIZES.annotation), float)
        first = draw(key, (B, SIZES.encoder), float)
        self.source = Encoded(
            jnp.where(MASK[..., None], annotations, 0),
            jnp.asarray(MASK),
            jnp.where(MASK[:, :1], first, 0),
            SIZES,
        )
        self.embedded = draw(key, (T, B, SIZES.embedding), float)

    def run(self, params: Any) -> tuple[decoders.Features, list[Any]]:
        """Features over time, and every State."""
        return jax.jit(self.unroll)(params)

    def unroll(self, params: Any) -> tuple[decoders.Features, list[Any]]:
        constants = self.decoder.prepare(params, self.source)
        state = self.decoder.initial_state(params, constants, T)
        states, steps = [state], []
        for x in self.embedded:
            inputs = self.decoder.inputs(params, x)
            state, features = self.decoder.step(params, constants, state, inputs)
            states.append(state)
            steps.append(features)
        over_time = jax.tree.map(lambda *xs: jnp.stack(xs, axis=1), *steps)
        if self.decoder.attend is None:
            return over_time, states
        return self.decoder.attend(params, constants, over_time), states
