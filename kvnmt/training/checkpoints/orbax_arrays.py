# SPDX-License-Identifier: Apache-2.0
"""What orbax writes and reads of a checkpoint, and the wait until it has written."""

import contextlib
import logging
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint import future as futures

from kvnmt.errors import UserError
from kvnmt.training.checkpoints.meetings import Meetings
from kvnmt.training.checkpoints.orbax_loop import wait_in_loops
from kvnmt.training.checkpoints.orbax_paths import find_in_any_folder
from kvnmt.trees import by_name, path_name
from kvnmt.typing import PyTree

PARTS = ("params", "rest")  # of a checkpoint
MERGED = "manifest.ocdbt"  # of a part, once what each process wrote is found in it
SHARED = 2**20  # bytes, at least, of what each of several copies writes of an array


class AllWritten(futures.Future):
    """Waits for every part of a checkpoint, and only then says what went wrong.

    Orbax itself stops waiting at the first part that fails, while others write on.
    """

    def __init__(self, parts: Sequence[futures.Future]):
        """Takes the parts."""
        self._parts = parts

    def result(self, timeout: float | None = None) -> None:
        """Returns once nothing is written any more; raises the first error."""
        errors = []
        for part in self._parts:
            try:
                part.result(timeout)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def cancel(self) -> None:
        """Asks every part to stop."""
        for part in self._parts:
            part.cancel()


class WholeHandler(ocp.CompositeCheckpointHandler):
    """Writes the parts of a checkpoint, and is at rest once it has failed, too."""

    async def async_save(
        self, directory: Any, args: ocp.args.Composite
    ) -> list[futures.Future]:
        """Begins to write; the future is done when all is written or has failed."""
        return [AllWritten(await super().async_save(directory, args) or [])]


@ocp.args.register_with_handler(WholeHandler, for_save=True, for_restore=True)
class WholeArgs(ocp.args.Composite):
    """The parts by name; orbax wants arguments of its own for each handler."""


class ArrayFiles:
    """Writes arrays in the background, a checkpoint at a time, and reads them."""

    def __init__(self):
        """Sets orbax up; its log messages are not shown, since our errors tell."""
        for name in ("absl", "asyncio"):
            logging.getLogger(name).addFilter(_not_of_orbax)  # the same one: added once
        wait_in_loops()
        find_in_any_folder()
        # Folders are made at once, so that none appears after a failure was cleared.
        self._meetings = Meetings()
        options = ocp.AsyncOptions(
            create_directories_asynchronously=False,
            barrier_sync_fn=self._meetings if jax.process_count() > 1 else None,
        )
        parts = WholeHandler(
            composite_options=ocp.CompositeOptions(async_options=options),
            handler_registry=_registry(),
        )
        self._orbax = ocp.AsyncCheckpointer(parts, async_options=options)
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def write(
        self, folder: Path, arrays: dict[str, PyTree], then: Callable[[], None]
    ) -> None:
        """Begins to write; the arrays may be donated once this returns.

        Args:
            folder: Where.
            arrays: Trees of arrays by the name of their folder below it.
            then: Called in the background once all are on disk.
        """
        items = {k: ocp.args.PyTreeSave(solid(v)) for k, v in arrays.items()}
        try:
            self._orbax.save(folder, args=ocp.args.Composite(**items), force=True)
        except Exception:
            self._meetings.fail()
            raise

        def finish() -> None:
            try:
                self._orbax.wait_until_finished()
                if jax.process_index() == 0:  # which merges
                    _check_merged(folder / name for name in arrays)
                then()
            except Exception as error:  # returned by `wait`
                self._error = error
                self._meetings.fail()

        self._thread = threading.Thread(target=finish, daemon=True)
        self._thread.start()

    def wait(self) -> Exception | None:
        """Returns once nothing is written any more, with what went wrong."""
        if self._thread is not None:
            self._thread.join()
        error, self._thread, self._error = self._error, None, None
        return error

    def read(self, folder: Path, like: dict[str, PyTree]) -> dict[str, PyTree]:
        """Reads arrays of a checkpoint into the shapes and places of others.

        Raises:
            UserError: They are not there.
        """
        wanted = {name: abstract(tree) for name, tree in like.items()}
        try:
            items = {
                name: ocp.args.StandardRestore(as_stored(folder / name, tree))
                for name, tree in wanted.items()
            }
            stored = self._orbax.restore(folder, args=ocp.args.Composite(**items))
        except Exception as error:  # of any kind: the files may hold anything
            raise UserError(
                f"checkpoint '{folder}' is not one of this model and optimiser: "
                f"{reason(error)}."
            ) from error
        return {name: as_wanted(stored[name], like[name]) for name in like}

    def close(self) -> None:
        """Lets orbax go. Of a checkpoint that failed it tells again, after `wait`."""
        with contextlib.suppress(Exception):
            self._orbax.close()


def _check_merged(parts: Iterable[Path]) -> None:
    """Refuses what orbax has left half done; it says nothing."""
    for part in parts:
        if not (part / MERGED).exists():
            raise OSError(f"orbax wrote no {MERGED} of {part.name}")


def reason(error: BaseException) -> str:
    """Why something cannot be written or read, in a few words."""
    text = " ".join(str(error).split())
    for known in ("No space left on device", "Disk quota exceeded", "Read-only file"):
        if known.lower() in text.lower():
            return known
    return text[:200] or type(error).__name__


def solid(tree: PyTree) -> PyTree:
    """The tree without arrays of no entry, which orbax refuses to write."""
    return jax.tree.map(lambda leaf: leaf if leaf.size else None, tree)


def abstract(tree: PyTree) -> PyTree:
    """Shapes, types and places of what is to be read.

    By default that is a device of this process: it owns no other's.
    """
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])

    def describe(leaf: Any) -> jax.ShapeDtypeStruct:
        sharding = getattr(leaf, "sharding", None) or here
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(describe, solid(tree))


def as_stored(folder: Path, wanted: PyTree) -> PyTree:
    """The wanted arrays of a folder, in the tree in which they are stored.

    Orbax restores only the stored tree, including fields without an array. Here only
    the arrays must be the same: a class may have gained or lost a field that is None.

    Args:
        folder: Of one tree.
        wanted: The arrays to read.

    Raises:
        ValueError: Other arrays lie there; one that differs is named.
    """
    place: Any = folder  # typed as orbax's own kind of path
    metadata: Any = ocp.StandardCheckpointHandler().metadata(place)
    stored, ours = by_name(metadata.tree), by_name(wanted)
    for name, leaf in stored.items():
        if name not in ours:
            raise ValueError(f"it holds '{name}', which this one has not")
        there, here = tuple(getattr(leaf, "shape", ())), ours[name].shape
        if there != here:  # told before anything of that size is read
            raise ValueError(f"'{name}' has the shape {there} there, {here} here")
    for name in ours:
        if name not in stored:
            raise ValueError(f"it lacks '{name}'")
    structure = jax.tree.structure(metadata.tree)
    return jax.tree.unflatten(structure, [ours[name] for name in stored])


def as_wanted(stored: PyTree, like: PyTree) -> PyTree:
    """Stored arrays in the tree that was asked for; `solid` left some out."""
    arrays = by_name(stored)

    def find(path: Any, leaf: Any) -> Any:
        if leaf.size:
            return arrays[path_name(path)]
        nothing = jnp.zeros(leaf.shape, leaf.dtype)
        place = getattr(leaf, "sharding", None)  # a step takes it from where it lies
        return nothing if place is None else jax.device_put(nothing, place)

    return jax.tree.map_with_path(find, like)


def _registry() -> ocp.handlers.CheckpointHandlerRegistry:
    """Who writes and who reads the arrays of each part.

    Arrays are written in one transaction, and no file beside it: were there several
    writes at once, orbax would not wait for the others once one has failed.
    """
    arrays = ocp.type_handlers.ArrayHandler(
        array_metadata_store=None,
        min_slice_bytes_for_replica_parallel=SHARED,
    )
    types = ocp.type_handlers.create_type_handler_registry((jax.Array, arrays))
    registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
    for name in PARTS:
        # Without a limit on the bytes in flight orbax makes it a transaction.
        writer = ocp.PyTreeCheckpointHandler(type_handler_registry=types)
        registry.add(name, ocp.args.PyTreeSave, writer)
        registry.add(name, ocp.args.StandardRestore, ocp.StandardCheckpointHandler())
    return registry


def _not_of_orbax(record: logging.LogRecord) -> bool:
    """Whether a log message comes from elsewhere: our errors say what orbax's say."""
    error = record.exc_info[1] if record.exc_info else None
    frames = traceback.extract_tb(error.__traceback__ if error else None)
    return not any(
        "/orbax/" in path for path in (record.pathname, *(f.filename for f in frames))
    )
