# SPDX-License-Identifier: Apache-2.0
"""Checkpoints by orbax: written in the background, sealed, and checked when read.

A checkpoint is a folder named by its step, and there only once it is whole: arrays,
then the manifest with the digest of every file, then the name. What a kill leaves
behind is cleared when training opens the folder again; a checkpoint that is not what
was written is named, set aside, and the one before it is used.
"""

import errno
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import orbax.checkpoint as ocp

from kvnmt import devices
from kvnmt.errors import UserError
from kvnmt.models import Params
from kvnmt.training import manifest as manifests
from kvnmt.training.fingerprint import fingerprint
from kvnmt.training.manifest import DamagedError, Manifest
from kvnmt.training.orbax_arrays import Writer, abstract, reason, solid, whole
from kvnmt.training.step import TrainState
from kvnmt.typing import PyTree

DAMAGED = "damaged"  # beside the folder of the checkpoints
READS = 5  # times that a reader looks anew, while training removes what it found
_UNFINISHED = ".unfinished"  # behind the name of what is written or removed


class Keep(NamedTuple):
    """Which checkpoints are kept, beside the best."""

    last: int = 2  # so many of the newest
    every: int = 0  # those whose step is a multiple of it; 0: none


class Checkpoints:
    """The checkpoints of one run directory.

    A checkpoint holds the parameters that translate, the rest of the training state,
    and in its manifest a small record of progress.
    """

    def __init__(
        self,
        folder: Path,
        *,
        read_only: bool = False,
        keep: Keep = Keep(),
        tell: Callable[[str], None] = lambda message: None,
    ):
        """Opens the folder; creates it and clears unfinished ones unless ``read_only``.

        Args:
            folder: Of the checkpoints.
            read_only: Nothing is to be written.
            keep: Which stay when there are more.
            tell: Told of every checkpoint that cannot be used.
        """
        for name in ("absl", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # we tell ourselves
        self.folder, self.keep, self.tell = folder.absolute(), keep, tell
        self.writes = not read_only
        self.first = devices.part()[0] == 0  # of all processes: it tidies
        self._writer: Writer | None = None
        self._orbax = ocp.AsyncCheckpointer(ocp.CompositeCheckpointHandler())
        if self.writes and self.first:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._clear()
        devices.meet("cleared")

    def __enter__(self) -> "Checkpoints":
        """Returns itself."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Waits until everything is written."""
        try:
            self.wait()
        except UserError:
            if kind is None:
                raise  # else what ended the work is the thing to tell
        finally:
            self._orbax.close()

    def save(
        self, state: TrainState, progress: dict[str, Any], about: dict[str, Any]
    ) -> None:
        """Begins to write a checkpoint of this step.

        Args:
            state: What is saved; it may be donated once this returns.
            progress: What training goes on with, beside the arrays.
            about: What the arrays mean something with: vocabularies, versions.

        Raises:
            UserError: This checkpoint, or the one begun before, cannot be written.
        """
        arrays = {"params": state.served, "rest": state.rest}
        self._save(int(state.step), arrays, None, progress, about)

    def save_params(
        self, params: Params, progress: dict[str, Any], about: dict[str, Any]
    ) -> None:
        """Writes parameters alone, which cannot be trained on from there."""
        self._save(0, {"params": params}, 0.0, progress, about)

    def rate(self, step: int, score: float, progress: dict[str, Any]) -> None:
        """Adds what validation found to a checkpoint, and removes what is not kept."""
        self.wait()
        folder = self.folder / str(step)
        score = score if math.isfinite(score) else -math.inf  # NaN has no order

        def rate() -> None:
            with self._telling(step):
                before = manifests.read(folder)
                manifests.write(folder, replace(before, score=score, progress=progress))
            self._prune()

        devices.first_does(rate)

    def wait(self) -> None:
        """Returns once what was saved is on disk.

        Raises:
            UserError: It could not be written.
        """
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.join()  # by all: orbax writes for each of them

            def finish() -> None:
                with self._telling(writer.step):
                    writer.check()
                self._prune()

            devices.first_does(finish)
            with self._telling(writer.step):
                writer.check()

    def steps(self) -> list[int]:
        """What is kept, oldest first."""
        names = (path.name for path in self.folder.glob("*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def last_step(self) -> int | None:
        """The newest step, or None if nothing was saved."""
        return max(self.steps(), default=None)

    def best_step(self) -> int | None:
        """The step with the best score, or None if nothing was saved."""
        return next(iter(self._order("best")), None)

    def find(self, which: Literal["last", "best"]) -> Manifest:
        """The newest or the best checkpoint that is as it was written.

        Others are told of and, where this may write, set aside. Several processes
        all get the choice of the first.

        Raises:
            UserError: There is none.
        """
        for _ in range(READS):
            step = devices.agree(self._first_whole(which) if self.first else 0)
            if step < 0:
                break
            # A training may have removed it since then: then there is a better one.
            with suppress(DamagedError):
                return manifests.read(self.folder / str(step))
        raise UserError(f"'{self.folder}' holds no finished checkpoint.")

    def manifest(self, step: int) -> Manifest:
        """What is known of a checkpoint, its files checked.

        Raises:
            UserError: It is not as it was written.
        """
        folder = self.folder / str(step)
        try:
            return manifests.check(folder)
        except DamagedError as error:
            raise UserError(f"checkpoint '{folder}' is damaged: {error}.") from None

    def restore(self, like: TrainState, step: int) -> TrainState:
        """Reads a checkpoint into the shapes and shardings of ``like``.

        Raises:
            UserError: It holds parameters alone, or others than ``like``.
        """
        if not (self.folder / str(step) / "rest").exists():
            raise UserError(
                f"'{self.folder}' holds parameters alone; to train on from them, start "
                "another run with --training.warm-start."
            )
        found = self._read(step, {"params": like.served, "rest": like.rest})
        return like.restored(found["params"], found["rest"])

    def restore_params(self, like: Params, step: int) -> Params:
        """Reads the parameters of a checkpoint, the averaged ones where they are kept.

        Args:
            like: Arrays or abstract arrays with their shapes.
            step: Which checkpoint.
        """
        return self._read(step, {"params": like})["params"]

    def _save(
        self,
        step: int,
        arrays: dict[str, PyTree],
        score: float | None,
        progress: dict[str, Any],
        about: dict[str, Any],
    ) -> None:
        self.wait()
        devices.first_does(lambda: self._check_room(step, arrays))
        manifest = Manifest(step, fingerprint(arrays), about, progress, score)
        items = {k: ocp.args.StandardSave(solid(v)) for k, v in arrays.items()}
        folder = self.folder / f"{step}{_UNFINISHED}"
        with self._telling(step):
            self._orbax.save(folder, args=ocp.args.Composite(**items), force=True)
        self._writer = Writer(self._orbax, folder, manifest, self.first)

    def _check_room(self, step: int, arrays: dict[str, PyTree]) -> None:
        """Refuses what the disk cannot take before half of it is written."""
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(arrays))
        with self._telling(step):
            if shutil.disk_usage(self.folder).free < needed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextmanager
    def _telling(self, step: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self.first:
                self._clear()  # half a checkpoint takes room
            why = reason(error)
            raise UserError(
                f"the checkpoint of step {step} could not be written to "
                f"'{self.folder}': {why}; the ones before it are whole: mend the "
                "cause and go on with --resume."
            ) from error

    def _read(self, step: int, like: dict[str, PyTree]) -> dict[str, PyTree]:
        wanted = {k: ocp.args.StandardRestore(abstract(v)) for k, v in like.items()}
        folder = self.folder / str(step)
        try:
            found = self._orbax.restore(folder, args=ocp.args.Composite(**wanted))
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise UserError(
                f"checkpoint '{folder}' is not one of this model and optimiser: "
                f"{reason(error)}."
            ) from error
        return {name: whole(found[name], like[name]) for name in like}

    def _order(self, which: Literal["last", "best"]) -> list[int]:
        newest = self.steps()[::-1]
        if which == "last":
            return newest
        scores = {step: self._score(step) for step in newest}
        # Of equal scores the earlier is better; of those without one, the newest.
        rated = [step for step in newest if scores[step] is not None]
        rated.sort(key=lambda step: (-(scores[step] or 0.0), step))
        return rated + [step for step in newest if scores[step] is None]

    def _score(self, step: int) -> float | None:
        try:
            return manifests.read(self.folder / str(step)).score
        except DamagedError:
            return None

    def _first_whole(self, which: Literal["last", "best"]) -> int:
        # Those that cannot even say their score first: each is told of once.
        readable = [n for n in self.steps() if self._is_whole(n, manifests.read)]
        for step in self._order(which):
            if step in readable and self._is_whole(step, manifests.check):
                return step
        return -1

    def _is_whole(self, step: int, look: Callable[[Path], object]) -> bool:
        folder = self.folder / str(step)
        try:
            look(folder)
        except DamagedError as error:
            if folder.exists():  # else a training has just removed it
                self._set_aside(folder, str(error))
            return False
        return True

    def _set_aside(self, folder: Path, why: str) -> None:
        told = f"checkpoint '{folder}' is damaged ({why}) and is not used"
        if self.writes:
            aside = self.folder.parent / DAMAGED / folder.name
            shutil.rmtree(aside, ignore_errors=True)
            aside.parent.mkdir(exist_ok=True)
            folder.rename(aside)
            told += f"; it is in '{aside}' now"
        self.tell(f"{told}.")

    def _clear(self) -> None:
        for path in self.folder.iterdir():
            if _UNFINISHED in path.name:
                shutil.rmtree(path, ignore_errors=True)

    def _prune(self) -> None:
        steps, (last, every) = self.steps(), self.keep
        kept = {*steps[-last:], *self._order("best")[:1]}
        for step in steps:
            if step not in kept and not (every and step % every == 0):
                gone = self.folder / f"{step}{_UNFINISHED}"  # no checkpoint any more
                shutil.rmtree(
                    (self.folder / str(step)).rename(gone), ignore_errors=True
                )
