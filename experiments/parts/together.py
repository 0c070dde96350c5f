# SPDX-License-Identifier: Apache-2.0
"""A row of several runs that translate together."""

from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.harness.results import Figures
from experiments.harness.rows import OtherRow, Row
from experiments.harness.settings import config_digest
from kvnmt.files import make_folder
from kvnmt.model.assembly import count_parameters
from kvnmt.runs.directory import load_ensemble
from kvnmt.runs.run import Run

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
    folder = workdir / "-".join([rows[0].data, "ensemble", *names])
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
