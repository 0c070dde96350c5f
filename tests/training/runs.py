# SPDX-License-Identifier: Apache-2.0
"""Runs of a few steps, and what is left of them."""

from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from kvnmt.model import assembly
from kvnmt.model.assembly import Params
from kvnmt.runs import train as experiment
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import load_run
from kvnmt.training import loop
from kvnmt.training import step as steps
from kvnmt.training.checkpoints.writer import Checkpoints
from kvnmt.training.optimizer import build
from tests.helpers import quiet, records, steps_kept, timeless

EPOCH = 4  # batches


def run(exp: Experiment, folder: Path, **choices: Any) -> loop.Result:
    return experiment.run(exp, folder, console=quiet(), **choices)


@cache
def kept(exp: Experiment, folder: Path) -> Path:
    """A run that files of tests share, made once; nobody writes in it."""
    run(exp, folder)
    return folder


def everything(folder: Path, exp: Experiment) -> tuple[steps.TrainState, dict]:
    """The whole of the last checkpoint."""
    words = load_run(folder).vocabularies
    model = assembly.build(exp.model, len(words.source), len(words.target))
    update = build(exp.optimizer, EPOCH)
    like = steps.init_state(model.init(jax.random.key(0)), update, exp.training)
    with Checkpoints(folder / "checkpoints", read_only=True) as checkpoints:
        found = checkpoints.find("last")
        state = checkpoints.restore(like, found.step)
    return jax.device_get(state), found.progress


def check_same_run(exp: Experiment, some: Path, other: Path) -> None:
    """Bit for bit: parameters, optimiser, progress, figures."""
    (state, progress), (state2, progress2) = (
        everything(folder, exp) for folder in (some, other)
    )
    jax.tree.map(np.testing.assert_array_equal, state, state2)
    assert timeless(progress) == timeless(progress2)
    assert steps_kept(some) == steps_kept(other)
    assert [*map(timeless, records(some))] == [*map(timeless, records(other))]
    best = (load_run(folder).params for folder in (some, other))
    jax.tree.map(np.testing.assert_array_equal, *map(jax.device_get, best))


def standstill(params: Params) -> dict[str, float]:
    """Every validation finds the same."""
    return {"valid_loss": 2.0, "valid_bleu": 1.0}
