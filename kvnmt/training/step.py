# SPDX-License-Identifier: Apache-2.0
"""The train step: jitted, donating its state, sharded over a mesh.

Batches are split by rows over the data axis of the mesh, arrays with a row or column
for each word over its model axis, if it has one (`kvnmt.training.sharding`). The loss
is a sum over all real tokens divided once, by their number or that of the sentences, so
the result depends neither on how many devices share the work nor on how many parts a
batch is computed in.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax.sharding import Mesh, Sharding

from kvnmt.devices import replicate
from kvnmt.errors import UserError
from kvnmt.fields import check_fields
from kvnmt.layers import row_keys
from kvnmt.model.assembly import Model
from kvnmt.training.freezing import moving
from kvnmt.training.gradient import sums_and_gradient
from kvnmt.training.losses import Loss, Objective
from kvnmt.training.sharding import over_rows
from kvnmt.training.step_options import StepOptions
from kvnmt.typing import Array, Bool, Float, Int, Key, PyTree

KEPT = 8  # steps that a process keeps compiled, the latest used


@struct.dataclass
class TrainState:
    """All that a step changes."""

    step: Int[Array, ""]  # steps made, also those that changed nothing
    params: PyTree  # model.arrays.Params
    optimizer: PyTree
    scale: Float[Array, ""]  # of the learning rate; falls on a plateau
    mean: PyTree = None  # of the parameters over time, where it is asked for

    @property
    def served(self) -> PyTree:
        """The parameters that translate."""
        return self.params if self.mean is None else self.mean

    @property
    def rest(self) -> dict[str, PyTree]:
        """All that is not `served`, for a checkpoint."""
        rest = {"step": self.step, "optimizer": self.optimizer, "scale": self.scale}
        return rest if self.mean is None else rest | {"params": self.params}

    def restored(self, served: PyTree, rest: dict[str, PyTree]) -> "TrainState":
        """The state whose `served` and `rest` these are."""
        mean = None if self.mean is None else served
        return TrainState(
            step=rest["step"],
            params=rest.get("params", served),
            optimizer=rest["optimizer"],
            scale=rest["scale"],
            mean=mean,
        )


@struct.dataclass
class Metrics:
    """Sums of one step, left on the device until somebody asks."""

    loss: Loss
    gradient_norm: Float[Array, ""]  # before clipping
    skipped: Bool[Array, ""]  # loss or gradient was no finite number


def init_state(
    params: PyTree,
    optimizer: optax.GradientTransformation,
    options: StepOptions = StepOptions(),
) -> TrainState:
    """The state before the first step.

    A step consumes the arrays: give a copy, ``jax.tree.map(jnp.copy, params)``, of
    parameters that are used again, such as those of a loaded run.
    """
    mean = jax.tree.map(jnp.copy, params) if options.ema else None
    zero, one = jnp.zeros((), jnp.int32), jnp.ones((), jnp.float32)
    return TrainState(zero, params, optimizer.init(params), one, mean)


class TrainStep(NamedTuple):
    """The step ``(state, source, target) -> (state, metrics)``, jitted.

    Links follow the target where the objective is guided by them.
    """

    program: jax.stages.Wrapped  # of the key, too: other seeds compile nothing
    key: Array  # numbers of the key of the dropout

    def __call__(
        self, state: TrainState, source: Array, target: Array, *links: Array
    ) -> tuple[TrainState, Metrics]:
        """Makes a step."""
        return self.program(self.key, state, source, target, *links)

    def lower(
        self, state: TrainState, source: Any, target: Any, *links: Any
    ) -> jax.stages.Lowered:
        """The step for these shapes, lowered; it takes the key first."""
        return self.program.lower(self.key, state, source, target, *links)


def make_train_step(
    model: Model,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    key: Key[Array, ""],
    options: StepOptions = StepOptions(),
    mesh: Mesh | None = None,
    shardings: PyTree = None,
) -> TrainStep:
    """Returns the jitted step ``(state, source, target) -> (state, metrics)``.

    It takes links between target and source tokens, ``[B, T, S]``, too, where the
    objective is guided by them. The state given to it is consumed. Where the loss or
    the gradient is no finite number, only the count of steps is changed.

    Dropout masks are drawn with ``fold_in(fold_in(key, step), row)``: a restart draws
    the same, and so do more devices and parts.

    Where rows are split over devices, each computes the gradient of its rows, and the
    sums meet once. Left to the compiler, the gradient of a recurrent matrix may meet
    in every step of the scan.

    Args:
        model: The functions.
        objective: What is minimised.
        optimizer: How.
        key: Of the dropout.
        options: How it is computed.
        mesh: Whose data axis the rows are split over; None: all on one device.
        shardings: Of the state, if it is not replicated.
    """
    program = train_program(model, objective, optimizer, options, mesh, shardings)
    numbers = jax.random.key_data(key)
    return TrainStep(program, numbers if mesh is None else replicate(numbers, mesh))


def train_program(
    model: Model,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    options: StepOptions,
    mesh: Mesh | None,
    shardings: PyTree,
) -> jax.stages.Wrapped:
    """What `make_train_step` runs: of numbers of the key, state, and a batch.

    Raises:
        UserError: An option is not what it may be.
    """
    check_fields(objective, "objective.")
    check_fields(options, "training.")
    names = (field.name for field in fields(StepOptions))
    how = StepOptions(**{name: getattr(options, name) for name in names})
    leaves, tree = jax.tree.flatten(shardings)
    return _program(model, objective, optimizer, how, mesh, tuple(leaves), tree)


@lru_cache(maxsize=KEPT)
def _program(
    model: Model,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    options: StepOptions,
    mesh: Mesh | None,
    shardings: tuple[Sharding, ...],
    tree: Any,  # of the shardings
) -> jax.stages.Wrapped:
    """The step of numbers of the key, state, and a batch; kept for a while."""
    device = jax.devices()[0] if mesh is None else mesh.devices.flat[0]
    scanning = options.scanning(device.platform)
    sums_of = partial(sums_and_gradient, model, objective, options, scanning)
    if mesh is not None and mesh.shape["data"] > 1:
        sums_of = over_rows(sums_of, mesh)

    def step(
        numbers: Array,
        state: TrainState,
        source: Array,
        target: Array,
        links: Array | None = None,
    ) -> tuple[TrainState, Metrics]:
        now = jax.random.fold_in(jax.random.wrap_key_data(numbers), state.step)
        masks = row_keys(now, jnp.arange(len(source)))
        whole = jax.default_matmul_precision("highest")  # else as JAX is told
        with whole if options.precision == "float32" else nullcontext():
            sums, gradients = sums_of(state.params, source, target, masks, links)
        count = _count(objective, sums, target).astype(sums.total.dtype)
        gradients = jax.tree.map(lambda g: g / count.astype(g.dtype), gradients)
        norm = optax.tree.norm(gradients)
        good = jnp.isfinite(norm) & jnp.isfinite(sums.total)

        def updated(state: TrainState, gradients: PyTree) -> TrainState:
            updates, inner = optimizer.update(gradients, state.optimizer, state.params)
            updates = jax.tree.map(lambda u: u * state.scale.astype(u.dtype), updates)
            updates = moving(updates, options.frozen)
            params = optax.apply_updates(state.params, updates)
            mean = _mean(options, state.step, state.mean, params)
            return TrainState(state.step, params, inner, state.scale, mean)

        new = _update_if(good, updated, state, gradients, device.platform)
        return replace(new, step=state.step + 1), Metrics(sums, norm, ~good)

    if not shardings:
        return jax.jit(step, donate_argnums=1)
    places = jax.tree.unflatten(tree, shardings)
    return jax.jit(step, donate_argnums=1, out_shardings=(places, None))


def _count(objective: Objective, sums: Loss, target: Array) -> Int[Array, ""]:
    """What the gradient is divided by."""
    count = sums.tokens
    if objective.normalization == "sentences":
        count = jnp.sum(jnp.any(target >= 0, axis=1))
    return jnp.maximum(count, 1)


def _update_if(
    good: Bool[Array, ""],
    updated: Callable[[TrainState, PyTree], TrainState],
    state: TrainState,
    gradients: PyTree,
    platform: str,
) -> TrainState:
    """The updated state if ``good``, else the state as it was.

    On a CPU a branch saves up to an eighth of a step: where every array is selected by
    itself, what several depend on is computed again for each, from copies.
    """
    if platform == "cpu":
        same = lambda state, _: state  # noqa: E731
        return jax.lax.cond(good, updated, same, state, gradients)
    new = updated(state, gradients)
    return jax.tree.map(lambda new, old: jnp.where(good, new, old), new, state)


def _mean(
    options: StepOptions, step: Int[Array, ""], before: PyTree, params: PyTree
) -> PyTree:
    """The mean of the parameters; of few steps at first (as in TensorFlow)."""
    if before is None:
        if options.ema:
            raise UserError(
                f"ema is {options.ema}, and the state has no mean of the parameters; "
                "give the same options to init_state."
            )
        return None
    steps, rate = step.astype(jnp.float32), jnp.float32(options.ema)
    if options.ema_ramp:
        rate = jnp.minimum(rate, (1 + steps) / (10 + steps))
    changes = jax.tree.map(
        lambda old, new: (1 - rate).astype(old.dtype) * (new - old), before, params
    )
    return jax.tree.map(jnp.add, before, moving(changes, options.frozen))
