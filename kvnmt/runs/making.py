# SPDX-License-Identifier: Apache-2.0
"""How a run directory is made: its config, its vocabularies, and what made it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt import __version__
from kvnmt.data.vocabularies import Vocabularies, digests, save_vocabularies
from kvnmt.devices import told
from kvnmt.errors import OptionError, UserError, reason_of
from kvnmt.files import check_path, locked, not_made, write_json
from kvnmt.model.assembly import Params, build
from kvnmt.runs.bounds import check_finite
from kvnmt.runs.config import Experiment, to_plain
from kvnmt.runs.directory import load_experiment
from kvnmt.runs.history import NAME, Changes, add_start, changes_of
from kvnmt.runs.own_code import KEY, own_code
from kvnmt.training.checkpoints.orbax_arrays import reason
from kvnmt.training.checkpoints.writer import Checkpoints
from kvnmt.training.shared_folder import MARK

# What a start that was killed has left is no run, and neither is half a mean.
NAMES = "versions.json", NAME, "config.json"
LOCK = "lock"
HALF = {LOCK, "vocabulary", *NAMES[:-1], *(f"{name}.new" for name in NAMES)}
PART = ".part"  # behind the name of a folder that is being filled


def check_free(folder: Path) -> None:
    """Makes sure that a new run can be made in a folder, which may hold logs.

    Raises:
        UserError: There is something else in it, or nothing may be written there.
    """
    check_path(folder)
    inside = folder.iterdir() if folder.is_dir() else ()
    others = [path for path in inside if not _is_left(path)]
    if others or (folder.exists() and not folder.is_dir()):
        raise _taken(folder)
    above = folder.absolute(), *folder.absolute().parents
    nearest = next(path for path in above if os.path.exists(path))
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UserError(
            f"'{folder}' cannot be made, as '{nearest}' may not be written to; name "
            "another place."
        )


def _is_left(path: Path) -> bool:
    """Whether a start that was killed left it, or a shell or a queue made it before."""
    is_log = path.suffix in (".log", ".out", ".err") and path.is_file()
    return is_log or path.name in HALF or path.name.startswith(MARK)


def make_run(
    folder: Path, experiment: Experiment, words: Vocabularies | None, resume: bool
) -> Changes:
    """Makes a folder a run directory; its config comes last: half a run is none.

    What a run that was there had otherwise is written down.

    Args:
        folder: Where; nobody else trains in it.
        experiment: The config to write.
        words: The vocabularies of both sides; None: those of the run stay.
        resume: Whether there may be a run already.

    Returns:
        What it had otherwise.

    Raises:
        UserError: It cannot be made; another process has made a run there meanwhile.
    """
    is_run = (folder / "config.json").exists()
    if is_run and not resume:
        raise _taken(folder)
    changes = changes_of(load_experiment(folder), experiment) if is_run else {}
    with writing_config(folder, is_run):
        add_start(folder, changes, package_versions())
        _write_choices(folder, experiment, words)
    return changes


def _write_choices(
    folder: Path, experiment: Experiment, words: Vocabularies | None
) -> None:
    if words:
        save_vocabularies(words, folder / "vocabulary")
    code = own_code(experiment.model)
    noted = package_versions() | ({KEY: code} if code else {})
    write_json(folder / "versions.json", noted)
    write_json(folder / "config.json", to_plain(experiment))


def write_run(
    experiment: Experiment, words: Vocabularies, params: Params, folder: Path
) -> None:
    """Writes a run directory of parameters alone; its config comes last.

    Raises:
        UserError: There is something in the folder, it cannot be written, or the
            parameters are not those of the model, or not finite.
    """
    check_path(folder)
    if os.path.exists(folder):  # which knows names that are too long
        raise UserError(f"'{folder}' exists already; choose another folder.")
    model = build(experiment.model, len(words.source), len(words.target))
    if jax.tree.map(np.shape, model.param_shapes) != jax.tree.map(np.shape, params):
        raise UserError(
            "the parameters are not those of the model that the experiment names; give "
            "the experiment that they were trained by."
        )
    check_finite(params, folder)
    with whole_folder(folder) as part:
        with Checkpoints(part / "checkpoints") as checkpoints:
            arrays = jax.tree.map(jnp.asarray, params)
            checkpoints.save_params(arrays, {"vocabularies": digests(words)})
        _write_choices(part, experiment, words)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Makes a folder, whole or not at all.

    It yields the folder to fill, which lies beside and takes its name at the end. What
    a kill has left of such a folder is removed first.

    Raises:
        UserError: It cannot be made, or not be filled.
    """
    part = folder.with_name(f"{folder.name}{PART}")
    try:
        if part.is_dir():
            _clear(part)
        part.mkdir(parents=True)
    except OSError as error:
        raise not_made(folder, error) from None
    try:
        with locked(part / LOCK, wait=False):
            yield part
            (part / LOCK).unlink()
            part.rename(folder)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)  # so that it can be tried again
        if isinstance(error, OSError):
            why = reason_of(error)
        elif isinstance(error, UserError) and error.__cause__:
            why = reason(error.__cause__)  # what is told is of a training that goes on
        else:
            raise
        raise UserError(f"'{folder}' cannot be written: {why}.") from None


def _clear(part: Path) -> None:
    """Removes half a folder, and nothing that somebody may have made."""
    inside = {path.name for path in part.iterdir()}
    if not inside <= HALF | {"checkpoints"}:
        raise UserError(f"'{part}' is in the way; move it, or choose another folder.")
    try:
        with locked(part / LOCK, wait=False):
            shutil.rmtree(part)
    except BlockingIOError:
        raise UserError(
            f"another process fills '{part}'; wait for it, or choose another folder."
        ) from None


@contextmanager
def writing_config(folder: Path, is_run: bool = True) -> Iterator[None]:
    """Says what to do where the files of a run's choices cannot be written.

    Raises:
        UserError: They cannot.
    """
    try:
        yield
    except OSError as error:
        if not is_run:
            raise not_made(folder, error) from None
        raise OptionError(
            f"the config in '{folder}' cannot be written: {reason_of(error)}; mend "
            "that and go on with {0}.",
            "resume",
        ) from None


def package_versions() -> dict[str, str]:
    """The versions of the packages that a run depends on, and the device."""
    packages = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
    others = {name: version(name) for name in packages}
    # kvnmt says its own, since it may run from its folder without being installed.
    return {"kvnmt": __version__} | others | {"device": told()}


def _taken(folder: Path) -> UserError:
    if not (folder / "config.json").is_file():
        return UserError(
            f"'{folder}' exists already and is no run; choose another folder."
        )
    return OptionError(
        f"'{folder}' exists already and is not empty; pass {{0}} to go on with the "
        "run in it, or choose another folder.",
        "resume",
    )
