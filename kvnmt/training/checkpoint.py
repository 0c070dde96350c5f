# SPDX-License-Identifier: Apache-2.0
"""Checkpoints by orbax: the best and the last of a run, written in the background."""

import logging
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
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

    def __init__(self, folder: Path, *, read_only: bool = False, keep_last: int = 1):
        """Opens the folder; creates it unless ``read_only``.

        Args:
            folder: Of the checkpoints.
            read_only: Nothing is to be written.
            keep_last: How many of the newest are kept, beside the best.
        """
        logging.getLogger("absl").setLevel(logging.ERROR)
        best = keep.BestN(get_metric_fn=_score, n=1)
        self.folder = folder
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
            options=ocp.CheckpointManagerOptions(
                best_fn=_score,
                preservation_policy=keep.AnyPreservationPolicy(
                    [keep.LatestN(n=keep_last), best]
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
                params=ocp.args.StandardSave(_solid(state.params)),
                rest=ocp.args.StandardSave(_solid(_rest(state))),
                progress=ocp.args.JsonSave(progress),
            ),
            metrics={"score": score, "step": int(state.step)},
            force=True,
        )

    def save_params(self, params: Params, step: int, progress: dict[str, Any]) -> None:
        """Writes parameters alone, which cannot be trained on from there."""
        self._manager.save(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(_solid(params)),
                progress=ocp.args.JsonSave(progress),
            ),
            metrics={"score": 0.0, "step": step},
            force=True,
        )

    def wait(self) -> None:
        """Returns once what was saved is on disk."""
        self._manager.wait_until_finished()

    def last_step(self) -> int | None:
        """The newest step, or None if nothing was saved."""
        return self._manager.latest_step()

    def steps(self) -> list[int]:
        """What is kept, oldest first."""
        return sorted(self._manager.all_steps())

    def best_step(self) -> int | None:
        """The step with the best score, or None if nothing was saved."""
        return self._manager.best_step()

    def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """Reads the newest checkpoint into the shapes and shardings of ``like``.

        Raises:
            UserError: Nothing was saved, or parameters alone.
        """
        step = self._step(self.last_step())
        if not (self.folder / str(step) / "rest").exists():
            raise UserError(
                f"'{self.folder}' holds parameters alone; to train on from them, start "
                "another run with --training.warm-start."
            )
        found: Any = self._manager.restore(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(_abstract(like.params)),
                rest=ocp.args.StandardRestore(_abstract(_rest(like))),
                progress=ocp.args.JsonRestore(),
            ),
        )
        params, rest = (
            _whole(found.params, like.params),
            _whole(found.rest, _rest(like)),
        )
        return TrainState(rest["step"], params, rest["optimizer"]), found.progress

    def restore_params(self, like: Params, step: int | None = None) -> Params:
        """Reads the parameters of a checkpoint.

        Args:
            like: Arrays or abstract arrays with their shapes.
            step: Which checkpoint; None: the best.

        Raises:
            UserError: Nothing was saved.
        """
        step = self._step(self.best_step() if step is None else step)
        restore = ocp.args.StandardRestore(_abstract(like))
        found: Any = self._manager.restore(
            step, args=ocp.args.Composite(params=restore)
        )
        return _whole(found.params, like)

    def progress(self, step: int | None = None) -> dict[str, Any]:
        """Reads what was saved beside a checkpoint; of the best by default.

        Raises:
            UserError: Nothing was saved.
        """
        step = self._step(self.best_step() if step is None else step)
        kept = ocp.args.Composite(progress=ocp.args.JsonRestore())
        found: Any = self._manager.restore(step, args=kept)
        return found.progress

    def _step(self, step: int | None) -> int:
        if step is None:
            raise UserError(f"'{self.folder}' holds no finished checkpoint.")
        return step


def _score(metrics: PyTree) -> Any:
    return metrics["score"], -metrics["step"]  # of equal scores the earlier is better


def _rest(state: TrainState) -> dict[str, PyTree]:
    return {"step": state.step, "optimizer": state.optimizer}


def _solid(tree: PyTree) -> PyTree:
    """The tree without arrays of no entry, which orbax refuses to write."""
    return jax.tree.map(lambda leaf: leaf if leaf.size else None, tree)


def _whole(found: PyTree, like: PyTree) -> PyTree:
    """What was left out by `_solid`, put back."""

    def fill(leaf: Any, own: Any) -> Any:
        if own is not None or leaf is None:
            return own
        return jnp.zeros(leaf.shape, leaf.dtype)

    return jax.tree.map(fill, like, found, is_leaf=lambda leaf: leaf is None)


def _abstract(tree: PyTree) -> PyTree:
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    def describe(leaf: Any) -> jax.ShapeDtypeStruct:
        sharding = getattr(leaf, "sharding", None) or here
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(describe, _solid(tree))
