# SPDX-License-Identifier: Apache-2.0
"""Gradients of weights by one product behind a scan, not by one in each of its steps.

The gradient of an array W that every step multiplies with is ``sum_t x_t^T g_t``, g_t
the gradient of the product ``x_t W``. A scan left alone reads and writes a sum of the
size of W in every step. Here the backward scan writes x_t and g_t down, and one product
over all steps makes the sum; a bias that is added to such products has ``sum_t g_t``.

How the backward scan writes: a slot is one more input of the scan, zeros that no step
reads. A value that passes `_value` or `_gradient` with a slot stays as it is; what they
say the gradient of the slot is, is the value, or its gradient. The slots come from
`_slots`, which makes of that the gradients of weights and biases.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

from kvnmt.typing import Array, PyTree

Step: TypeAlias = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]


class Operation(NamedTuple):
    """An equation of a step; its values have numbers."""

    equation: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Product(NamedTuple):
    """A product ``x W`` of vectors [B, I] with a W that is the same in every step.

    W is a matrix, or has one for every row, [B, I, O]: the values that are read.
    """

    operation: Operation
    total: int  # the sum that it is a part of, and used in alone

    @property
    def x(self) -> int:
        """The number of x."""
        return self.operation.inputs[0]

    @property
    def weight(self) -> int:
        """The number of W."""
        return self.operation.inputs[1]


@dataclass
class Traced:
    """A step as a list of operations."""

    arguments: list[int] = field(default_factory=list)  # state, inputs
    results: list[int] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)  # the same in every step
    operations: list[Operation] = field(default_factory=list)  # all others
    shapes: list[Any] = field(default_factory=list)  # of every value, by number

    def number(self, shape: Any) -> int:
        """The number of a new value."""
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def constant(self, value: Any) -> int:
        """The number of a value that does not change."""
        number = self.number(jax.typeof(value))
        self.constants[number] = value
        return number


class Deferred(NamedTuple):
    """What is taken out of a step."""

    products: list[Product]
    biases: list[tuple[int, int]]  # the number of a bias, and of its total

    @property
    def values(self) -> list[int]:
        """The numbers of what products multiply, each once."""
        return list(dict.fromkeys(product.x for product in self.products))

    @property
    def totals(self) -> list[int]:
        """The numbers of the sums, each once."""
        return list(dict.fromkeys(product.total for product in self.products))


def defer(step: Step, state: PyTree, inputs: PyTree) -> tuple[Step, PyTree]:
    """A step and inputs with the same results, whose weights have their gradient later.

    Args:
        step: ``(state, inputs of a step) -> (state, what it gives)``, for a scan.
        state: Before the first step.
        inputs: Arrays with time as their first axis.
    """
    first = jax.tree.map(lambda x: x[0], inputs)
    closed, shapes = jax.make_jaxpr(step, return_shape=True)(state, first)
    tree = jax.tree.structure(shapes)
    traced = _trace(closed)
    deferred = _deferred(traced)
    weights = [traced.constants[product.weight] for product in deferred.products]
    biases = [traced.constants[bias] for bias, _ in deferred.biases]
    shapes = [traced.shapes[n] for n in (*deferred.values, *deferred.totals)]
    length = len(jax.tree.leaves(inputs)[0])
    slots = _slots(deferred, length, shapes, weights, biases)

    def slotted(state: PyTree, inputs: tuple[PyTree, list[Array]]) -> Any:
        leaves = jax.tree.leaves((state, inputs[0]))
        return jax.tree.unflatten(tree, _run(traced, deferred, leaves, inputs[1]))

    return slotted, (inputs, slots)


def _trace(closed: ClosedJaxpr) -> Traced:
    """The operations of a step; what is the same in every step is computed here."""
    traced = Traced()
    traced.arguments = [traced.number(each.aval) for each in closed.jaxpr.invars]
    traced.results = _add(traced, closed, traced.arguments)
    return traced


def _add(traced: Traced, closed: ClosedJaxpr, arguments: Sequence[int]) -> list[int]:
    """Adds the equations of a function; the numbers of its results."""
    numbers = dict(zip(closed.jaxpr.invars, arguments, strict=True))
    for variable, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        numbers[variable] = traced.constant(value)

    def number(atom: Any) -> int:
        return traced.constant(atom.val) if isinstance(atom, Literal) else numbers[atom]

    for equation in closed.jaxpr.eqns:
        inputs = tuple(map(number, equation.invars))
        if all(n in traced.constants for n in inputs):
            values = _evaluate(equation, [traced.constants[n] for n in inputs])
            outputs = [traced.constant(value) for value in values]
        elif equation.primitive.name in ("jit", "pjit"):
            outputs = _add(traced, equation.params["jaxpr"], inputs)
        else:
            outputs = [traced.number(each.aval) for each in equation.outvars]
            traced.operations.append(Operation(equation, inputs, tuple(outputs)))
        numbers.update(zip(equation.outvars, outputs, strict=True))
    return [number(atom) for atom in closed.jaxpr.outvars]


def _evaluate(equation: Any, values: Sequence[Any]) -> Sequence[Any]:
    params = equation.primitive.get_bind_params(equation.params)
    with equation.ctx.manager:
        results = equation.primitive.bind(*values, **params)
    return results if equation.primitive.multiple_results else [results]


def _deferred(traced: Traced) -> Deferred:
    """The products of a step, and what is added to them alone."""
    uses = Counter(traced.results)
    uses.update(n for operation in traced.operations for n in operation.inputs)
    readers = {n: each for each in traced.operations for n in each.inputs}
    products, biases = [], {}
    for operation in traced.operations:
        if not _is_product(traced, operation):
            continue
        total, added = operation.outputs[0], []
        while uses[total] == 1 and total in readers and _is_sum(traced, readers[total]):
            added += [n for n in readers[total].inputs if n in traced.constants]
            total = readers[total].outputs[0]
        products.append(Product(operation, total))
        biases |= {n: total for n in added if uses[n] == 1}
    return Deferred(products, [*biases.items()])


def _is_product(traced: Traced, operation: Operation) -> bool:
    """Whether it is a product of vectors [B, I] with what is the same in every step."""
    if operation.equation.primitive.name != "dot_general":
        return False
    x, weight = operation.inputs
    vectors = len(traced.shapes[x].shape) == 2
    if not vectors or weight not in traced.constants or x in traced.constants:
        return False
    (contracted, _), (batched, _) = operation.equation.params["dimension_numbers"]
    whole = len(traced.shapes[operation.outputs[0]].shape) == 2
    return whole and contracted == (1,) and batched in ((), (0,))


def _is_sum(traced: Traced, operation: Operation) -> bool:
    """Whether it adds something to a value of the shape of the result."""
    if operation.equation.primitive.name not in ("add", "add_any"):
        return False
    whole = traced.shapes[operation.outputs[0]]
    parts = [traced.shapes[n] for n in operation.inputs if n not in traced.constants]
    return all((p.shape, p.dtype) == (whole.shape, whole.dtype) for p in parts)


def _run(
    traced: Traced, deferred: Deferred, arguments: Sequence[Array], slots: list[Array]
) -> list[Array]:
    """The results of a step that passes values and gradients through their slots."""
    values = dict(zip(deferred.values, slots))
    totals = dict(zip(deferred.totals, slots[len(values) :], strict=True))
    later = {bias for bias, _ in deferred.biases}
    weights = {id(product.operation): product.weight for product in deferred.products}
    known = {
        n: jax.lax.stop_gradient(value) if n in later else value
        for n, value in traced.constants.items()
    }

    def add(number: int, value: Array) -> None:
        if number in totals:
            value = _gradient(value, totals[number])
        if number in values:
            value = _value(value, values[number])
        known[number] = value

    for number, value in zip(traced.arguments, arguments, strict=True):
        add(number, value)
    for operation in traced.operations:
        inputs = [known[n] for n in operation.inputs]
        if id(operation) in weights:
            inputs[1] = jax.lax.stop_gradient(inputs[1])
        results = _evaluate(operation.equation, inputs)
        for number, value in zip(operation.outputs, results, strict=True):
            add(number, value)
    return [known[n] for n in traced.results]


@jax.custom_vjp
def _value(x: Array, slot: Array) -> Array:
    """The same; the gradient of the slot is x."""
    return x


_value.defvjp(lambda x, slot: (x, x), lambda x, above: (above, x))


@jax.custom_vjp
def _gradient(total: Array, slot: Array) -> Array:
    """The same; the gradient of the slot is that of the total."""
    return total


_gradient.defvjp(lambda total, slot: (total, None), lambda _, above: (above, above))


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _slots(
    deferred: Deferred,
    length: int,
    shapes: Sequence[Any],
    weights: list[Array],
    biases: list[Array],
) -> list[Array]:
    """Zeros for every step; what their gradients hold makes those of the weights."""
    return [jnp.zeros((length, *shape.shape), shape.dtype) for shape in shapes]


def _slots_kept(
    deferred: Deferred,
    length: int,
    shapes: Sequence[Any],
    weights: list[Array],
    biases: list[Array],
) -> tuple[list[Array], list[Array]]:
    return _slots(deferred, length, shapes, weights, biases), biases


def _slots_gradient(
    deferred: Deferred,
    length: int,
    shapes: Sequence[Any],
    biases: list[Array],
    above: list[Array],
) -> tuple[list[Array], list[Array]]:
    values = dict(zip(deferred.values, above))
    totals = dict(zip(deferred.totals, above[len(values) :], strict=True))
    weights = []
    for product in deferred.products:
        params = product.operation.equation.params
        (_, contracted), (_, batched) = params["dimension_numbers"]
        letters = {**dict.fromkeys(contracted, "i"), **dict.fromkeys(batched, "b")}
        axes = "".join(letters.get(n, "o") for n in range(2 + len(batched)))
        x, total = values[product.x], totals[product.total]
        weights.append(
            jnp.einsum(f"tbi,tbo->{axes}", x, total, precision=params["precision"])
        )
    sums = [jnp.sum(totals[total], axis=0) for _, total in deferred.biases]
    return weights, list(map(_narrow, sums, biases))


def _narrow(gradient: Array, bias: Array) -> Array:
    """The gradient of what was repeated along axes on which it has one entry."""
    axes = [n for n, size in enumerate(bias.shape) if size != gradient.shape[n]]
    return jnp.sum(gradient, axis=axes, keepdims=True)


_slots.defvjp(_slots_kept, _slots_gradient)
