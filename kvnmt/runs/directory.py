# SPDX-License-Identifier: Apache-2.0
"""A run directory: how it is made, and how it is read back.

It needs nothing else to be used. It holds ``config.json``, ``versions.json``,
``vocabulary/``, ``metrics.jsonl``, ``events/``, ``validations/``,
``learning-curve.png`` and ``checkpoints/``.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cattrs
import jax
from cattrs.v import format_exception

from kvnmt import __version__
from kvnmt.console import say
from kvnmt.data.vocabularies import (
    Vocabularies,
    check_digests,
    load_vocabularies,
    save_vocabularies,
)
from kvnmt.data.vocabulary import digest
from kvnmt.errors import OptionError, UserError
from kvnmt.fields import check_fields
from kvnmt.files import (
    DamagedError,
    check_once,
    check_path,
    not_made,
    read_small,
    write_json,
)
from kvnmt.inference.ensemble import ensemble
from kvnmt.inference.score import rounds_of
from kvnmt.model import assembly
from kvnmt.runs.bounds import check_finite, check_links, check_sizes
from kvnmt.runs.config import Experiment, from_plain, to_plain, unlisted_in
from kvnmt.runs.former import upgraded
from kvnmt.runs.run import Run
from kvnmt.training.checkpoints.folder import CheckpointFolder
from kvnmt.training.checkpoints.writer import Checkpoints


def load_run(folder: Path | str) -> Run:
    """Reads a run directory back, with the parameters of its best checkpoint.

    Args:
        folder: The run directory, or one of its checkpoints, as in
            ``runs/mine/checkpoints/500``.

    Raises:
        UserError: It is no run directory or holds no finished checkpoint.
    """
    folder, number = chosen(Path(folder))
    experiment, words = load_settings(folder)
    model = assembly.build(experiment.model, len(words.source), len(words.target))
    like = jax.eval_shape(model.init, jax.random.key(0))
    kept = folder / "checkpoints"
    check_sizes(like, kept)
    with Checkpoints(kept, read_only=True, tell=say) as checkpoints:

        def wanted() -> list[int]:
            if number is None:
                manifest = checkpoints.find("best")
            else:
                manifest = checkpoints.manifest(number)
            check_digests(manifest.about.get("vocabularies"), words, folder)
            return [manifest.step]

        def read(steps: Sequence[int]) -> assembly.Params:
            (step,) = steps
            params = checkpoints.restore_params(like, step)
            check_finite(params, kept / str(step))
            return params

        params = checkpoints.take(wanted, read)
    return Run(experiment, words, model, params)


def chosen(path: Path) -> tuple[Path, int | None]:
    """A run directory, and which of its checkpoints a path names; None: none by itself.

    Raises:
        UserError: It names one that is not there.
    """
    check_path(path)
    inside = path.absolute()
    if inside.parent.name != "checkpoints" or not inside.name.isdecimal():
        return path, None
    if (path / "config.json").exists():  # a run that somebody keeps in such a folder
        return path, None
    if not path.is_dir():
        raise UserError(
            f"there is no checkpoint '{path}'; look which there are in its folder."
        )
    return inside.parents[1], int(inside.name)


def load_settings(folder: Path) -> tuple[Experiment, Vocabularies]:
    """The config and the vocabularies of a run directory that may be anybody's.

    Raises:
        UserError: It is no run directory, a link leads out of it, or a number of the
            config is out of its bounds.
    """
    folder, _ = chosen(folder)
    check_run(folder)
    check_links(folder)
    experiment = load_experiment(folder)
    check_fields(experiment)
    return experiment, load_vocabularies(folder)


def load_experiment(folder: Path) -> Experiment:
    """Reads the config of a run directory.

    Raises:
        UserError: It is no run directory, or the config is none.
    """
    folder, _ = chosen(folder)
    check_run(folder)
    try:
        text = read_small(folder / "config.json")
        return from_plain(upgraded(json.loads(text)))
    except cattrs.BaseValidationError as error:
        if unlisted := unlisted_in(error):
            raise UserError(f"'{folder}/config.json' {unlisted}") from None
        reason = "; ".join(cattrs.transform_error(error, format_exception=_reason))
    except (DamagedError, OSError, RecursionError) as error:
        reason = str(error)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
    raise UserError(
        f"'{folder}/config.json' is no config of this version: {reason[:500]}."
    )


def check_run(folder: Path) -> None:
    """Makes sure that a folder is a run directory.

    Raises:
        UserError: It holds no config.
    """
    if not (folder / "config.json").is_file():
        raise UserError(
            f"'{folder}' is no run directory: it holds no config.json; give the "
            "folder that training wrote."
        )


def check_free(folder: Path) -> None:
    """Makes sure that a new run can be made in a folder.

    Raises:
        UserError: There is something in it.
    """
    check_path(folder)
    # What a start that was killed has left is no run.
    names = "versions.json", "config.json"
    half = {"lock", "vocabulary", "versions.json", *(f"{name}.new" for name in names)}
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= half:
        return
    if folder.exists():
        raise _taken(folder)


def has_checkpoint(folder: Path) -> bool:
    """Whether a run directory holds a finished checkpoint."""
    return bool(CheckpointFolder(folder / "checkpoints", False, say).steps())


def make_run(
    folder: Path, experiment: Experiment, words: Vocabularies | None, resume: bool
) -> None:
    """Makes a folder a run directory; its config comes last: half a run is none.

    Args:
        folder: Where; nobody else trains in it.
        experiment: The config to write.
        words: The vocabularies of both sides; None: those of the run stay.
        resume: Whether there may be a run already.

    Raises:
        UserError: It cannot be made; another process has made a run there meanwhile.
    """
    is_run = (folder / "config.json").exists()
    if is_run and not resume:
        raise _taken(folder)
    with writing_config(folder, is_run):
        if words:
            save_vocabularies(words, folder / "vocabulary")
        write_json(folder / "versions.json", package_versions())
        write_json(folder / "config.json", to_plain(experiment))


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
            f"the config in '{folder}' cannot be written: {error.strerror}; mend that "
            "and go on with {0}.",
            "resume",
        ) from None


def package_versions() -> dict[str, str]:
    """The versions of the packages that a run depends on, and the device."""
    packages = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    others = {name: version(name) for name in packages}
    # kvnmt says its own, since it may run from its folder without being installed.
    return {"kvnmt": __version__} | others | {"device": device}


def load_translator(folder: Path, others: Sequence[Path] = ()) -> Run:
    """Reads a run, or an ensemble of runs, that translates.

    Raises:
        UserError: It cannot be read, or is a language model.
    """
    run = load_ensemble([folder, *others])
    if not run.model.reads_source:
        raise UserError(f"'{folder}' holds a language model, which translates nothing.")
    return run


def load_aligner(folder: Path) -> tuple[Run, int]:
    """Reads a run that aligns, and tells in how many rounds.

    Raises:
        UserError: It cannot be read, or does not align.
    """
    run = load_run(folder)
    if not run.model.reads_source:
        raise UserError(f"'{folder}' holds a language model, which aligns nothing.")
    rounds = rounds_of(run.model, run.params)
    if not rounds:
        raise UserError(
            f"the system of '{folder}' has no attention to align by; name another."
        )
    return run, rounds


def load_ensemble(folders: Sequence[Path]) -> Run:
    """Reads runs back as one; a single one is itself.

    Raises:
        UserError: One is no run directory or named twice, or their vocabularies differ.
    """
    check_once(folders)
    runs = [load_run(folder) for folder in folders]
    if len(runs) == 1:
        return runs[0]
    first = runs[0]
    for folder, run in zip(folders, runs):
        for side, ours, theirs in zip(
            ("source", "target"), first.vocabularies, run.vocabularies
        ):
            if digest(ours) != digest(theirs):
                raise UserError(
                    f"the {side} vocabulary of '{folder}' ({digest(theirs)}) is not "
                    f"that of '{folders[0]}' ({digest(ours)}); an ensemble shares both."
                )
        if run.model.reads_source != first.model.reads_source:
            raise UserError(f"'{folder}' and '{folders[0]}' do not do the same thing.")
    model = ensemble(tuple(run.model for run in runs))
    params: Any = tuple(run.params for run in runs)
    return first._replace(model=model, params=params)


def _reason(error: BaseException, kind: type | None) -> str:
    told = isinstance(error, UserError)
    return str(error) if told else format_exception(error, kind)
