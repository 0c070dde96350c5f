# SPDX-License-Identifier: Apache-2.0
"""Flags of the configuration, which a table hands to each of its rows."""

from collections.abc import Sequence
from dataclasses import fields, replace

import tyro

from experiments.harness.rows import AnyRow, Row
from kvnmt.errors import UserError, flag, unknown_name
from kvnmt.fields import check_fields
from kvnmt.runs.config import Experiment, changed_fields
from kvnmt.runs.idle import check_experiment
from kvnmt.runs.recipes import with_optimizer
from kvnmt.systems.named import SYSTEMS


def with_flags(rows: Sequence[AnyRow], flags: Sequence[str]) -> list[AnyRow]:
    """The rows with flags of the configuration, which are read for each of them.

    Raises:
        UserError: A flag is unknown or does nothing, a number is out of its bounds, or
            it belongs to the table or to what tells one row from the others.
    """
    if flags and not any(isinstance(row, Row) for row in rows):
        raise UserError(f"{flags[0]} is no flag here: no model of kvnmt is trained.")
    return [
        _changed(row, flags) if flags and isinstance(row, Row) else row for row in rows
    ]


def check_known(kind: type, words: Sequence[str]) -> None:
    """Refuses words that are neither options of the table nor of a run.

    Where a table has epochs of its own, those of the run are refused: the rate may
    follow the table's, and rows that start warm may have others.

    Raises:
        UserError: There is one; of a word that is no option, the option that is spelt
            most alike is named.
    """
    names = {field.name for field in fields(kind)} - {"config"}
    for word in words:
        name = word.partition("=")[0]
        if name.replace("_", "-") == "--training.epochs" and "epochs" in names:
            instead = [
                flag(each) for each in ("epochs", "warm_epochs") if each in names
            ]
            raise UserError(
                f"--training.epochs belongs to the table; use {' or '.join(instead)}."
            )
        if name.startswith("--") and "." not in name:
            known = ["--import", "--program-cache", *map(flag, names)]
            raise unknown_name("option", name, known)


def read_flags(experiment: Experiment, flags: Sequence[str]) -> Experiment:
    """The experiment with flags of the configuration.

    Raises:
        UserError: A flag does nothing, a number is out of its bounds, or it belongs to
            the table.
    """
    changed = tyro.cli(Experiment, args=flags, default=experiment)
    if changed.optimizer.name != experiment.optimizer.name:  # it has its own rate
        start = with_optimizer(experiment, changed.optimizer.name)
        changed = tyro.cli(Experiment, args=flags, default=start)
    for field, instead in (("seed", "use --seeds"), ("warm_start", "leave it out")):
        if getattr(changed.training, field) != getattr(experiment.training, field):
            named = flag(f"training.{field}")
            raise UserError(f"{named} belongs to the table; {instead}.")
    check_fields(changed)
    check_experiment(changed, experiment)
    return changed


def _changed(row: Row, flags: Sequence[str]) -> Row:
    changed = replace(row, experiment=read_flags(row.experiment, flags))
    for path in changed_fields(row.experiment, changed.experiment):
        if path in row.named_for:
            raise UserError(
                f"{flag(path)} is what the row '{row.folder.name}' is named for; leave "
                "it out."
            )
    before, now = map(_systems, (row.experiment, changed.experiment))
    if others := now - before:
        raise UserError(
            f"these flags make {min(others)} of the row '{row.folder.name}'; name that "
            "system instead."
        )
    return changed


def _systems(experiment: Experiment) -> set[str]:
    """The named systems that an experiment trains, at whatever sizes."""
    model, objective = experiment.model, experiment.objective
    terms = bool(objective.atteos), bool(objective.subtractive)
    return {
        name
        for name, one in SYSTEMS.items()
        if one.model(model) == model
        and (bool(one.atteos), bool(one.subtractive)) == terms
    }
