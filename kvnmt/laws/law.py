# SPDX-License-Identifier: Apache-2.0
"""A law, and how arrays are compared for one.

A law looks at a trial, a mechanism at work on small random numbers, and yields a
sentence for everything that is not as the law says; no sentence means that it holds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.initializers import gaussian
from kvnmt.typing import Array, DType, PyTree, Sizes

Trial = TypeVar("Trial")

LARGE = 1e3  # times numbers that are not tiny
SHARP, SHARPEST = 1e2, 50.0  # times parameters, and the largest of them then
PRECISIONS = (jnp.bfloat16, jnp.float64)  # that are not float32


class Law(NamedTuple, Generic[Trial]):
    """What a mechanism promises, and what of it does not keep the promise."""

    name: str
    statement: str
    violations: Callable[[Trial], Iterator[str]]


def differences(wanted: PyTree, actual: PyTree, *, tolerance: float) -> Iterator[str]:
    """A sentence for the array that differs most, if any differs too much.

    If the structures differ, only that is said. If an array has large numbers, the
    tolerance is a share of the largest, since a memory of sums rounds as they do.
    Arrays without real numbers must be equal.
    """
    if jax.tree.structure(wanted) != jax.tree.structure(actual):
        have, want = ([name for name, _ in named(each)] for each in (actual, wanted))
        alike = "the same arrays in another structure"
        yield f"it gives {alike if have == want else f'{have}, not {want}'}"
        return
    apart = {}
    for name, want, have in pairs(wanted, actual):
        if want.shape != have.shape:
            yield f"{name} has shape {have.shape}, not {want.shape}"
        elif not _near(have, want, tolerance):
            apart[name] = float(np.max(np.abs(have.astype(float) - want)))
    if apart:
        name = max(apart, key=lambda name: apart[name])
        yield f"{name} differs by {apart[name]:.2g}"


def pairs(
    first: PyTree, second: PyTree
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Arrays in the same place of two trees of the same structure."""
    for (name, old), (_, new) in zip(leaves(first), leaves(second), strict=True):
        yield name, old, new


def leaves(tree: PyTree) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a tree, by their paths."""
    for name, leaf in named(tree):
        yield name, np.asarray(leaf)


def named(tree: PyTree) -> Iterator[tuple[str, Array]]:
    """The leaves of a tree, or what stands for them, by their paths."""
    for path, leaf in jax.tree.leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        yield name or "the array", leaf


def drawn(init: Callable[..., PyTree], sizes: Sizes, gain: float = 0.0) -> PyTree:
    """Parameters none of which is tiny or 0, of the shapes that ``init`` gives."""
    weights = gaussian()._replace(gain=gain)
    shapes = jax.eval_shape(lambda key: init(key, sizes, weights), jax.random.key(0))
    return jax.tree.map(normal_numbers(7), shapes)


def normalised(init: Callable[..., PyTree], sizes: Sizes) -> Iterator[PyTree]:
    """Parameters as of a model with ``layer_norm``, if that adds any."""
    plain, gains = (drawn(init, sizes, gain) for gain in (0.0, 1.0))
    if jax.tree.structure(plain) != jax.tree.structure(gains):
        yield gains


def normal_numbers(seed: int) -> Callable[..., Array]:
    """Draws an array of float32 shaped as another, or of a shape."""
    normal = np.random.default_rng(seed).normal

    def draw(like: PyTree) -> Array:
        shape = getattr(like, "shape", like)
        return jax.device_put(normal(0, 1, shape).astype(np.float32))

    return draw


def faults_of_init(init: Callable[..., PyTree], sizes: Sizes) -> Iterator[str]:
    """Faults of initial parameters: they must be finite and drawn from the key."""
    first, again, other = (
        init(jax.random.key(seed), sizes, gaussian()) for seed in (0, 0, 1)
    )
    for name, leaf in named(first):
        if not hasattr(leaf, "dtype"):
            yield f"{name} begins as a {type(leaf).__name__}, which is no array"
        elif leaf.dtype != jnp.float32:
            yield f"{name} begins as {leaf.dtype}, and what is trained is float32"
        elif not np.isfinite(leaf).all():
            yield f"{name} begins with numbers that are not finite"
    for name, leaf, repeated in pairs(first, again):
        if not np.array_equal(leaf, repeated):
            yield f"{name} begins otherwise with the same key"
    # Some may begin alike whatever the key: ones, a matrix of the identity.
    free = any(leaf.size and np.ptp(leaf) for _, leaf in leaves(first))
    if free and all(np.array_equal(a, b) for _, a, b in pairs(first, other)):
        yield "all begin with the same numbers whatever the key"
    drawn = [(name, a) for name, a, b in pairs(first, other) if np.any(a != b)]
    for (name, leaf), (twin, same) in combinations(drawn, 2):
        if leaf.size > 1 and np.array_equal(leaf, same):
            yield (
                f"{name} and {twin} begin with the same numbers, as of one key; if "
                "they are meant to, excuse this law"
            )


def faults_of_form(states: Sequence[PyTree], rows: int) -> Iterator[str]:
    """Faults of carried States: a search reorders rows, a scan needs one form."""
    first, *later = states
    for name, leaf in named(first):
        if leaf.shape[:1] != (rows,):
            yield f"{name} has shape {leaf.shape}; its first axis is not the rows"
    for step, now in enumerate(later, start=1):
        if jax.tree.structure(now) != jax.tree.structure(first):
            yield f"after step {step} the State has another structure"
            continue
        for (name, old), (_, new) in zip(named(first), named(now), strict=True):
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                yield (
                    f"after step {step} {name} is {new.dtype}{list(new.shape)}, at "
                    f"first {old.dtype}{list(old.shape)}"
                )


def unchanged(states: Sequence[PyTree]) -> list[str]:
    """The arrays of States of one form that are what they were at first."""
    first, *later = (dict(leaves(state)) for state in states)
    return [
        name
        for name, old in first.items()
        if all(np.array_equal(now[name], old) for now in later)
    ]


def faults_of_sharp(run: Callable[[PyTree], PyTree], params: PyTree) -> Iterator[str]:
    """Faults of results with large parameters, which make sums of energies large."""
    large = jax.tree.map(lambda x: jnp.clip(SHARP * x, -SHARPEST, SHARPEST), params)
    for fault in not_finite(run(large)):
        yield f"with large parameters {fault}"


def not_finite(tree: PyTree) -> Iterator[str]:
    """A sentence for every array that holds what is no finite number."""
    for name, leaf in leaves(tree):
        if not np.isfinite(leaf).all():
            yield f"{name} is not finite"


def faults_of_gradient(gradients: Iterable[tuple[str, np.ndarray]]) -> Iterator[str]:
    """Faults of gradients by name: each must be finite, and not all 0."""
    for name, leaf in gradients:
        if not np.isfinite(leaf).all():
            yield f"the gradient of {name} is not finite"
        elif not np.any(leaf != 0):
            yield f"the gradient of {name} is 0"


def faults_of_looks(weights: np.ndarray, rows: int, steps: int) -> Iterator[str]:
    """Faults of weights of earlier steps, [B, T, T]; column 0 is before the first."""
    if weights.shape != (rows, steps, steps):
        yield f"the weights have shape {weights.shape}"
        return
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        yield "weights are negative or no numbers"
    elif np.any(np.triu(weights, 1) != 0):
        yield "a step looks at words that come later"
    elif (most := weights.sum(axis=-1).max()) > 1 + 1e-5:
        yield f"the weights of a step sum to {most:.4g}"
    elif (least := weights[:, -1].sum(axis=-1).min()) < 1 - 1e-5:
        yield f"the weights of the last step sum to {least:.4g}"


def faults_of_precision(
    results: Callable[..., tuple[PyTree, PyTree, Sequence[PyTree]]],
    *arrays: PyTree,
) -> Iterator[str]:
    """Faults of types: results must have the type of the arrays, or a finer one.

    Args:
        results: What the model goes on with, what people see, and the States, as a
            function of the arrays.
        *arrays: What it is to be called with, of any precision.
    """
    for dtype in map(jnp.dtype, PRECISIONS):
        exact = dtype == jnp.float64
        with jax.enable_x64(exact):
            taken, seen, states = jax.eval_shape(results, *of_type(dtype, arrays))
        for name, leaf in named((taken, seen, states) if exact else taken):
            if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype != dtype:
                yield f"from {dtype.name} it makes {leaf.dtype.name} {name}"
        first, *later = ([leaf.dtype for _, leaf in named(state)] for state in states)
        if any(types != first for types in later):
            yield f"from {dtype.name}, the State has other types after a step"


def of_type(dtype: DType, arrays: PyTree) -> PyTree:
    """The shapes of arrays whose real numbers have another type."""

    def other(leaf: Array) -> jax.ShapeDtypeStruct:
        real = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jax.ShapeDtypeStruct(leaf.shape, dtype if real else leaf.dtype)

    return jax.tree.map(other, arrays)


def _near(have: np.ndarray, want: np.ndarray, tolerance: float) -> bool:
    if not jnp.issubdtype(want.dtype, jnp.floating):
        return np.array_equal(have, want)
    return np.allclose(have, want, rtol=0, atol=tolerance * size(want), equal_nan=True)


def size(array: np.ndarray) -> float:
    """The size of the largest finite number, 1 at least."""
    return float(np.max(np.abs(array), initial=1.0, where=np.isfinite(array)))
