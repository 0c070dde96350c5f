# SPDX-License-Identifier: Apache-2.0
"""What a training works with: functions, data, devices, and choices."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from rich.console import Console

from kvnmt import devices
from kvnmt.companions import check_alike
from kvnmt.console import say
from kvnmt.data.batches import digest as digest_of
from kvnmt.data.corpus import Corpora
from kvnmt.data.plan import Plan
from kvnmt.files import digest
from kvnmt.inference.config import SearchConfig
from kvnmt.model.assembly import Model, Params
from kvnmt.training import optimizer as optimizers
from kvnmt.training import validation
from kvnmt.training.ahead import Shape
from kvnmt.training.config import TrainingConfig, plan_batches
from kvnmt.training.losses import Objective
from kvnmt.training.optimizer import OptimizerConfig
from kvnmt.training.records import log_told
from kvnmt.training.sharding import shardings
from kvnmt.training.step import TrainState, init_state, make_train_step
from kvnmt.training.validation import Validation
from kvnmt.typing import PyTree


@dataclass(frozen=True)
class Job:
    """One training; nothing of it changes while it runs."""

    corpora: Corpora
    config: TrainingConfig
    objective: Objective
    optimizer: OptimizerConfig
    folder: Path  # run directory, which exists once training begins
    about: dict[str, Any]  # what every checkpoint says of itself
    console: Console  # where people read
    mesh: Mesh
    plan: Plan
    shapes: TrainState  # what is trained: shapes, and where its arrays will lie
    start: Callable[[Params], TrainState]  # its arrays; several processes compare them
    train_step: Any  # of `make_train_step`
    wait: Callable[[Shape], None]  # until such a step can be made, without compiling
    valid_plan: Plan
    eval_step: Any  # of `make_eval_step`
    validate: Callable[[Params], Validation]  # on the validation text
    searches: bool  # in validation, for BLEU

    @property
    def steps(self) -> int:
        """At most so many are made."""
        steps = self.config.epochs * self.plan.per_epoch
        return min(steps, self.config.steps or steps)

    def tell(self, message: str) -> None:
        """Prints a line for people, if there are any, and adds it to the run's log."""
        with suppress(SystemExit):  # by which Rich tells that who read it is gone
            say(message, self.console)
        if devices.part()[0] == 0:
            log_told(self.folder, message)


def make_job(
    model: Model,
    corpora: Corpora,
    training: TrainingConfig,
    objective: Objective,
    optimizer: OptimizerConfig,
    folder: Path,
    about: dict[str, Any],
    console: Console,
    search: SearchConfig = SearchConfig(),
) -> Job:
    """Plans the batches and builds the step; no array is made yet.

    Args:
        model: The functions.
        corpora: Pairs and vocabularies.
        training: How long, how much at a time.
        objective: What is minimised.
        optimizer: How.
        folder: Run directory; it is not touched yet.
        about: What every checkpoint says of itself.
        console: Where people read.
        search: How the run translates, greedily in validation.

    Raises:
        UserError: The devices cannot share the batches or the vocabularies, or
            another process has other text.
    """
    key = jax.random.key(training.seed)
    params = model.param_shapes
    mesh = devices.data_mesh(training.model_axis)
    plan = plan_batches(training, corpora.train.lengths, mesh)
    update = optimizers.build(optimizer, plan.per_epoch)
    init = partial(init_state, optimizer=update, options=training)
    state = jax.eval_shape(init, params)
    places = shardings(state, mesh)
    valid_plan = validation.plan_validation(training, corpora.valid, mesh)
    eval_step = validation.make_eval_step(model, mesh)
    validate = partial(
        validation.measure,
        model,
        eval_step,
        plan=valid_plan,
        corpora=corpora,
        config=training,
        search=search,
        mesh=mesh,
    )
    text = {
        "batches": plan.digest(),
        "order": plan.order(),
        "pairs": corpora.train.digest(),
        "validation": digest("\n".join(corpora.references).encode()),
        "validation_pairs": corpora.valid.digest(),
    }
    links = corpora.train.links
    check_alike(json.dumps([text, links and digest_of(links)]))
    return Job(
        corpora=corpora,
        config=training,
        objective=objective,
        optimizer=optimizer,
        folder=folder,
        about=about | text,
        console=console,
        mesh=mesh,
        plan=plan,
        shapes=jax.tree.map(_placed_shape, state, places),
        start=partial(_started, init, places),
        train_step=make_train_step(
            model, objective, update, key, training, mesh, places
        ),
        wait=lambda shape: None,
        valid_plan=valid_plan,
        eval_step=eval_step,
        validate=validate,
        searches=model.reads_source,
    )


def _placed_shape(leaf: jax.ShapeDtypeStruct, place: NamedSharding) -> Any:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)


def _started(
    init: Callable[[Params], TrainState], places: PyTree, params: Params
) -> TrainState:
    """The arrays where they belong; of one process, what is split is never whole.

    Those of several processes are made whole and compared by a digest: JAX would gather
    each of them, of all processes, on every device.
    """
    of_all = jax.tree.leaves(places)
    if all(place.is_fully_addressable for place in of_all):
        if all(place.is_fully_replicated for place in of_all):
            return jax.device_put(init(params), places)
        return jax.jit(init, out_shardings=places)(params)
    seal = hashlib.blake2b(digest_size=16)

    def put(leaf: jax.Array, place: NamedSharding) -> jax.Array:
        host = np.asarray(leaf)
        seal.update(host.tobytes())
        return jax.make_array_from_callback(host.shape, place, host.__getitem__)

    placed = jax.tree.map(put, init(params), places)
    check_alike(f"arrays {seal.hexdigest()}")
    return placed
