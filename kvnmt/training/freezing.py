# SPDX-License-Identifier: Apache-2.0
"""Arrays that training leaves as they are, chosen by their names.

A name is that of a parameter, ``decoder/rounds/0/attention/address/W_query``, or of all
that begins with it and a slash, ``encoder``; ``*`` stands for anything.
"""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from kvnmt.errors import OptionError, unknown_name
from kvnmt.model.assembly import Params
from kvnmt.trees import by_name, path_name
from kvnmt.typing import PyTree

FROZEN = "training.frozen"


def held(params: PyTree, names: Sequence[str]) -> Any:
    """The parameters, without a gradient of those that are frozen."""
    return _changed(params, names, jax.lax.stop_gradient)


def moving(updates: PyTree, names: Sequence[str]) -> Any:
    """The updates, with none of what is frozen: weight decay needs no gradient."""
    return _changed(updates, names, jnp.zeros_like)


@partial(jax.jit, static_argnums=2)
def at_mean(params: PyTree, mean: PyTree, names: tuple[str, ...]) -> Any:
    """The parameters, with the frozen ones replaced by their running mean.

    The mean of frozen parameters does not change, and it is what translates. So all
    other parameters are trained with the mean, not with values that ran ahead of it.
    """
    means = by_name(mean)
    return jax.tree.map_with_path(
        # A copy: a step takes no array twice.
        lambda path, leaf: (
            jnp.copy(means[path_name(path)])
            if _is_frozen(path_name(path), names)
            else leaf
        ),
        params,
    )


def check_frozen(params: Params, names: Sequence[str], option: str = FROZEN) -> None:
    """Refuses names that no array has, and a model of which nothing is trained.

    An array without entries is none: of a model that is tied (`--model.tie all`) the
    source words are rows of ``target_embedding``.

    Raises:
        OptionError: There is such a name, or none is left to train.
    """
    arrays = [name for name, array in by_name(params).items() if array.size]
    for name in names:
        if not any(_is_of(array, name) for array in arrays):
            parts = {array.split("/")[0] for array in arrays}
            raise OptionError(f"{{0}}: {unknown_name('array', name, parts)}", option)
    matrix = "output/W/0", "target_embedding"  # one array where the layer is tied
    frozen = [_is_frozen(array, names) for array in matrix]
    if not params.output.W and frozen == [True, False]:
        raise OptionError(
            "{0}: the output layer is tied to target_embedding; name that, too.", option
        )
    if all(_is_frozen(array, names) for array in arrays):
        raise OptionError("{0} leaves nothing to train; name fewer arrays.", option)


def _changed(tree: PyTree, names: Sequence[str], change: Callable[..., Any]) -> Any:
    """A tree with its frozen arrays changed."""
    if not names:
        return tree
    return jax.tree.map_with_path(
        lambda path, leaf: change(leaf) if _is_frozen(path_name(path), names) else leaf,
        tree,
    )


def _is_frozen(array: str, names: Sequence[str]) -> bool:
    return any(_is_of(array, name) for name in names)


def _is_of(array: str, name: str) -> bool:
    return fnmatchcase(array, name) or fnmatchcase(array, f"{name}/*")
