# SPDX-License-Identifier: Apache-2.0
"""Checks of a run directory before it is read, since it may come from anybody.

It is data: nothing in it is executed, and no link may lead out of it. The sizes that
its config and its checkpoints state are compared before arrays of such sizes are made.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from kvnmt.errors import UserError
from kvnmt.typing import PyTree

TIMES = 16  # that files may be larger or smaller than the arrays of the model
SLACK = 2**26  # bytes by which they may be in any case


def check_links(folder: Path) -> None:
    """Refuses a run directory with a link that leads out of it.

    Raises:
        UserError: There is one; it is named.
    """
    home = Path(os.path.realpath(folder))
    for path in _below(folder):
        if path.is_symlink() and home not in Path(os.path.realpath(path)).parents:
            raise UserError(
                f"'{path}' is a link that leads out of the run directory; put there "
                "what it leads to, if you trust it."
            )


def check_sizes(like: PyTree, folder: Path) -> None:
    """Refuses checkpoints that cannot be those of a model, by their sizes.

    Arrays in files are hardly compressed: a checkpoint far larger or smaller than the
    parameters was made to fill a memory or to keep a processor busy. If one is too
    small but another fits, it was not copied completely; reading it reports that.

    Args:
        like: Abstract arrays of the parameters.
        folder: Of the checkpoints of a run.

    Raises:
        UserError: One is far too large, or all are far too small.
    """
    fits, small = False, None
    needed = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(like))
    for checkpoint in folder.glob("*"):
        if not checkpoint.name.isdecimal():
            continue
        stored = sum(map(_size, _below(checkpoint)))
        if not checkpoint.exists():  # a training has removed it meanwhile
            continue
        if stored > TIMES * needed + SLACK:
            raise _misfit(checkpoint, stored, needed)
        if needed > TIMES * stored + SLACK:
            small = small or (checkpoint, stored)
        else:
            fits = True
    if small and not fits:
        raise _misfit(*small, needed)


def check_finite(params: PyTree, checkpoint: Path) -> None:
    """Refuses parameters with which no translation has a probability.

    Args:
        params: The arrays.
        checkpoint: What they were read from.

    Raises:
        UserError: Some number is not finite.
    """
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
        raise UserError(
            f"checkpoint '{checkpoint}' has parameters that are not finite, with which "
            "nothing can be translated; take another run, or train it again."
        )


def _misfit(checkpoint: Path, stored: int, needed: int) -> UserError:
    return UserError(
        f"checkpoint '{checkpoint}' has {stored:,} bytes of files, but the model of "
        f"the config {needed:,} bytes of parameters: they do not belong together; copy "
        "the run again, or take another."
    )


def _below(folder: Path) -> Iterator[Path]:
    """Everything in a folder; what a training removes meanwhile is left out."""
    for base, folders, files in os.walk(folder):
        yield from (Path(base, name) for name in (*folders, *files))


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        status = path.lstat()
        return status.st_size if stat.S_ISREG(status.st_mode) else 0
    return 0
