# SPDX-License-Identifier: Apache-2.0
"""A table before it is made: the state of its rows, and what each would train."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments.harness.claims import Claims
from experiments.harness.results import KEPT, RESULT, Figures, read_file, read_result
from experiments.harness.rows import AnyRow, Row
from experiments.harness.settings import config_digest
from kvnmt.console import people_console, print_table, say
from kvnmt.data.corpus import Corpora, load_corpora
from kvnmt.errors import UserError
from kvnmt.model import assembly
from kvnmt.runs.config import to_plain
from kvnmt.training import device_memory, records
from kvnmt.training.ahead import StepAhead
from kvnmt.training.freezing import check_frozen
from kvnmt.training.job import Job, make_job
from kvnmt.trees import by_name

UNKNOWN = "unknown"


def show_states(rows: Sequence[AnyRow]) -> None:
    """Prints every row and its state."""
    grid = Table("row", "state", box=None)
    for row in rows:
        grid.add_row(escape(row.folder.name), escape(state_of(row)))
    print_table(grid)


def usable(rows: Sequence[AnyRow]) -> tuple[list[Figures], list[str]]:
    """The results that can be read, and what is wrong with others."""
    results, wrong = [], []
    for row in rows:
        try:
            results += [result] if (result := row.result()) else []
        except UserError as error:
            wrong.append(str(error))
    return results, wrong


def state_of(row: AnyRow) -> str:
    """How far a row is, in some words."""
    try:
        if row.result():
            return "done"
        return _state_of_open(row)
    except UserError as error:
        return f"cannot be used: {error}"


def _state_of_open(row: AnyRow) -> str:
    """The state of a row without a result."""
    claims = Claims(row.folder)
    if holder := claims.holder():
        at = f", at epoch {_epoch(row)}" if _is_begun(row) else ""
        return f"running since {holder.since} by {holder.by}{at}"
    last = claims.last()
    if last and last.ended == "failed":
        return f"failed: {last.reason}"
    if last and not last.ended and len(failures := claims.failures()) > 1:
        return f"failed: {failures[-1]}"
    if _is_begun(row):
        return f"interrupted at epoch {_epoch(row)}"
    waits = [path.name for path in row.needs if read_result(path) is None]
    return f"not started; needs {', '.join(waits)}" if waits else "not started"


def _is_begun(row: AnyRow) -> bool:
    return (row.folder / "config.json").exists()


def _epoch(row: AnyRow) -> str:
    """The epoch of the last validation."""
    validated = records.read(row.folder)
    return f"{validated[-1]['epoch']:.3g}" if validated else "0"


def show_plans(rows: Sequence[AnyRow]) -> None:
    """Prints what every row would train, as JSON.

    Raises:
        UserError: The data or a config cannot be used.
    """
    console, corpora = people_console(), dict[Any, Corpora]()
    plans = [
        _awaited(row) if row.awaits_text else plan_of(row, corpora, console)
        for row in rows
        if isinstance(row, Row)
    ]
    print(json.dumps(plans, indent=2))


def plan_of(row: Row, corpora: dict[Any, Corpora], console: Console) -> dict[str, Any]:
    """What a row would train; its largest steps are compiled, nothing is trained.

    Args:
        row: One within bounds that need not be begun.
        corpora: By their config; what is read is kept there.
        console: Where people read.

    Raises:
        UserError: The data or the config cannot be used.
    """
    experiment = row.experiment
    if experiment.data not in corpora:
        found = corpora[experiment.data] = load_corpora(experiment.data, None, console)
        for warning in found.warnings:
            say(warning, console)
    job = _prepare(row, corpora[experiment.data], console)
    leaves = by_name(job.shapes.params)
    return {
        "row": row.folder.name,
        "system": row.system,
        "config": to_plain(experiment),
        "parameters": assembly.count_parameters(job.shapes.params),
        "arrays": {name: list(leaf.shape) for name, leaf in leaves.items()},
        "steps": job.steps,
        "steps_per_epoch": job.plan.per_epoch,
        "shapes": [[int(S), int(T)] for S, T in job.plan.shapes],
        "memory": _memory(job),
        "sharding": {
            "devices": dict(job.mesh.shape),
            "split over model": [
                name for name, leaf in leaves.items() if any(leaf.sharding.spec)
            ],
        },
        "time": _time(row, job.steps),
    }


def _awaited(row: Row) -> dict[str, Any]:
    """What is known of a row whose text other rows write."""
    return {
        "row": row.folder.name,
        "system": row.system,
        "config": to_plain(row.experiment),
        "text written after": [folder.name for folder in row.after],
    }


def _prepare(row: Row, corpora: Corpora, console: Console) -> Job:
    experiment, words = row.experiment, corpora.vocabularies
    model = assembly.build(experiment.model, len(words.source), len(words.target))
    check_frozen(model.param_shapes, experiment.training.frozen)
    return make_job(
        model=model,
        corpora=corpora,
        # Its arrays have the same shapes wherever it starts.
        training=replace(experiment.training, warm_start=None),
        objective=experiment.objective,
        optimizer=experiment.optimizer,
        folder=row.folder,
        about={},
        console=console,
    )


def _memory(job: Job) -> dict[str, Any] | str:
    """What the largest batch needs on a device, as the compiler says."""
    linked = job.corpora.train.links is not None
    with StepAhead(job.train_step, job.shapes, job.mesh, linked) as step:
        need = device_memory.check(step, job.plan, None)
    if need is None:
        return UNKNOWN
    return need._replace(available=device_memory.available())._asdict()


def _time(row: Row, steps: int) -> dict[str, Any] | str:
    """Minutes by a result of the same setting, those beside the row first."""
    setting = config_digest(row.experiment, seed=False)
    beside = sorted(row.folder.parent.glob(f"*/{RESULT}"))
    for path in (*beside, *sorted(KEPT.glob("*/*.json"))):
        with suppress(UserError):
            result = read_file(path)
            if result.get("setting") == setting and result.get("steps"):
                minutes = result.get("minutes", 0) / result["steps"] * steps
                return {"minutes": round(minutes, 1), "by": str(path)}
    return UNKNOWN
