# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as they are read: found, checked, and put into arrays."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from kvnmt import devices
from kvnmt.errors import OptionError, UserError
from kvnmt.files import DamagedError
from kvnmt.model.assembly import Params
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.checkpoints.folder import LOOKS, REST, CheckpointFolder, Which
from kvnmt.training.checkpoints.manifest import Manifest
from kvnmt.training.checkpoints.orbax_arrays import ArrayFiles
from kvnmt.training.step import TrainState

T = TypeVar("T")


class CheckpointReader:
    """Reads the checkpoints of one run directory."""

    def __init__(self, folder: CheckpointFolder):
        """Takes the folder, which need not exist."""
        self.folder = folder
        self._arrays = ArrayFiles()

    def find(self, which: Which) -> Manifest:
        """The newest or the best checkpoint that is as it was written.

        Others are told of and, where this may write, set aside. Several processes
        all get the choice of the first.

        Raises:
            UserError: There is none, this process does not find the one chosen as it
                was written, or what `CheckpointFolder.first_whole` raises.
        """
        were_there = bool(self.folder.steps())
        manifest = devices.first_does(lambda: self.folder.first_whole(which))
        step = devices.agree(-1 if manifest is None else manifest.step)
        if step < 0 and were_there:
            raise UserError(
                f"'{self.folder.path.parent}' has no checkpoint left that is whole; "
                "if it was copied, copy it again, else begin another run."
            )
        if step < 0:
            raise OptionError(
                f"'{self.folder.path}' holds no finished checkpoint; go on training "
                "with {0} until one is saved.",
                "resume",
            )
        with self._telling(step):
            return manifest or manifests.read(self.folder.of(step))

    def take(
        self, choose: Callable[[], Sequence[int]], read: Callable[[Sequence[int]], T]
    ) -> T:
        """Reads chosen checkpoints; chooses again if one is removed meanwhile.

        A training may remove a checkpoint while it is read, so that a part is missing.

        Args:
            choose: Finds steps.
            read: Reads their checkpoints.

        Raises:
            UserError: What either raises of checkpoints that stay; none stays.
        """
        for _ in range(LOOKS):
            steps, result, failure = list[int](), [], None
            try:
                steps.extend(choose())
                result.append(read(steps))
            except UserError as error:
                failure = error
            there = all(self.folder.of(step).exists() for step in steps)
            if not devices.agree(there):
                continue
            if failure is not None:
                raise failure
            return result[0]
        raise UserError(
            f"the checkpoints in '{self.folder.path}' are removed faster than they are "
            "read; wait until the training has ended."
        )

    def manifest(self, step: int) -> Manifest:
        """What is known of a checkpoint, its files checked.

        Raises:
            UserError: It is not as it was written.
        """
        with self._telling(step):
            manifest = manifests.read(self.folder.of(step))
            self.folder.check(manifest)
            return manifest

    def restore(self, like: TrainState, step: int) -> TrainState:
        """Reads a checkpoint into the shapes and shardings of ``like``.

        Raises:
            UserError: It holds parameters alone, or others than ``like``.
        """
        if not (self.folder.of(step) / REST).exists():
            raise parameters_alone(self.folder.path)
        wanted = {"params": like.served, "rest": like.rest}
        arrays = self._arrays.read(self.folder.of(step), wanted)
        return like.restored(arrays["params"], arrays["rest"])

    def restore_params(self, like: Params, step: int) -> Params:
        """Reads the parameters of a checkpoint, the averaged ones where they are kept.

        Args:
            like: Arrays or abstract arrays with their shapes.
            step: Which checkpoint.
        """
        return self._arrays.read(self.folder.of(step), {"params": like})["params"]

    @contextmanager
    def _telling(self, step: int) -> Iterator[None]:
        """Within it damage to a checkpoint is told as one that a user can mend."""
        try:
            yield
        except DamagedError as error:
            raise UserError(
                f"checkpoint '{self.folder.of(step)}' is damaged: {error}; name "
                "another one."
            ) from None


def check_goes_on(folder: CheckpointFolder) -> None:
    """Refuses a run whose last checkpoint no training wrote, before text is read.

    Raises:
        OptionError: It holds parameters alone, as an average does.
    """
    for step in folder.steps()[-1:]:
        with suppress(DamagedError):  # another one may be whole
            files = manifests.read(folder.of(step)).files or {REST: ""}
            if not any(name.startswith(REST) for name in files):
                raise parameters_alone(folder.path)


def parameters_alone(folder: Path) -> OptionError:
    """Builds the error for a folder of checkpoints that no training can go on from."""
    return OptionError(
        f"'{folder}' holds parameters alone; to train on from them, start another run "
        "with {0}.",
        "training.warm_start",
    )
