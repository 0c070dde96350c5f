# SPDX-License-Identifier: Apache-2.0
"""Rows of runs as an ensemble, by minimum Bayes risk, and as means of checkpoints."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.harness.results import Figures
from experiments.harness.rows import OtherRow, Row
from experiments.harness.settings import config_digest
from kvnmt.console import say
from kvnmt.data.outputs import in_file
from kvnmt.files import make_folder
from kvnmt.model.assembly import count_parameters
from kvnmt.runs.average import average
from kvnmt.runs.directory import load_ensemble, load_run
from kvnmt.runs.run import Run
from kvnmt.training.checkpoints.folder import CheckpointFolder

EXPONENT = 0.3  # of probabilities that weigh translations; chosen on valid text

Measured = Callable[[Run, Path], Figures]  # of a run; what it translates stays there


def ensemble(workdir: Path, rows: Sequence[Row], measured: Measured) -> OtherRow:
    """The row of an ensemble.

    Args:
        workdir: Where its folder is.
        rows: Its members, of one text.
        measured: What is measured of it.
    """
    systems = [*dict.fromkeys(row.system for row in rows)]
    seeds = [*dict.fromkeys(str(row.experiment.training.seed) for row in rows)]
    names = "+".join(systems).replace(", ", "-").replace(" ", "-"), *seeds
    folder = workdir / in_file("-".join([rows[0].data, "ensemble", *names]))
    members = tuple(row.folder for row in rows)

    def work() -> Figures:
        make_folder(folder)
        run = load_ensemble(members)
        return {"parameters": count_parameters(run.params)} | measured(run, folder)

    return OtherRow(
        folder=folder,
        system=f"ensemble: {' + '.join(systems)}, seeds {'-'.join(seeds)}",
        data=rows[0].data,
        after=members,
        tests=rows[0].tests,
        work=work,
        config=" ".join(config_digest(row.experiment) for row in rows),
    )


def most_alike(row: Row, count: int, measured: Measured) -> OtherRow:
    """The row of a run whose translations are chosen by minimum Bayes risk.

    Args:
        row: The run, which is trained.
        count: Of how many best translations the one most like the others is taken.
        measured: What is measured of it.
    """
    search = row.experiment.search
    search = replace(search, beam=max(search.beam, count), nbest=count, mbr=EXPONENT)
    experiment = replace(row.experiment, search=search)

    def work(folder: Path) -> Figures:
        run = load_run(row.folder)._replace(experiment=experiment)
        return _counted(run) | measured(run, folder)

    name = f"mbr-{count}", f"MBR of {count}"
    return _again(row, name, config_digest(experiment), work)


def mean_of_kept(row: Row, measured: Measured) -> OtherRow:
    """The row of the mean of all checkpoints with a score that a run keeps.

    Args:
        row: The run, which is trained.
        measured: What is measured of the mean.
    """

    def work(folder: Path) -> Figures:
        checkpoints = CheckpointFolder(row.folder / "checkpoints", False, say)
        count = len(checkpoints.last_steps(len(checkpoints.steps())))
        # It is made in no time, and one that is there may be of a former training.
        shutil.rmtree(folder / "run", ignore_errors=True)
        average([row.folder], folder / "run", last=count)
        run = load_run(folder / "run")
        return {"checkpoints": count} | _counted(run) | measured(run, folder)

    name = "mean", "mean of its checkpoints"
    return _again(row, name, config_digest(row.experiment), work)


def _again(
    row: Row, name: tuple[str, str], config: str, work: Callable[[Path], Figures]
) -> OtherRow:
    """A row that measures a trained one otherwise; its name ends a folder and a cell.

    The work is given the folder.
    """
    folder = row.folder.with_name(f"{row.folder.name}-{name[0]}")

    def made() -> Figures:
        make_folder(folder)
        return {"seed": row.experiment.training.seed} | work(folder)

    return OtherRow(
        folder=folder,
        system=f"{row.system}, {name[1]}",
        data=row.data,
        after=(row.folder,),
        tests=row.tests,
        work=made,
        config=config,
    )


def _counted(run: Run) -> Figures:
    return {"parameters": count_parameters(run.params)}
