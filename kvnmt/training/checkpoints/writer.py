# SPDX-License-Identifier: Apache-2.0
"""Checkpoints by orbax: written in the background, sealed, and checked when read.

A checkpoint is a folder named by its step, and there only once it is whole: arrays,
then the manifest with the digest of every file, then the name. What a kill leaves
behind is cleared when training opens the folder again; a checkpoint that is not what
was written is named, set aside, and the one before it is used.
"""

import errno
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from kvnmt import devices
from kvnmt.errors import StoppedError
from kvnmt.model.assembly import Params
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.checkpoints.fingerprint import fingerprint
from kvnmt.training.checkpoints.folder import CheckpointFolder, Keep
from kvnmt.training.checkpoints.manifest import Manifest
from kvnmt.training.checkpoints.reader import CheckpointReader
from kvnmt.training.step import TrainState
from kvnmt.typing import PyTree


class Checkpoints(CheckpointReader):
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
        writes = not read_only and devices.part()[0] == 0  # the first tidies
        super().__init__(CheckpointFolder(folder.absolute(), writes, tell))
        self.keep = keep
        self._writing: int | None = None  # the step of the checkpoint begun last
        if writes:
            self.folder.path.mkdir(parents=True, exist_ok=True)
            self.folder.clear()
        devices.meet("cleared")

    def __enter__(self) -> "Checkpoints":
        """Returns itself."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Waits until everything is written; leaves no half checkpoint."""
        try:
            if kind in (None, StoppedError):
                self.wait()
            else:  # what ended the work is the thing to tell, and nobody may come
                self._arrays.wait()
        finally:
            self._arrays.close()
            self.folder.clear()

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

    def save_params(self, params: Params, about: dict[str, Any]) -> None:
        """Writes parameters alone, which cannot be trained on from there."""
        self._save(0, {"params": params}, 0.0, {}, about)

    def rate(self, step: int, score: float, progress: dict[str, Any]) -> None:
        """Adds what validation found to a checkpoint, and removes what is not kept."""
        self.wait()
        folder = self.folder.of(step)
        score = score if math.isfinite(score) else -math.inf  # NaN has no order

        def rate() -> None:
            with self.folder.explaining(step):
                before = manifests.read(folder)
                manifests.write(folder, replace(before, score=score, progress=progress))
            self.folder.prune(self.keep)

        devices.first_does(rate)

    def wait(self) -> None:
        """Returns once what was saved is on disk.

        Raises:
            UserError: It could not be written.
        """
        step, self._writing = self._writing, None
        if step is None:
            return
        error = self._arrays.wait()  # by all: orbax writes for each of them

        def finish() -> None:
            with self.folder.explaining(step):
                if error:
                    raise error
            self.folder.prune(self.keep)

        try:
            devices.first_does(finish)
        finally:
            with self.folder.explaining(step):
                if error:  # of this process, which tells more than that of the first
                    raise error

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
        with self.folder.explaining(step):
            folder = self.folder.unfinished(step)
            self._arrays.write(folder, arrays, then=lambda: self._name(manifest))
        self._writing = step

    def _check_room(self, step: int, arrays: dict[str, PyTree]) -> None:
        """Refuses what the disk cannot take before half of it is written."""
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(arrays))
        with self.folder.explaining(step):
            if shutil.disk_usage(self.folder.path).free < needed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _name(self, manifest: Manifest) -> None:
        """Seals a checkpoint whose arrays are on disk, and gives it its name."""
        if self.folder.writes:
            unfinished = self.folder.unfinished(manifest.step)
            files = manifests.digests(unfinished)
            manifests.write(unfinished, replace(manifest, files=files))
            self.folder.name(manifest.step)
