# SPDX-License-Identifier: Apache-2.0
"""The work of a program, read off its traced form: matrix products, loops in full."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jax.interpreters import partial_eval


def needed(jaxpr: Any) -> Sequence[Any]:
    """The equations of a program without those whose results nobody uses."""
    return partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0].eqns


def multiplications(eqns: Sequence[Any]) -> int:
    """Multiplications of all matrix products of equations, inner programs included.

    A scan counts once per step, a program of several devices once per device. A while
    loop, whose length is unknown, counts once. All branches count; but of branches for
    different platforms only the default counts, since the further products that suit
    another platform are no work of the model.
    """
    total = 0
    for eqn in eqns:
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            shape = eqn.invars[0].aval.shape
            inner = math.prod(shape[axis] for axis in contracted)
            total += math.prod(eqn.outvars[0].aval.shape) * inner
        times = _times(eqn)
        for jaxpr in _inner(_programs(eqn.params)):
            total += times * multiplications(jaxpr.eqns)
    return total


def _times(eqn: Any) -> int:
    """How often the inner program of an equation runs."""
    if eqn.primitive.name == "scan":
        return eqn.params["length"]
    if eqn.primitive.name == "shard_map":  # inside are the shapes of one device
        mesh, names = eqn.params["mesh"], ("newly_manual_axes", "manual_axes")
        # The second is what JAX 0.10.0 calls them.
        axes = next(eqn.params[name] for name in names if name in eqn.params)
        return math.prod(mesh.shape[axis] for axis in axes)
    return 1


def _programs(params: dict[str, Any]) -> Iterable[Any]:
    """The parameters of an equation that may hold inner programs."""
    platforms = params.get("branches_platforms")
    if platforms and None in platforms:
        return [params["branches"][platforms.index(None)]]
    return params.values()


def _inner(values: Any) -> Iterator[Any]:
    for value in values:
        if hasattr(value, "jaxpr"):
            yield value.jaxpr
        elif hasattr(value, "eqns"):
            yield value
        elif isinstance(value, (list, tuple)):  # branches
            yield from _inner(value)
