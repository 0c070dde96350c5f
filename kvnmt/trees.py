# SPDX-License-Identifier: Apache-2.0
"""The leaves of a tree, by names that people read."""

from typing import Any

import jax

from kvnmt.typing import PyTree


def path_name(path: tuple[Any, ...]) -> str:
    """A path as people read it, ``decoder/rounds/0/attention/address/W_query``."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def by_name(tree: PyTree) -> dict[str, Any]:
    """The leaves of a tree by the names of their paths, in their order."""
    return {path_name(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}
