# SPDX-License-Identifier: Apache-2.0
"""Flags of the configuration, which a table hands to each of its rows."""

from collections.abc import Sequence
from dataclasses import replace

import tyro

from experiments.rows import AnyRow, Row
from kvnmt.data.config import check_vocabularies
from kvnmt.errors import UserError
from kvnmt.fields import check_fields
from kvnmt.runs.config import Experiment
from kvnmt.runs.recipes import with_optimizer


def with_flags(rows: Sequence[AnyRow], flags: Sequence[str]) -> list[AnyRow]:
    """The rows with flags of the configuration, which are read for each of them.

    Raises:
        UserError: A flag is unknown, a number is out of its bounds, or it belongs to
            the table.
    """
    if flags and not any(isinstance(row, Row) for row in rows):
        raise UserError(f"{flags[0]} is no flag here: no model of kvnmt is trained.")
    return [
        replace(row, experiment=_with_flags(row.experiment, flags))
        if flags and isinstance(row, Row)
        else row
        for row in rows
    ]


def _with_flags(experiment: Experiment, flags: Sequence[str]) -> Experiment:
    changed = tyro.cli(Experiment, args=flags, default=experiment)
    if changed.optimizer.name != experiment.optimizer.name:  # it has its own rate
        start = with_optimizer(experiment, changed.optimizer.name)
        changed = tyro.cli(Experiment, args=flags, default=start)
    for field, instead in (("seed", "use --seeds"), ("warm_start", "leave it out")):
        if getattr(changed.training, field) != getattr(experiment.training, field):
            flag = field.replace("_", "-")
            raise UserError(f"--training.{flag} belongs to the table; {instead}.")
    check_fields(changed)
    check_vocabularies(changed.data, experiment.data)
    return changed
