# SPDX-License-Identifier: Apache-2.0
"""Checkpoints by orbax: the best and the last of a run, written in the background."""

import logging
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as keep

from kvnmt.errors import UserError
from kvnmt.models import Params
from kvnmt.training.step import TrainState
from kvnmt.typing import PyTree


class Checkpoints:
    """The checkpoints of one run directory.

    A checkpoint holds the parameters, the rest of the training state, and a small
    JSON record of progress. It becomes visible only once it is whole.
    """

    def __init__(self, folder: Path, *, read_only: bool = False):
        """Opens the folder; creates it unless ``read_only``."""
        logging.getLogger("absl").setLevel(logging.ERROR)
        best = keep.BestN(get_metric_fn=_score, n=1)
        self.folder = folder
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
            options=ocp.CheckpointManagerOptions(
                best_fn=_score,
                preservation_policy=keep.AnyPreservationPolicy(
                    [keep.LatestN(n=1), best]
                ),
                create=not read_only,
                read_only=read_only,
            ),
        )

    def __enter__(self) -> "Checkpoints":
        """Returns itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Waits until everything is written."""
        self._manager.close()

    def save(self, state: TrainState, score: float, progress: dict[str, Any]) -> None:
        """Writes a checkpoint of this step; a higher score is better."""
        self._manager.save(
            int(state.step),
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(state.params),
                rest=ocp.args.StandardSave(_rest(state)),
                progress=ocp.args.JsonSave(progress),
            ),
            metrics={"score": score, "step": int(state.step)},
            force=True,
        )

    def wait(self) -> None:
        """Returns once what was saved is on disk."""
        self._manager.wait_until_finished()

    def last_step(self) -> int | None:
        """The newest step, or None if nothing was saved."""
        return self._manager.latest_step()

    def best_step(self) -> int | None:
        """The step with the best score, or None if nothing was saved."""
        return self._manager.best_step()

    def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """Reads the newest checkpoint into the shapes and shardings of ``like``.

        Raises:
            UserError: Nothing was saved.
        """
        step = self._step(self.last_step())
        found: Any = self._manager.restore(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(_abstract(like.params)),
                rest=ocp.args.StandardRestore(_abstract(_rest(like))),
                progress=ocp.args.JsonRestore(),
            ),
        )
        state = TrainState(found.rest["step"], found.params, found.rest["optimizer"])
        return state, found.progress

    def restore_params(self, like: Params) -> Params:
        """Reads the parameters of the best checkpoint.

        Args:
            like: Arrays or abstract arrays with their shapes.

        Raises:
            UserError: Nothing was saved.
        """
        step = self._step(self.best_step())
        restore = ocp.args.StandardRestore(_abstract(like))
        found: Any = self._manager.restore(
            step, args=ocp.args.Composite(params=restore)
        )
        return found.params

    def _step(self, step: int | None) -> int:
        if step is None:
            raise UserError(f"'{self.folder}' holds no finished checkpoint.")
        return step


def _score(metrics: PyTree) -> Any:
    return metrics["score"], -metrics["step"]  # of equal scores the earlier is better


def _rest(state: TrainState) -> dict[str, PyTree]:
    return {"step": state.step, "optimizer": state.optimizer}


def _abstract(tree: PyTree) -> PyTree:
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    def describe(leaf: Any) -> jax.ShapeDtypeStruct:
        sharding = getattr(leaf, "sharding", None) or here
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(describe, tree)
