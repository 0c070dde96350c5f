# SPDX-License-Identifier: Apache-2.0
"""A run directory, as it is read back.

It needs nothing else to be used. It holds ``config.json``, ``versions.json``,
``starts.jsonl``, ``vocabulary/``, ``metrics.jsonl``, ``steps.jsonl``, ``train.log``,
``events/``, ``validations/``, ``learning-curve.png`` and ``checkpoints/``.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cattrs
from cattrs.v import format_exception

from kvnmt.console import say
from kvnmt.data.config import longest
from kvnmt.data.vocabularies import (
    Vocabularies,
    check_digests,
    digest,
    load_vocabularies,
)
from kvnmt.errors import UserError
from kvnmt.fields import check_fields
from kvnmt.files import DamagedError, check_once, check_path, read_small
from kvnmt.inference.ensemble import Joined, ensemble
from kvnmt.inference.score import rounds_of
from kvnmt.model import assembly
from kvnmt.runs.bounds import check_finite, check_links, check_sizes
from kvnmt.runs.config import Experiment, from_plain, unlisted_in
from kvnmt.runs.former import upgraded
from kvnmt.runs.own_code import tell_other_code
from kvnmt.runs.run import Run
from kvnmt.training.checkpoints.folder import CheckpointFolder
from kvnmt.training.checkpoints.writer import Checkpoints

USUAL = 199  # tokens of a line, at least; with EOS they fill a padded length


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
    tell_other_code(folder, experiment.model)
    model = assembly.build(experiment.model, len(words.source), len(words.target))
    like = model.param_shapes
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
    """The run directory and the checkpoint that a path names; None: no checkpoint.

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


def has_checkpoint(folder: Path) -> bool:
    """Whether a run directory holds a finished checkpoint."""
    return bool(CheckpointFolder(folder / "checkpoints", False, say).steps())


def load_translator(
    folder: Path, others: Sequence[Path] = (), joined: Joined = Joined()
) -> Run:
    """Reads a run, or an ensemble of runs, that translates.

    Raises:
        UserError: It cannot be read, or is a language model.
    """
    run = load_ensemble([folder, *others], joined)
    if not run.model.reads_source:
        raise UserError(
            f"'{folder}' holds a language model, which translates nothing; name a run "
            "that reads a source. kvnmt score tells the perplexity of text."
        )
    return run


def load_aligner(folder: Path) -> tuple[Run, int]:
    """Reads a run that aligns, and tells in how many rounds.

    Raises:
        UserError: It cannot be read, or does not align.
    """
    run = load_run(folder)
    if not run.model.reads_source:
        raise UserError(
            f"'{folder}' holds a language model, which aligns nothing; name a run "
            "that reads a source."
        )
    rounds = rounds_of(run.model, run.params)
    if not rounds:
        raise UserError(
            f"the system of '{folder}' has no attention to align by; name another."
        )
    return run, rounds


def load_ensemble(folders: Sequence[Path], joined: Joined = Joined()) -> Run:
    """Reads runs back as one; a single one is itself.

    Raises:
        UserError: One is no run directory or named twice, their vocabularies differ, or
            there is not a weight for each.
    """
    joined.shares(len(folders))  # before much is read
    if len(folders) == 1 and joined != Joined():
        raise UserError("weights and a mean are of an ensemble; name several runs.")
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
                    f"that of '{folders[0]}' ({digest(ours)}); an ensemble shares "
                    "both: name runs that were trained on the same vocabularies."
                )
        if run.model.reads_source != first.model.reads_source:
            raise UserError(
                f"'{folder}' and '{folders[0]}' cannot be one: only one of them reads "
                "a source; leave one out."
            )
    model = ensemble(tuple(run.model for run in runs), joined)
    params: Any = tuple(run.params for run in runs)
    return first._replace(model=model, params=params)


def longest_input(run: Run) -> int:
    """Most tokens of a line that is translated whole, unless a user says otherwise."""
    return max(USUAL, longest(run.experiment.data, run.vocabularies.kinds))


def _reason(error: BaseException, kind: type | None) -> str:
    told = isinstance(error, UserError)
    return str(error) if told else format_exception(error, kind)
