# SPDX-License-Identifier: Apache-2.0
"""Where the arrays of training lie on a mesh: one table of rules on their paths.

Rows of batches are split over the data axis. Where the mesh has a model axis of more
than one, what has an entry for each word of a vocabulary is split over it, and so are
its moments in the optimiser and its mean; all else is on every device.
"""

import re
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kvnmt.errors import OptionError
from kvnmt.training.losses import Loss
from kvnmt.trees import path_name
from kvnmt.typing import Array, PyTree

# Of the model itself, not within one of its parts: these call theirs as they like.
OWN = r"^(?!(.*/)?(encoder|decoder|target_context|readout|lexicon)/)(.*/)?"
RULES: tuple[tuple[str, PartitionSpec], ...] = (
    (rf"{OWN}(source|target)_embedding$", PartitionSpec("model", None)),
    (rf"{OWN}(output|auxiliary/\d+)/W/\d+$", PartitionSpec(None, "model")),
    (rf"{OWN}(output|auxiliary/\d+)/b$", PartitionSpec("model")),
)


def shardings(tree: PyTree, mesh: Mesh) -> PyTree:
    """Returns where every array of a tree lies.

    Raises:
        UserError: A vocabulary does not divide by the model axis.
    """

    def place(path: jax.tree_util.KeyPath, leaf: jax.Array) -> NamedSharding:
        split = _rule(path_name(path), leaf.shape, mesh.shape["model"])
        return NamedSharding(mesh, split)

    return jax.tree_util.tree_map_with_path(place, tree)


def over_rows(
    sums_of: Callable[..., tuple[Loss, PyTree]], mesh: Mesh
) -> Callable[..., tuple[Loss, PyTree]]:
    """``sums_of`` for rows that are split over the data axis, added up once.

    Args:
        sums_of: ``(params, arrays of rows ...) -> (sums, more sums)``.
        mesh: Whose data axis the rows are split over.
    """

    def sums_of_rows(params: PyTree, *batch: Array) -> tuple[Loss, PyTree]:
        sums, more = sums_of(params, *batch)
        # All of one type meet at once; two meetings can block a CPU's few threads.
        tokens = sums.tokens.astype(sums.total.dtype)  # exact up to 2^24
        sums, more = jax.lax.psum((replace(sums, tokens=tokens), more), "data")
        return replace(sums, tokens=sums.tokens.astype(jnp.int32)), more

    def split(params: PyTree, *batch: Array) -> tuple[Loss, PyTree]:
        return jax.shard_map(
            sums_of_rows,
            mesh=mesh,
            in_specs=(PartitionSpec(), *[PartitionSpec("data")] * len(batch)),
            out_specs=PartitionSpec(),
            axis_names={"data"},
            check_vma=False,
        )(params, *batch)

    return split


def _rule(name: str, shape: tuple[int, ...], parts: int) -> PartitionSpec:
    for pattern, spec in RULES:
        if parts > 1 and re.search(pattern, name):
            words = shape[spec.index("model")]
            if words % parts:
                raise OptionError(
                    f"a vocabulary of {words} entries cannot be split evenly over "
                    f"{parts} devices; make it {words - words % parts} with {{0}}, or "
                    "with {1} and {2} off, since trimming leaves what it finds; or "
                    "choose another {3}.",
                    *("data.vocabulary_size", "data.subwords", "data.trimmed"),
                    "training.model_axis",
                )
            return spec
    return PartitionSpec()
