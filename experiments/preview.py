# SPDX-License-Identifier: Apache-2.0
"""A table before it is made: the state of its rows, and what each would train."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments.claims import Claims
from experiments.results import KEPT, RESULT, read_file, read_result
from experiments.rows import AnyRow, Row
from kvnmt import models
from kvnmt.console import error_console, print_table
from kvnmt.data.corpus import Corpora, load_corpora
from kvnmt.errors import check_bounds
from kvnmt.runs.config import to_plain
from kvnmt.runs.warm_start import path_name
from kvnmt.training import device_memory, records
from kvnmt.training.ahead import StepAhead
from kvnmt.training.job import Job, make_job
from kvnmt.training.step import TrainState

UNKNOWN = "unknown"


def show_states(rows: Sequence[AnyRow]) -> None:
    """Prints every row and its state."""
    grid = Table("row", "state", box=None)
    for row in rows:
        grid.add_row(escape(row.folder.name), escape(state_of(row)))
    print_table(grid)


def state_of(row: AnyRow) -> str:
    """How far a row is, in some words."""
    if row.result():
        return "done"
    claims = Claims(row.folder)
    if holder := claims.holder():
        return f"running since {holder.since} by {holder.by}"
    last = claims.last()
    failures = claims.failures()
    if last and last.ended == "failed" or len(failures) > 1 and not last.ended:
        return f"failed: {failures[-1]}"
    if (row.folder / "config.json").exists():
        validated = records.read(row.folder)
        epoch = f"{validated[-1]['epoch']:.3g}" if validated else "0"
        return f"interrupted at epoch {epoch}"
    waits = [path.name for path in row.needs if read_result(path) is None]
    return f"not started; needs {', '.join(waits)}" if waits else "not started"


def show_plans(rows: Sequence[AnyRow]) -> None:
    """Prints what every row would train, as JSON.

    Raises:
        UserError: The data or a config cannot be used.
    """
    console, corpora = error_console(), dict[Any, Corpora]()
    plans = [plan_of(row, corpora, console) for row in rows if isinstance(row, Row)]
    print(json.dumps(plans, indent=2))


def plan_of(
    row: Row, corpora: dict[Any, Corpora], console: Console | None = None
) -> dict[str, Any]:
    """What a row would train; its largest steps are compiled, nothing is trained.

    Args:
        row: One that need not be begun.
        corpora: By their config; what is read is kept there.
        console: Where people read.

    Raises:
        UserError: The data or the config cannot be used.
    """
    experiment = row.experiment
    check_bounds(experiment)
    if experiment.data not in corpora:
        corpora[experiment.data] = load_corpora(experiment.data, None, console)
    job, state = _prepare(row, corpora[experiment.data], console or error_console())
    leaves = jax.tree.leaves_with_path(state.params)
    arrays = {path_name(path): list(leaf.shape) for path, leaf in leaves}
    return {
        "row": row.folder.name,
        "system": row.system,
        "config": to_plain(experiment),
        "parameters": models.count_parameters(state.params),
        "arrays": arrays,
        "steps": job.steps,
        "steps_per_epoch": job.plan.per_epoch,
        "shapes": [[int(S), int(T)] for S, T in job.plan.shapes],
        "memory": _memory(job, state),
        "sharding": {
            "devices": dict(job.mesh.shape),
            "split over model": [
                path_name(path) for path, leaf in leaves if any(leaf.sharding.spec)
            ],
        },
        "time": _time(row, job.steps),
    }


def _prepare(row: Row, corpora: Corpora, console: Console) -> tuple[Job, TrainState]:
    experiment, words = row.experiment, corpora.vocabularies
    model = models.build(experiment.model, len(words.source), len(words.target))
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return make_job(
        model=model,
        params=jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes),
        corpora=corpora,
        # Its arrays have the same shapes wherever it starts.
        training=replace(experiment.training, warm_start=None),
        objective=experiment.objective,
        optimizer=experiment.optimizer,
        folder=row.folder,
        about={},
        console=console,
    )


def _memory(job: Job, state: TrainState) -> dict[str, Any] | str:
    """What the largest batch needs on a device, as the compiler says."""
    with StepAhead(job.train_step, state, job.mesh) as step:
        need = device_memory.check(step, job.plan, None)
    if need is None:
        return UNKNOWN
    return need._replace(available=device_memory.available())._asdict()


def _time(row: Row, steps: int) -> dict[str, Any] | str:
    """Minutes by a result of the same system, those beside the row first."""
    beside = sorted(row.folder.parent.glob(f"*/{RESULT}"))
    for path in (*beside, *sorted(KEPT.glob("*/*.json"))):
        minutes = _minutes_per_step(path, row.system)
        if minutes:
            return {"minutes": round(minutes * steps, 1), "by": str(path)}
    return UNKNOWN


def _minutes_per_step(path: Path, system: str) -> float | None:
    result = read_file(path)
    if result.get("system") != system or not result.get("steps"):
        return None
    return result.get("minutes", 0) / result["steps"]
