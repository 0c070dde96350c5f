# SPDX-License-Identifier: Apache-2.0
"""How a run directory is made, so that half a run is none."""

from importlib.metadata import version
from pathlib import Path

import jax

from kvnmt.data.vocabularies import Vocabularies, save_vocabularies
from kvnmt.errors import UserError
from kvnmt.files import write_json
from kvnmt.runs.config import Experiment, to_plain
from kvnmt.training.checkpoint import Checkpoints


def check_free(folder: Path) -> None:
    """Makes sure that a new run can be made in a folder.

    Raises:
        UserError: There is something in it.
    """
    # What a start that was killed has left is no run.
    half = {"vocabulary", "versions.json", "versions.new", "config.new"}
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= half:
        return
    if folder.exists():
        raise UserError(
            f"'{folder}' exists already and is not empty; pass --resume to go on "
            "with the run in it, or choose another folder."
        )


def has_checkpoint(folder: Path) -> bool:
    """Whether a run directory holds a finished checkpoint."""
    if not (folder / "checkpoints").is_dir():
        return False
    with Checkpoints(folder / "checkpoints", read_only=True) as checkpoints:
        return checkpoints.last_step() is not None


def make_run(folder: Path, experiment: Experiment, words: Vocabularies) -> None:
    """Makes a run directory; its config comes last, so that half a run is none.

    Args:
        folder: Where; if it is a run directory, its vocabularies stay.
        experiment: The config to write.
        words: The vocabularies of both sides.

    Raises:
        UserError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "config.json").exists():
            save_vocabularies(words, folder / "vocabulary")
        write_json(folder / "versions.json", package_versions())
        write_json(folder / "config.json", to_plain(experiment))
    except OSError as error:
        raise UserError(f"'{folder}' cannot be made: {error.strerror}.") from None


def package_versions() -> dict[str, str]:
    """The versions of the packages that a run depends on, and the device."""
    packages = ("kvnmt", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    return {name: version(name) for name in packages} | {"device": device}
