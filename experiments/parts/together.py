# SPDX-License-Identifier: Apache-2.0
"""Rows of runs as an ensemble, by minimum Bayes risk, and as means of checkpoints."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.harness.results import Figures
from experiments.harness.rows import OtherRow, Row
from experiments.harness.settings import config_digest
from kvnmt.console import say
from kvnmt.files import in_file, make_folder
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
    folder = row.folder.with_name(f"{row.folder.name}-mbr-{count}")
    search = row.experiment.search
    search = replace(search, beam=max(search.beam, count), nbest=count, mbr=EXPONENT)
    experiment = replace(row.experiment, search=search)

    def work() -> Figures:
        make_folder(folder)
        run = load_run(row.folder)._replace(experiment=experiment)
        figures: Figures = {
            "seed": row.experiment.training.seed,
            "parameters": count_parameters(run.params),
        }
        return figures | measured(run, folder)

    return OtherRow(
        folder=folder,
        system=f"{row.system}, MBR of {count}",
        data=row.data,
        after=(row.folder,),
        tests=row.tests,
        work=work,
        config=config_digest(experiment),
    )


def mean_of_kept(row: Row, measured: Measured) -> OtherRow:
    """The row of the mean of all checkpoints with a score that a run keeps.

    Args:
        row: The run, which is trained.
        measured: What is measured of the mean.
    """
    folder = row.folder.with_name(f"{row.folder.name}-mean")

    def work() -> Figures:
        make_folder(folder)
        checkpoints = CheckpointFolder(row.folder / "checkpoints", False, say)
        count = len(checkpoints.last_steps(len(checkpoints.steps())))
        if not (folder / "run").exists():
            average([row.folder], folder / "run", last=count)
        run = load_run(folder / "run")
        figures: Figures = {
            "seed": row.experiment.training.seed,
            "parameters": count_parameters(run.params),
            "checkpoints": count,
        }
        return figures | measured(run, folder)

    return OtherRow(
        folder=folder,
        system=f"{row.system}, mean of its checkpoints",
        data=row.data,
        after=(row.folder,),
        tests=row.tests,
        work=work,
        config=config_digest(row.experiment),
    )
