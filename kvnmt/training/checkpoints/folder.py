# SPDX-License-Identifier: Apache-2.0
"""The folder of the checkpoints of a run: which there are, which are whole, which stay.

A checkpoint is a folder named by its step, and it has that name only once it is
whole. What is being written or removed has ``.unfinished`` behind the step.
"""

import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from kvnmt.errors import OptionError, UserError, reason_of
from kvnmt.files import DamagedError, locked
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.checkpoints.manifest import Manifest, UnreadableError
from kvnmt.training.checkpoints.orbax_arrays import PARTS, reason

DAMAGED = "damaged"  # beside the folder of the checkpoints
GLANCES, GLANCE = 2, 0.05  # more tries to lock it, and seconds between them
LOOKS = 5  # times that a reader looks, while training removes what was there
UNFINISHED = ".unfinished"
REST = PARTS[1]  # what a training keeps beside the parameters

Which = Literal["last", "best"]


class Keep(NamedTuple):
    """Which checkpoints are kept."""

    last: int = 2  # so many of the newest, and of the newest that have a score
    every: int = 0  # the first at or after each multiple of it; 0: none
    best: int = 1  # so many of those that have a score; none has: the newest


class CheckpointFolder:
    """Finds checkpoints, sets damaged ones aside, and removes what is not kept."""

    def __init__(self, path: Path, writes: bool, tell: Callable[[str], None]):
        """Takes what it works with; touches nothing.

        Args:
            path: Of the folder.
            writes: Whether this process changes what is in it.
            tell: Told of every checkpoint that cannot be used.
        """
        self.path, self.writes, self.tell = path, writes, tell
        self._stayed = set[int]()  # damaged, and could not be set aside

    def of(self, step: int) -> Path:
        """Where the checkpoint of a step is."""
        return self.path / str(step)

    def unfinished(self, step: int) -> Path:
        """Where the checkpoint of a step is, before it is whole."""
        return self.path / f"{step}{UNFINISHED}"

    def steps(self) -> list[int]:
        """What is kept, oldest first."""
        names = (path.name for path in self.path.glob("*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def best_steps(self, count: int) -> list[int]:
        """So many steps, if there are, the one with the best score first."""
        return best_of(self._manifests(lambda step, damage: None), count)

    def last_steps(self, count: int) -> list[int]:
        """So many of the newest with a score, oldest first; where none has one: any."""
        return newest_of(self._manifests(lambda step, damage: None), count)

    def first_whole(self, which: Which) -> Manifest | None:
        """The newest or the best checkpoint that is as it was written; None: none is.

        Others are told of and, where this may write, set aside.

        Raises:
            UserError: One that is not known to be damaged cannot be read, and a
                training would go on from another.
        """
        for _ in range(LOOKS):
            before = self.steps()
            found = self._manifests(self._set_aside)
            best = rated(found) if which == "best" else []
            for manifest in best + [m for m in found if m not in best]:
                try:
                    self.check(manifest)
                    return manifest
                except DamagedError as damage:
                    self._set_aside(manifest.step, damage)
            if self.steps() == before:
                break  # else a training wrote others meanwhile: look again
        return None

    def check(self, manifest: Manifest) -> None:
        """Compares files, of a reader those that it reads, with what was written.

        Raises:
            DamagedError: A file is missing or is not what was written; it is named.
        """
        left_out = () if self.writes else (REST,)
        manifests.check(self.of(manifest.step), manifest, left_out)

    def clear(self) -> None:
        """Removes what is unfinished, if this process may."""
        for path in list(self.path.glob(f"*{UNFINISHED}*")) if self.writes else ():
            shutil.rmtree(path, ignore_errors=True)

    def name(self, step: int) -> None:
        """Gives a checkpoint that is whole its name.

        What has that name is damaged, and could not be set aside: it is removed.
        """
        with suppress(FileNotFoundError):
            gone = self.of(step).rename(self.path / f"{DAMAGED}-{step}{UNFINISHED}")
            shutil.rmtree(gone, ignore_errors=True)
        self.unfinished(step).rename(self.of(step))
        self._stayed.discard(step)

    @contextmanager
    def explaining(self, step: int) -> Iterator[None]:
        """Within it an error is told as one of writing a checkpoint; clears up."""
        try:
            yield
        except Exception as error:
            self.clear()  # half a checkpoint takes room
            raise OptionError(
                f"the checkpoint of step {step} could not be written to "
                f"'{self.path}': {reason(error)}; the ones before it are whole: mend "
                "the cause and go on with {0}.",
                "resume",
            ) from error

    def prune(self, keep: Keep) -> None:
        """Removes what is not to be kept; what cannot go is told of.

        The best is kept, and so is what cannot be read: it may be the best. What is
        known to be damaged, and stayed, takes the place of no other.
        """
        steps, unread = sorted({*self.steps()} - self._stayed), list[int]()
        found = self._manifests(lambda step, damage: unread.append(step))
        readable = [m for m in found if m.step not in self._stayed]
        scored = {*best_of(readable, keep.best), *newest_of(readable, keep.last)}
        kept = {*steps[-keep.last :], *scored, *unread, *firsts(steps, keep.every)}
        for manifest in readable:  # for good, though a run that went on asks for others
            every = keep_every(manifest)
            kept |= {manifest.step} & firsts(steps, every)
        for step in steps:
            if step not in kept:
                _remove(self.of(step), self.unfinished(step), self.tell)

    def _manifests(
        self, on_damage: Callable[[int, DamagedError], None]
    ) -> list[Manifest]:
        """Those that can be read, each read once, newest first."""
        readable = []
        for step in reversed(self.steps()):
            try:
                readable.append(manifests.read(self.of(step)))
            except DamagedError as damage:
                on_damage(step, damage)
        return readable

    def _set_aside(self, step: int, damage: DamagedError) -> None:
        folder = self.of(step)
        if not folder.exists():
            return  # a training has just removed it
        if self.writes and isinstance(damage, UnreadableError):
            raise UserError(
                f"checkpoint '{folder}' cannot be gone on from ({damage}); mend that "
                "and try again, or move the checkpoint away to go on from another."
            )
        message = f"checkpoint '{folder}' is damaged ({damage}) and is not used"
        if self.writes:
            aside = self.path.parent / DAMAGED / folder.name
            shutil.rmtree(aside, ignore_errors=True)
            self._stayed.add(step)
            with suppress(OSError):  # else it stays where it is
                aside.parent.mkdir(exist_ok=True)
                folder.rename(aside)
                self._stayed.discard(step)
                message += f"; it is in '{aside}' now"
        self.tell(f"{message}.")


def _remove(folder: Path, unfinished: Path, tell: Callable[[str], None]) -> None:
    """Removes a checkpoint, which is unfinished on its way."""
    try:
        gone = folder.rename(unfinished)
    except OSError as error:
        tell(f"checkpoint '{folder}' cannot be removed: {reason_of(error)}; it stays.")
    else:
        shutil.rmtree(gone, ignore_errors=True)


def rated(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Those with a finite score, the best first; of equal ones the earlier."""
    some = [m for m in manifests if m.score is not None and math.isfinite(m.score)]
    return sorted(some, key=lambda m: (-(m.score or 0.0), m.step))


def best_of(newest_first: Sequence[Manifest], count: int) -> list[int]:
    """The steps with the best scores; where none has one, the newest alone."""
    wanted = rated(newest_first) or newest_first[:1]
    return [manifest.step for manifest in wanted[:count]]


def newest_of(newest_first: Sequence[Manifest], count: int) -> list[int]:
    """The last steps with a score, oldest first; where none has one, the last of all.

    What is saved between validations has none.
    """
    wanted = rated(newest_first) or newest_first
    return sorted(manifest.step for manifest in wanted)[-count:]


def firsts(steps: Iterable[int], every: int) -> set[int]:
    """Of steps that rise, the first at or after each multiple; a save may wait."""
    firsts: dict[int, int] = {}
    for step in steps if every else ():
        firsts.setdefault(step // every, step)
    return {step for place, step in firsts.items() if place}


def keep_every(manifest: Manifest) -> int:
    """What the config said of `Keep.every` when a checkpoint was saved; 0: nothing."""
    config = manifest.about.get("config") or {}
    return int(config.get("training", {}).get("keep_every", 0))


@contextmanager
def only_writer(folder: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Keeps a second training out of a run directory while it is open.

    Args:
        folder: Run directory.
        tell: Told if the file system cannot lock, so that none is kept out.

    Raises:
        UserError: There is a training already, or the folder cannot be written.
    """
    with ExitStack() as stack:
        try:
            locks = _lock(folder / "lock", stack)
        except BlockingIOError:
            raise UserError(
                f"another training writes to '{folder}'; wait until it has ended, or "
                "choose another folder."
            ) from None
        except OSError as error:
            why = reason_of(error)
            raise UserError(f"'{folder}' cannot be written: {why}.") from None
        if not locks:
            tell(
                f"the file system of '{folder}' cannot lock: a second training in this "
                "folder is not kept out."
            )
        yield


def _lock(path: Path, stack: ExitStack) -> bool:
    """Takes a lock for a stack; somebody may hold it for a moment, to look."""
    for _ in range(GLANCES):
        with suppress(BlockingIOError):
            return stack.enter_context(locked(path, wait=False))
        time.sleep(GLANCE)
    return stack.enter_context(locked(path, wait=False))
