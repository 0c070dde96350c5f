# SPDX-License-Identifier: Apache-2.0
"""Training an experiment in a run directory: what is checked, made and written."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from kvnmt import devices
from kvnmt.companions import check_alike
from kvnmt.console import people_console, say
from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import Corpora, load_corpora
from kvnmt.data.vocabularies import Vocabularies, digest, digests, load_vocabularies
from kvnmt.errors import OptionError, UserError, flag
from kvnmt.fields import check_fields
from kvnmt.files import write_json
from kvnmt.inference.config import check_search
from kvnmt.metrics.bleu import Settings, bleu_metric, check_tokenizer
from kvnmt.model import assembly
from kvnmt.model.assembly import Params
from kvnmt.runs import foresight
from kvnmt.runs.checks import check_step
from kvnmt.runs.config import (
    Experiment,
    changed_fields,
    check_kept,
    from_plain,
    to_plain,
    with_starts,
)
from kvnmt.runs.directory import chosen, has_checkpoint, load_experiment
from kvnmt.runs.history import add_start, changes_of, told
from kvnmt.runs.making import check_free, make_run, package_versions, writing_config
from kvnmt.runs.own_code import own_code, tell_other_code
from kvnmt.runs.start import check_start, started
from kvnmt.training import records
from kvnmt.training.checkpoints.folder import DAMAGED, CheckpointFolder
from kvnmt.training.checkpoints.reader import check_goes_on
from kvnmt.training.job import Job, make_job
from kvnmt.training.loop import Result, fit
from kvnmt.training.records import log_told

BOUNDS = {f"training.{name}" for name in ("epochs", "steps", "patience", "min_epochs")}


def run(
    experiment: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    console: Console | None = None,
    verbose: bool = False,
) -> Result:
    """Trains an experiment in a run directory.

    The choices are checked before any text is read, and all input before a new
    directory is made. Its config is written once nobody else trains in it and the
    checkpoint to go on from is of the same pairs.

    Args:
        experiment: What to train.
        folder: Run directory; must not hold a run unless ``resume``.
        resume: Go on from the last checkpoint.
        console: Where people read; standard error by default.
        verbose: Name every array that a warm start copies or leaves fresh.

    Raises:
        UserError: The data, the directory or the config cannot be used.
    """
    console = console or people_console(quiet=devices.part()[0] > 0)
    experiment, trained = _chosen(experiment, folder, resume)
    lines = list[str]()  # told before there is a folder

    def tell(line: str) -> None:
        lines.append(line)
        say(line, console)

    corpora = _read(experiment, trained, console, tell)
    job, draw = _job(experiment, corpora, folder, console, tell, verbose)
    tell(f"trains on {devices.told()} in {experiment.training.dtype}")
    begin = partial(_begin, job, experiment, trained, lines, resume)
    return fit(job, draw, resume=resume, begin=begin)


def _chosen(
    experiment: Experiment, folder: Path, resume: bool
) -> tuple[Experiment, Vocabularies | None]:
    """The experiment as it will be saved, and the vocabularies of a run that goes on.

    All is checked that needs no text. None: training begins.
    """
    experiment, trained = _checked(experiment), None
    own_code(experiment.model)  # while the files are those that were imported
    if resume:
        experiment, trained = _going_on(folder, experiment)
    else:
        check_free(folder)
    check_step(experiment, begins=trained is None)
    if trained is None:
        check_start(experiment.training, experiment.model)
    return experiment, trained


def _read(
    experiment: Experiment,
    trained: Vocabularies | None,
    console: Console,
    tell: Callable[[str], None],
) -> Corpora:
    """The text, with links if they guide; tells what is in it."""
    data = experiment.data
    if not experiment.objective.guided:  # a run that goes on may leave its guide
        data = replace(data, links=None)
    corpora = load_corpora(data, trained, console)
    for line in (corpora.report, *corpora.warnings):
        tell(line)
    if trained is None:  # else none of the remedies may be taken
        for line in foresight.warnings(corpora, experiment):
            tell(line)
    _check_tied(experiment, corpora.vocabularies)
    return corpora


def _job(
    experiment: Experiment,
    corpora: Corpora,
    folder: Path,
    console: Console,
    tell: Callable[[str], None],
    verbose: bool,
) -> tuple[Job, Callable[[], Params]]:
    """What is trained, the same in all processes, and what makes its parameters."""
    training, words = experiment.training, corpora.vocabularies
    model = assembly.build(experiment.model, len(words.source), len(words.target))
    about = {
        "config": to_plain(experiment),
        "versions": package_versions(),
        "vocabularies": digests(words),
    }
    check_alike(_told_apart(experiment, about))
    job = make_job(
        model=model,
        corpora=corpora,
        training=training,
        objective=experiment.objective,
        optimizer=experiment.optimizer,
        folder=folder,
        about=about,
        console=console,
        search=experiment.search,
    )

    def draw() -> Params:
        params = model.init(jax.random.key(training.seed))
        return started(training, params, words, tell, verbose)

    return job, draw


def _begin(
    job: Job,
    experiment: Experiment,
    trained: Vocabularies | None,
    lines: Sequence[str],
    resume: bool,
    goes_on: bool,
) -> None:
    """Makes the run directory, or keeps another search if nothing is left to train."""
    changes = {}
    if goes_on:
        words = None if trained else job.corpora.vocabularies
        changes = make_run(job.folder, experiment, words, resume)
    for line in lines:
        log_told(job.folder, line)
    if changes:
        job.tell(told(changes))
    if not goes_on:
        _keep_search(job.folder, experiment, job.console)


def _keep_search(folder: Path, experiment: Experiment, console: Console) -> None:
    """Lets a run with nothing left to train have another search, and nothing else.

    Its config is that of what was trained; no other choice that is given changes that.
    """
    before = load_experiment(folder)
    kept = replace(before, search=experiment.search)
    if idle := sorted(set(changed_fields(kept, experiment)) - BOUNDS):
        names = " and ".join(idle)
        say(f"nothing is left to train, so that another {names} is not kept", console)
    if kept != before:
        with writing_config(folder):
            add_start(folder, changes_of(before, kept), package_versions())
            write_json(folder / "config.json", to_plain(kept))


def _told_apart(experiment: Experiment, about: dict[str, Any]) -> str:
    """What must be the same in all processes before they meet on their devices.

    Files may have other names on each machine; only what is read is compared.
    """
    files = dict.fromkeys(("warm_start", "source_vectors", "target_vectors"))
    training = replace(experiment.training, workers=0, **files)
    plain = to_plain(replace(experiment, data=DataConfig(), training=training))
    return json.dumps([plain, about["vocabularies"]])


def as_kept(experiment: Experiment) -> Experiment:
    """The experiment as `run` keeps it: paths that were texts are paths."""
    experiment = from_plain(to_plain(experiment))
    if experiment.model.tie != "all":
        return experiment
    # A table of both sides has the pieces of both.
    return replace(experiment, data=replace(experiment.data, trimmed=False))


def _checked(experiment: Experiment) -> Experiment:
    """The experiment as it will be saved; checks all that needs no text."""
    check_fields(experiment)
    check_search(experiment.search)
    tokenizer = experiment.training.bleu_tokenize
    if experiment.model.reads_source:
        bleu_metric(Settings(tokenizer))  # which may lack a package
    else:
        check_tokenizer(tokenizer)
    return as_kept(experiment)


def _going_on(
    folder: Path, experiment: Experiment
) -> tuple[Experiment, Vocabularies | None]:
    """What a run goes on with, if it may with this experiment, and its vocabularies.

    None where nothing has been trained yet: the experiment decides afresh.

    Raises:
        UserError: The folder is no run or one of its checkpoints, or may not go on so.
    """
    if chosen(folder)[1] is not None:
        raise OptionError(
            f"'{folder}' is a checkpoint, which nothing may be added to; go on with "
            "the run that it is in, or start another from it with {0}.",
            "training.warm_start",
        )
    before = load_experiment(folder)
    if not has_checkpoint(folder):
        _check_none_is_lost(folder)
        return experiment, None
    check_kept(before, experiment, folder)
    tell_other_code(folder, before.model)
    check_goes_on(CheckpointFolder(folder / "checkpoints", False, say))
    kept = with_starts(experiment, before)
    for path, (given, was) in changes_of(experiment, kept).items():
        say(f"{flag(path)} {given}: the run has begun already, from {was}.")
    return kept, load_vocabularies(folder)


def _check_none_is_lost(folder: Path) -> None:
    """Refuses to begin anew, over its records, a run whose checkpoints are gone.

    A training that ended before its first checkpoint has one record at most: the next
    validation waits for the checkpoint of the one before.
    """
    trained = [record["step"] for record in records.read(folder)]
    if len(trained) > 1 and not (folder / DAMAGED).exists():
        raise UserError(
            f"'{folder}' was trained for {trained[-1]:,} steps, and it has no "
            "checkpoint; put its folder 'checkpoints' back, or begin another run."
        )


def _check_tied(experiment: Experiment, words: Vocabularies) -> None:
    if experiment.model.tie == "all" and digest(words.source) != digest(words.target):
        raise OptionError(
            "{0} all needs one vocabulary for both sides; give {1}, a folder with "
            "the same one twice with {2}, or {0} output.",
            *("model.tie", "data.joint", "data.vocabularies"),
        )
