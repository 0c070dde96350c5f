# SPDX-License-Identifier: Apache-2.0
"""A law, and how arrays are compared for one.

A law looks at a trial, a mechanism at work on small random numbers, and yields a
sentence for everything that is not as the law says; no sentence means that it holds.
"""

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

import jax
import numpy as np

from kvnmt.typing import Array, PyTree

Trial = TypeVar("Trial")


class Law(NamedTuple, Generic[Trial]):
    """What a mechanism promises, and what of it does not keep the promise."""

    name: str
    statement: str
    violations: Callable[[Trial], Iterator[str]]


def differences(wanted: PyTree, actual: PyTree, *, tolerance: float) -> Iterator[str]:
    """A sentence for the array that differs most, if any differs too much.

    Of an array with large numbers the tolerance is a share of the largest: a memory
    of sums rounds as they do.
    """
    apart = {}
    for name, want, have in pairs(wanted, actual):
        if want.shape != have.shape:
            yield f"{name} has shape {have.shape}, not {want.shape}"
        elif not np.allclose(
            have, want, rtol=0, atol=tolerance * _size(want), equal_nan=True
        ):
            apart[name] = float(np.max(np.abs(have - want)))
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
    arrays: list[tuple[tuple, Array]] = jax.tree.leaves_with_path(tree)
    for path, leaf in arrays:
        yield jax.tree_util.keystr(path).lstrip("."), np.asarray(leaf)


def _size(array: np.ndarray) -> float:
    """Of the largest number, 1 at least."""
    return float(np.max(np.abs(array), initial=1.0, where=np.isfinite(array)))
