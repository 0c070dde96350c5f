# SPDX-License-Identifier: Apache-2.0
"""Rows of several runs: an ensemble of them, or one model that is their mean.

Wortsman et al. (2022), "Model soups": the parameters of models that went on from one
start, unlike in the order of their text and in what dropout left out, are averaged into
one model, which translates as fast as any of them.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.harness.results import Figures
from experiments.harness.rows import OtherRow, Row
from experiments.harness.settings import config_digest
from kvnmt.files import make_folder
from kvnmt.model.assembly import count_parameters
from kvnmt.runs.average import average
from kvnmt.runs.directory import load_ensemble, load_run
from kvnmt.runs.run import Run

MEAN = "mean"  # the run directory of a mean, in the folder of its row
Measured = Callable[[Run, Path], Figures]  # of a run; what it translates stays there


def ensemble(workdir: Path, rows: Sequence[Row], measured: Measured) -> OtherRow:
    """The row of runs that translate together.

    Args:
        workdir: Where its folder is.
        rows: Its members, of one text.
        measured: What is measured of it.
    """
    return _of_several("ensemble", workdir, rows, _as_one, measured)


def soup(workdir: Path, rows: Sequence[Row], measured: Measured) -> OtherRow:
    """The row of the mean of runs that went on from one start.

    Args: as of `ensemble`.
    """
    return _of_several("soup", workdir, rows, _averaged, measured)


def with_other_seed(row: Row, number: int) -> Row:
    """The same row once more; its seed tells it from those of other starts, too.

    Args:
        row: One that goes on from a start.
        number: Which of them it is, from 2 on, below 100.
    """
    training = row.experiment.training
    seed = 100 * training.seed + number
    return replace(
        row,
        folder=row.folder.with_name(f"{row.folder.name}-seed-{seed}"),
        experiment=replace(row.experiment, training=replace(training, seed=seed)),
    )


def _of_several(
    kind: str,
    workdir: Path,
    rows: Sequence[Row],
    put_together: Callable[[Sequence[Path], Path], Run],
    measured: Measured,
) -> OtherRow:
    systems = [*dict.fromkeys(row.system for row in rows)]
    seeds = [*dict.fromkeys(str(row.experiment.training.seed) for row in rows)]
    names = "+".join(systems).replace(", ", "-").replace(" ", "-"), *seeds
    folder = workdir / "-".join([rows[0].data, kind, *names])
    members = tuple(row.folder for row in rows)

    def work() -> Figures:
        make_folder(folder)
        run = put_together(members, folder)
        return {"parameters": count_parameters(run.params)} | measured(run, folder)

    return OtherRow(
        folder=folder,
        system=f"{kind}: {' + '.join(systems)}, seeds {'-'.join(seeds)}",
        data=rows[0].data,
        after=members,
        tests=rows[0].tests,
        work=work,
        config=" ".join(config_digest(row.experiment) for row in rows),
    )


def _as_one(members: Sequence[Path], _: Path) -> Run:
    return load_ensemble(members)


def _averaged(members: Sequence[Path], folder: Path) -> Run:
    mean = folder / MEAN
    shutil.rmtree(mean, ignore_errors=True)  # of a process that was killed
    average(members, mean)
    return load_run(mean)
