# SPDX-License-Identifier: Apache-2.0
"""Where the arrays of training lie on a mesh: one table of rules on their paths.

Rows of batches are split over the data axis. Where the mesh has a model axis of more
than one, what has an entry for each word of a vocabulary is split over it, and so are
its moments in the optimiser and its mean; all else is on every device.
"""

import re

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kvnmt.errors import UserError
from kvnmt.typing import PyTree

RULES: tuple[tuple[str, PartitionSpec], ...] = (
    (r"(^|/)(source|target)_embedding$", PartitionSpec("model", None)),
    (r"(^|/)(output|auxiliary/\d+)/W/\d+$", PartitionSpec(None, "model")),
    (r"(^|/)(output|auxiliary/\d+)/b$", PartitionSpec("model")),
)


def shardings(tree: PyTree, mesh: Mesh) -> PyTree:
    """Returns where every array of a tree lies.

    Raises:
        UserError: A vocabulary does not divide by the model axis.
    """

    def place(path: jax.tree_util.KeyPath, leaf: jax.Array) -> NamedSharding:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return NamedSharding(mesh, _rule(name, leaf.shape, mesh.shape["model"]))

    return jax.tree_util.tree_map_with_path(place, tree)


def _rule(name: str, shape: tuple[int, ...], parts: int) -> PartitionSpec:
    for pattern, spec in RULES:
        if parts > 1 and re.search(pattern, name):
            words = shape[spec.index("model")]
            if words % parts:
                raise UserError(
                    f"a vocabulary of {words} entries cannot be split evenly over "
                    f"{parts} devices; make it {words - words % parts} with "
                    "--data.vocabulary-size or --data.subwords, or choose another "
                    "--training.model-axis."
                )
            return spec
    return PartitionSpec()
