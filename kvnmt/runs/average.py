# SPDX-License-Identifier: Apache-2.0
"""Averages of checkpoints: one model whose every number is the mean of several."""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from kvnmt.console import say
from kvnmt.data.vocabularies import (
    Vocabularies,
    check_digests,
    digests,
)
from kvnmt.errors import OptionError, UserError
from kvnmt.files import check_once, check_path
from kvnmt.model.assembly import Params, build
from kvnmt.runs.bounds import check_finite, check_sizes
from kvnmt.runs.config import Experiment, leaves, to_plain
from kvnmt.runs.directory import chosen, load_settings
from kvnmt.runs.making import whole_folder
from kvnmt.training.checkpoints.writer import Checkpoints
from kvnmt.typing import PyTree

ALIKE = 0.5  # cosine of arrays of runs with one start; of two seeds it is near 0


def average(
    folders: Sequence[Path],
    output: Path,
    *,
    last: int | None = None,
    best: int | None = None,
) -> list[str]:
    """Writes a run directory that holds the mean of checkpoints of others.

    Args:
        folders: Run directories of one model and one vocabulary, or checkpoints in
            them.
        output: Directory to write; must not exist.
        last: So many of the newest checkpoints of every run; those without a score
            count only where none has one.
        best: So many of the best; by default the best one of each.

    Returns:
        What was averaged, ``folder/checkpoints/step`` each.

    Raises:
        UserError: The runs cannot be read or do not fit each other, keep fewer
            checkpoints, one is named twice, or the output exists.
    """
    check_path(output)
    if output.exists():
        raise UserError(f"'{output}' exists already; choose another folder.")
    check_once(folders)
    runs = [chosen(folder) for folder in folders]
    if None not in (last, best):
        raise OptionError("{0} and {1} are two choices; leave one out.", "last", "best")
    for name, count in (("last", last), ("best", best)):
        if count is not None and any(number is not None for _, number in runs):
            raise OptionError(
                "{0} is of whole runs, and a checkpoint is named; leave one of them "
                "out.",
                name,
            )
    experiments, words = zip(*map(load_settings, folders))
    model, first = experiments[0].model, words[0]
    _check_one_model(folders, experiments, words)
    like = build(model, len(first.source), len(first.target)).param_shapes
    for folder, _ in runs:
        check_sizes(like, folder / "checkpoints")
    total: PyTree = _zeros(like)
    names, first_sum = list[str](), None
    for (folder, number), each in zip(runs, words):
        with Checkpoints(folder / "checkpoints", read_only=True) as checkpoints:
            steps, some = checkpoints.take(
                partial(_steps, folder, checkpoints, last, best, number),
                partial(_sum, checkpoints, like, folder, each),
            )
        total = jax.tree.map(np.add, total, some)
        first_sum = some if first_sum is None else first_sum
        _tell_unlike(folder, folders[0], some, first_sum)
        names += [f"{folder}/checkpoints/{step}" for step in steps]
        check_once(map(Path, names))
    count = len(names)
    mean = jax.tree.map(lambda a, b: (a / count).astype(b.dtype), total, like)
    about = {"averaged": names, "vocabularies": digests(first)}
    _write(output, runs[0][0], jax.tree.map(jax.numpy.asarray, mean), about)
    return names


def _check_one_model(
    folders: Sequence[Path],
    experiments: Sequence[Experiment],
    words: Sequence[Vocabularies],
) -> None:
    """Refuses runs of several models, or of several vocabularies."""
    for folder, experiment, each in zip(folders, experiments, words):
        other = _differing(_computed(experiment), _computed(experiments[0]))
        sides = _differing(digests(each), digests(words[0]))
        other += [f"the {side} vocabulary" for side in sides]
        if other:
            raise UserError(
                f"'{folder}' and '{folders[0]}' differ in {', '.join(other)}; only "
                "checkpoints of one model can be averaged."
            )


def _tell_unlike(folder: Path, other: Path, some: PyTree, others: PyTree) -> None:
    """Warns of two runs whose numbers have nothing in common, as of two seeds."""
    ours, theirs = (
        max(jax.tree.leaves(tree), key=np.size).ravel() for tree in (some, others)
    )
    lengths = np.linalg.norm(ours) * np.linalg.norm(theirs)
    cosine = float(ours @ theirs / lengths) if lengths else 1.0
    if cosine < ALIKE:
        say(
            f"warning: '{folder}' and '{other}' do not seem to be trained from one "
            f"start (cosine {cosine:.2f}); the mean of their parameters is then good "
            "for nothing, and --ensemble translates with several"
        )


def _zeros(like: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float64), like)


def _computed(experiment: Experiment) -> dict[str, Any]:
    """What decides how a trained model computes: not how it began, nor its dropout."""
    named = leaves(to_plain(experiment)["model"])
    idle = {"dropout", "initializer", "forget_bias", "write_bias"}
    return {name: named[name] for name in named if idle.isdisjoint(name.split("."))}


def _differing(some: dict[str, Any], others: dict[str, Any]) -> list[str]:
    """The names of what is not the same."""
    return [name for name in some | others if some.get(name) != others.get(name)]


def _sum(
    checkpoints: Checkpoints,
    like: PyTree,
    folder: Path,
    words: Vocabularies,
    steps: Sequence[int],
) -> tuple[Sequence[int], PyTree]:
    """The steps, and the sum of their parameters."""
    total = _zeros(like)
    for step in steps:
        manifest = checkpoints.manifest(step)  # says what is wrong with it
        check_digests(manifest.about.get("vocabularies"), words, folder)
        params = checkpoints.restore_params(like, step)
        check_finite(params, checkpoints.folder.of(step))
        total = jax.tree.map(lambda a, b: a + np.asarray(b), total, params)
    return steps, total


def _write(output: Path, model: Path, params: Params, about: dict[str, Any]) -> None:
    """The run directory; its config is there only once all the rest is."""
    with whole_folder(output) as part:
        shutil.copytree(model / "vocabulary", part / "vocabulary")
        with Checkpoints(part / "checkpoints") as checkpoints:
            checkpoints.save_params(params, about)
        for name in ("versions.json", "config.json"):
            if (model / name).exists():  # a run that was put together may lack versions
                shutil.copy(model / name, part / name)


def _steps(
    folder: Path,
    checkpoints: Checkpoints,
    last: int | None,
    best: int | None,
    number: int | None,
) -> list[int]:
    if number is not None:
        return [number]
    kept = checkpoints.folder
    there = kept.last_steps(last) if last else kept.best_steps(best or 1)
    if not there:
        raise OptionError(
            f"'{folder}' holds no finished checkpoint; go on training with {{0}} until "
            "one is saved.",
            "resume",
        )
    asked = last or best or 1
    option = "training.keep_last" if last else "training.keep_best"
    if asked > len(there):
        some = "checkpoints to average" if last else "checkpoints for their scores"
        raise OptionError(
            f"'{folder}' keeps {len(there)} {some}, not {asked}; train with {{0}} "
            f"{asked}, or ask for fewer.",
            option,
        )
    return there
