# SPDX-License-Identifier: Apache-2.0
"""Products of one array with several matrices, as one product.

A step of a decoder multiplies its query, its state and the keys of its memory by
several matrices each. A GPU starts a kernel for every product, two more for its
gradient, and one that sums the gradient of the matrix. Side by side the matrices are
one. No mechanism needs to know this: a step is traced and its trace is run differently.

=================  ==============================================================
before all steps   what a step computes from parameters alone; matrices that meet
                   the same array, side by side; what is added to a product, such
                   as a bias, for every row [B, n]
in every step      a product for each of them, whose columns are then taken apart
=================  ==============================================================

What is added for every row gets its gradient row by row, along with what that gradient
is computed from; rows are summed once, after the scan.
"""

from collections.abc import Callable, Hashable
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr, Literal, Var

from kvnmt.typing import Array, PyTree

# Axes of what is computed before the scan, at most: [B, S, A] would be large.
FLAT = 2

Equation: TypeAlias = Any  # of a traced step; JAX gives no types to work with
Values: TypeAlias = dict[Any, Array]  # of its variables


class _Place(NamedTuple):
    """Where the result of a product stands in that of its group."""

    group: Hashable
    start: int
    stop: int


class _Group(NamedTuple):
    """One product in the place of several."""

    matrix: Array
    bias: Array | None  # of every row


def merging_pays(platform: str) -> bool:
    """Whether a kind of device is faster with merged products: a GPU starts fewer."""
    return platform not in ("cpu", "tpu")


def joining_pays(platform: str) -> bool:
    """Whether one scan of both directions of an encoder is faster than two."""
    return platform != "cpu"


def merged(
    step: Callable[[PyTree, PyTree], PyTree], state: PyTree, inputs: PyTree
) -> Callable[[PyTree, PyTree], PyTree]:
    """The same step with its products merged; itself where there are none to merge.

    Args:
        step: ``(state, inputs of a step) -> anything``, a pure function.
        state: Before the first step.
        inputs: Of the first step.
    """
    traced, shapes = jax.make_jaxpr(step, return_shape=True)(state, inputs)
    program = _Program(traced)
    if not program.groups:
        return step

    def run(state: PyTree, inputs: PyTree) -> PyTree:
        results = program.run(jax.tree.leaves((state, inputs)))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return run


class _Program:
    """A traced step, of which a part has been run."""

    def __init__(self, traced: ClosedJaxpr):
        """Runs what needs no state and no input, and puts matrices side by side."""
        self.jaxpr = traced.jaxpr
        self.constants: Values = dict(zip(self.jaxpr.constvars, traced.consts))
        self.equations: list[Equation] = []
        for equation in self.jaxpr.eqns:
            if self._is_constant(equation):
                self._evaluate(equation, self.constants)
            else:
                self.equations.append(equation)
        self.places: dict[Var, _Place] = {}  # of products that are merged
        self.sums: dict[Var, Var] = {}  # of a product and its bias: that product
        self.groups: dict[Hashable, _Group] = {}
        products: dict[Hashable, list[Equation]] = {}
        for equation in filter(self._is_product, self.equations):
            left, right = equation.invars
            group = left, right.aval.dtype, str(equation.params)
            products.setdefault(group, []).append(equation)
        for group, equations in products.items():
            self._merge(group, equations)

    def run(self, arguments: list[Array]) -> list[Array]:
        """What the step gives."""
        values: Values = dict(self.constants)
        values.update(zip(self.jaxpr.invars, arguments))
        for equation in self.equations:
            result = next(iter(equation.outvars), None)  # a print has none
            if result in self.sums:
                values[result] = values[self.sums[result]]
            elif result in self.places:
                group, start, stop = self.places[result]
                if group not in values:
                    values[group] = self._product(equation, values)
                values[result] = values[group][..., start:stop]
            else:
                self._evaluate(equation, values)
        return [_read(values, result) for result in self.jaxpr.outvars]

    def _is_constant(self, equation: Equation) -> bool:
        arguments = [x for x in equation.invars if not isinstance(x, Literal)]
        return (
            bool(arguments)
            and all(x in self.constants for x in arguments)
            and not equation.effects
            and all(len(result.aval.shape) <= FLAT for result in equation.outvars)
        )

    def _is_product(self, equation: Equation) -> bool:
        """Whether it multiplies the last axis of an array by a constant matrix."""
        if equation.primitive.name != "dot_general":
            return False
        left, right = equation.invars
        last = len(left.aval.shape) - 1
        return (
            equation.params["dimension_numbers"] == (((last,), (0,)), ((), ()))
            and len(right.aval.shape) == FLAT
            and right in self.constants
            and left not in self.constants
        )

    def _merge(self, group: Hashable, equations: list[Equation]) -> None:
        """Makes one product of several with the same array; of one, if it has a bias.

        A matrix that several of them take, as shared rounds do, stands there once.
        """
        results = {e.invars[1]: e.outvars[0] for e in equations}
        biases = {}
        if len(results) == len(equations):
            found = ((result, self._bias(result)) for result in results.values())
            biases = {result: bias for result, bias in found if bias}
        if len(results) == 1 and not biases:
            return
        stops = [*accumulate(matrix.aval.shape[1] for matrix in results)]
        spans = dict(zip(results, zip([0, *stops], stops)))
        for equation in equations:
            place = _Place(group, *spans[equation.invars[1]])
            self.places[equation.outvars[0]] = place
        self.sums.update((total, result) for result, (total, _) in biases.items())
        rows = [
            jnp.broadcast_to(self.constants[biases[result][1]], result.aval.shape)
            if result in biases
            else jnp.zeros(result.aval.shape, result.aval.dtype)
            for result in results.values()
        ]
        matrices = [self.constants[matrix] for matrix in results]
        self.groups[group] = _Group(
            jnp.concatenate(matrices, axis=1),
            jnp.concatenate(rows, axis=1) if biases else None,
        )

    def _bias(self, result: Any) -> tuple[Var, Var] | None:
        """Where a bias is added to a product, if that is its only use; and the bias."""
        uses = [e for e in self.equations if any(x is result for x in e.invars)]
        if (
            len(uses) != 1
            or uses[0].primitive.name != "add"
            or len(result.aval.shape) != FLAT
            or any(x is result for x in self.jaxpr.outvars)
        ):
            return None
        (other,) = [x for x in uses[0].invars if x is not result] or [None]
        total = uses[0].outvars[0]
        if isinstance(other, Literal) or other not in self.constants:
            return None
        return (total, other) if total.aval.shape == result.aval.shape else None

    def _product(self, equation: Equation, values: Values) -> Array:
        group = self.groups[self.places[equation.outvars[0]].group]
        result = jax.lax.dot_general(
            values[equation.invars[0]],
            group.matrix,
            equation.params["dimension_numbers"],
            precision=equation.params["precision"],
            preferred_element_type=equation.params["preferred_element_type"],
        )
        return result if group.bias is None else result + group.bias

    def _evaluate(self, equation: Equation, values: Values) -> None:
        variables = [x for x in equation.invars if not isinstance(x, Literal)]
        alone = self.jaxpr.replace(
            constvars=[],
            invars=variables,
            outvars=equation.outvars,
            eqns=[equation],
        )
        results = eval_jaxpr(alone, (), *(values[x] for x in variables))
        values.update(zip(equation.outvars, results))


def _read(values: Values, x: Any) -> Any:
    return x.val if isinstance(x, Literal) else values[x]
