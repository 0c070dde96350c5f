# SPDX-License-Identifier: Apache-2.0
"""The train step: jitted, donating its state, sharded over the data axis of a mesh.

Parameters and optimiser state are replicated, batches are split by rows; the loss is
a sum over all real tokens divided once by their number, so the result does not
depend on how many devices share the work.
"""

import jax
import jax.numpy as jnp
import optax
from flax import struct

from kvnmt.losses import Loss, Objective, loss
from kvnmt.models import Model, Params
from kvnmt.typing import Array, Bool, Float, Int, Key, PyTree


@struct.dataclass
class TrainState:
    """All that a step changes."""

    step: Int[Array, ""]  # updates made
    params: PyTree  # models.Params
    optimizer: PyTree


@struct.dataclass
class Metrics:
    """Sums of one step, left on the device until somebody asks."""

    loss: Loss
    gradient_norm: Float[Array, ""]  # before clipping
    skipped: Bool[Array, ""]  # loss or gradient was no finite number


def init_state(params: PyTree, optimizer: optax.GradientTransformation) -> TrainState:
    """The state before the first step."""
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


def make_train_step(
    model: Model,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    key: Key[Array, ""],
) -> jax.stages.Wrapped:
    """Returns the jitted step ``(state, source, target) -> (state, metrics)``.

    The state given to it is consumed. Where the loss or the gradient is no finite
    number, only the count of steps is changed.

    Dropout masks are drawn with ``fold_in(key, step)``: a restart draws the same.
    """

    def step(
        state: TrainState, source: Array, target: Array
    ) -> tuple[TrainState, Metrics]:
        def objective_of(params: Params) -> tuple[Array, Loss]:
            masks = jax.random.fold_in(key, state.step)
            prediction = model.forward(params, source, target, masks)
            sums = loss(objective, prediction, source, target)
            count = jnp.maximum(sums.tokens, 1).astype(sums.total.dtype)
            return sums.total / count, sums

        gradients, sums = jax.grad(objective_of, has_aux=True)(state.params)
        updates, inner = optimizer.update(gradients, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        norm = optax.tree.norm(gradients)
        good = jnp.isfinite(norm) & jnp.isfinite(sums.total)
        params, inner = jax.tree.map(
            lambda new, old: jnp.where(good, new, old),
            (params, inner),
            (state.params, state.optimizer),
        )
        return TrainState(state.step + 1, params, inner), Metrics(sums, norm, ~good)

    return jax.jit(step, donate_argnums=0)


def make_eval_step(model: Model) -> jax.stages.Wrapped:
    """Returns the jitted ``(params, source, target) -> Loss``: plain likelihood."""

    def step(params: Params, source: Array, target: Array) -> Loss:
        prediction = model.forward(params, source, target)
        return loss(Objective(), prediction, source, target)

    return jax.jit(step)
