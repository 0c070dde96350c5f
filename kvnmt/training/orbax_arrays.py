# SPDX-License-Identifier: Apache-2.0
"""What orbax writes and reads of a checkpoint, and the wait until it has written."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from kvnmt.training import manifest as manifests
from kvnmt.training.manifest import Manifest
from kvnmt.typing import PyTree


class Writer:
    """Waits for orbax in the background, then seals a checkpoint and names it."""

    def __init__(
        self, orbax: ocp.AsyncCheckpointer, folder: Path, about: Manifest, first: bool
    ):
        """Begins to wait.

        Args:
            orbax: Writes the arrays already.
            folder: Where, under a name that is the step and something behind it.
            about: The manifest, but for the digests of the files.
            first: Whether this process seals and names.
        """
        self.step, self._orbax, self._folder = about.step, orbax, folder
        self._about, self._first = about, first
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits until it has done all."""
        self._thread.join()

    def check(self) -> None:
        """Raises what went wrong."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._orbax.wait_until_finished()
            if self._first:
                files = manifests.digests(self._folder)
                manifests.write(self._folder, replace(self._about, files=files))
                self._folder.rename(self._folder.with_suffix(""))
        except Exception as error:  # raised by `check`
            self._error = error


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


def whole(found: PyTree, like: PyTree) -> PyTree:
    """What was left out by `solid`, put back."""

    def fill(leaf: Any, own: Any) -> Any:
        if own is not None or leaf is None:
            return own
        return jnp.zeros(leaf.shape, leaf.dtype)

    return jax.tree.map(fill, like, found, is_leaf=lambda leaf: leaf is None)


def abstract(tree: PyTree) -> PyTree:
    """Shapes, types and places of what is to be read; on one device by default."""
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    def describe(leaf: Any) -> jax.ShapeDtypeStruct:
        sharding = getattr(leaf, "sharding", None) or here
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(describe, solid(tree))
