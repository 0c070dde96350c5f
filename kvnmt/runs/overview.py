# SPDX-License-Identifier: Apache-2.0
"""How far runs are: their steps, best scores and states, from their files alone.

Nothing is imported that needs JAX, so that many runs are looked at in a moment.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from kvnmt.errors import UserError
from kvnmt.files import DamagedError, read_small
from kvnmt.training import records

PARTS = "attention", "decoder", "target_context"
WRITTEN = "config.json", records.NAME, records.STEPS, "checkpoints"
TITLES = {"valid_bleu": "BLEU", "valid_chrf": "chrF", "valid_loss": "loss"}


class RunState(NamedTuple):
    """How far a run is."""

    run: str
    system: str  # its attention, decoder and target context
    step: int
    steps: int | None  # at most so many; None: it has recorded nothing yet
    figure: str | None  # what the best checkpoint is chosen by; None: not validated
    best: float | None
    best_step: int | None
    since_best: int  # validations
    state: str
    changed: str  # when it last wrote something


def states(folders: Sequence[Path]) -> list[RunState]:
    """How far each of some folders is; those that are no run are left out.

    Raises:
        UserError: None is a run directory.
    """
    # Of a folder that may not be looked into, this says False.
    runs = [folder for folder in folders if os.path.isfile(folder / "config.json")]
    if not runs:
        raise UserError("there is no run directory; name some, as in runs/*.")
    return [_state(folder) for folder in runs]


def table(found: Sequence[RunState]) -> Table:
    """The states of runs as people read them."""
    grid = Table(box=None)
    grid.add_column("run", overflow="fold")
    grid.add_column("system", overflow="fold")
    for title in ("step", "of", "best", "at step", "since"):
        grid.add_column(title, justify="right")
    grid.add_column("state", overflow="fold")
    grid.add_column("last change")
    for one in found:
        best = "" if one.best is None else f"{one.best:.2f} {TITLES[one.figure or '']}"
        numbers = (one.step, one.steps, one.best_step)
        step, steps, at = ("" if n is None else f"{n:,}" for n in numbers)
        since = "" if one.best is None else str(one.since_best)
        cells = one.run, one.system, step, steps, best, at, since, one.state
        grid.add_row(*map(escape, cells), one.changed)
    return grid


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps of the checkpoints in a run directory, in order."""
    names = (path.name for path in (folder / "checkpoints").glob("*"))
    return sorted(int(name) for name in names if name.isdecimal())


def _state(folder: Path) -> RunState:
    """The state of a run; what is wrong with its files is told there."""
    name = str(folder).encode(errors="backslashreplace").decode()
    changed = datetime.fromtimestamp(_changed(folder)).strftime("%Y-%m-%d %H:%M")
    try:
        plain = json.loads(read_small(folder / "config.json"))
        system = ", ".join(str(plain["model"][part]["name"]) for part in PARTS)
        found = _progress(folder, plain["training"])
    except UserError as error:
        reason = str(error)
    except (OSError, DamagedError, RecursionError) as error:
        reason = f"cannot be read: {error}"
    except (ArithmeticError, ValueError, LookupError, TypeError, AttributeError):
        reason = "its config.json or a record is none of this version"
    else:
        return RunState(run=name, system=system, changed=changed, **found)
    return RunState(name, "", 0, None, None, None, None, 0, reason, changed)


def _progress(folder: Path, training: dict[str, Any]) -> dict[str, Any]:
    """What its records say, by the config of its training."""
    validated = records.read(folder)
    last = [*validated[-1:], *records.read(folder, records.STEPS)[-1:]]
    scores = [records.score(training["metric"], record) for record in validated]
    place = max(range(len(scores)), key=lambda n: (scores[n][0], -n), default=None)
    steps, kept, trains = (
        _steps(last, training),
        checkpoint_steps(folder),
        _trains(folder),
    )
    # What was made behind the last checkpoint is made again, once nobody trains.
    made = [] if trains is False else [record["step"] for record in last]
    found = {"step": max([*made, *kept], default=0), "steps": steps}
    is_over = steps is not None and bool(validated) and validated[-1]["step"] >= steps
    if place is None:
        state = _told(trains, kept, is_over, is_stale=False)
        none = dict.fromkeys(("figure", "best", "best_step"))
        return found | none | {"since_best": 0, "state": state}
    best, figure, since = validated[place], scores[place][1], len(scores) - 1 - place
    is_stale = since >= training["patience"]
    is_stale &= validated[-1]["epoch"] >= training.get("min_epochs", 0)
    return found | {
        "figure": figure,
        "best": best.get(figure),
        "best_step": best["step"],
        "since_best": since,
        "state": _told(trains, kept, is_over, is_stale),
    }


def _steps(last: Sequence[dict[str, Any]], training: dict[str, Any]) -> int | None:
    """At most so many steps are made, by how far some record says it was."""
    for record in last:
        steps = training["epochs"] * round(record["step"] / record["epoch"])
        return min(steps, training.get("steps") or steps)
    return None


def _told(
    trains: bool | None, kept: Sequence[int], is_over: bool, is_stale: bool
) -> str:
    """The state in a word or two."""
    if trains:
        return "training"
    if not kept:
        return "no checkpoint yet"
    if kept == [0]:
        return "parameters alone"
    if is_over or is_stale:
        return "finished" if is_over else "stopped early"
    return "interrupted" if trains is False else "training or interrupted"


def _trains(folder: Path) -> bool | None:
    """Whether a training holds the lock of a run directory; None: nobody can tell."""
    try:
        with (folder / "lock").open() as file:  # perhaps of somebody else
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _changed(folder: Path) -> float:
    """When something in a run directory was last written, as the system tells it."""
    times = [0.0]
    for name in WRITTEN:
        with suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times)
