# SPDX-License-Identifier: Apache-2.0
"""The gradient of a batch: one of the parameters, added up over parts of its rows."""

import jax
import jax.numpy as jnp

from kvnmt.layers import Scanning
from kvnmt.model.assembly import Model, Params
from kvnmt.training import risk
from kvnmt.training.freezing import held
from kvnmt.training.losses import Loss, Objective, loss
from kvnmt.training.step_options import Dtype, StepOptions
from kvnmt.typing import Array, Bool, Int, Key, PyTree


def sums_and_gradient(
    model: Model,
    objective: Objective,
    options: StepOptions,
    scanning: Scanning,
    params: Params,
    source: Int[Array, "B S"],
    target: Int[Array, "B T"],
    masks: Key[Array, " B"],
    links: Bool[Array, "B T S"] | None,
) -> tuple[Loss, Params]:
    """The loss of a batch and its gradient, both not yet divided.

    Args:
        model: The functions.
        objective: What is minimised.
        options: How it is computed.
        scanning: How scans are, on this kind of device.
        params: Where the gradient is taken.
        source: Ids.
        target: Ids, EOS last.
        masks: Keys of what is drawn for each row.
        links: Between target and source tokens, if the objective is guided by them.
    """

    def total(
        params: Params,
        candidates: Array | None,
        source: Array,
        target: Array,
        masks: Array,
        links: Array | None,
    ) -> tuple[Array, Loss]:
        params = _cast(held(params, options.frozen), options.dtype)
        prediction = model.forward(params, source, target, masks, scanning)
        risks = None
        if candidates is not None:
            risks = risk.expected(model, params, source, candidates, masks, scanning)
        sums = loss(objective, prediction, source, target, links, risks)
        return sums.total, sums

    def gradient(
        params: Params, source: Array, target: Array, masks: Array, links: Array | None
    ) -> tuple[Params, Loss]:
        candidates = None
        if objective.risk:
            samples = objective.risk_samples
            cast = _cast(params, options.dtype)
            candidates = risk.draw(
                model, cast, source, target, masks, samples, scanning
            )
        return jax.grad(total, has_aux=True)(
            params, candidates, source, target, masks, links
        )

    batch = source, target, masks, links
    parts = options.accumulate
    if parts == 1:
        gradients, sums = gradient(params, *batch)
        return sums, gradients

    def add(carried: PyTree, part: tuple[Array, ...]) -> tuple[PyTree, None]:
        return jax.tree.map(jnp.add, carried, gradient(params, *part)), None

    rows = jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), batch)
    first = jax.tree.map(lambda x: x[0], rows)
    shapes = jax.eval_shape(gradient, params, *first)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    (gradients, sums), _ = jax.lax.scan(add, zero, rows)
    return sums, gradients


def _cast(params: Params, dtype: Dtype) -> Params:
    """What the forward pass computes with; float64 stays as it is."""
    if dtype == "float32":
        return params
    return jax.tree.map(lambda leaf: leaf.astype(dtype), params)
