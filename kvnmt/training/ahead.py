# SPDX-License-Identifier: Apache-2.0
"""The programs of a step, compiled in threads while earlier ones run.

Every padded shape is a program of its own, and one may take as long to compile as
dozens of steps take to run. So all that an epoch needs are compiled in the order in
which it needs them; training waits for a program only if it comes to its shape too
soon.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from kvnmt import devices
from kvnmt.data.plan import Plan
from kvnmt.data.stream import BatchAt
from kvnmt.machine import cores
from kvnmt.training.step import TrainState
from kvnmt.typing import Array

Batch: TypeAlias = Array | NDArray[np.integer]

MOST = 4  # programs that are compiled at a time; each takes memory and a core


class Shape(NamedTuple):
    """A padded batch over all devices."""

    rows: int
    source: int
    target: int


def shape_of(source: Batch, target: Batch) -> Shape:
    """The shape of a batch [B, S] and [B, T]."""
    return Shape(len(source), source.shape[1], target.shape[1])


class StepAhead:
    """A train step whose programs are compiled before they are called.

    The programs are kept by the step itself: a call compiles nothing again. Leaving it
    waits for those being compiled, and leaves out those that are not begun.
    """

    def __init__(self, step: Any, state: TrainState, mesh: Mesh, linked: bool = False):
        """Compiles nothing yet.

        Args:
            step: Of `make_train_step`.
            state: What it is called with.
            mesh: Of the devices.
            linked: Whether batches have links.
        """
        self.step, self.state, self.mesh, self.linked = step, state, mesh, linked
        self._threads = ThreadPoolExecutor(min(MOST, cores()))
        self._programs: dict[Shape, Future[jax.stages.Compiled]] = {}

    def __enter__(self) -> "StepAhead":
        """Gives itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Ends the threads; who interrupts does not wait for them."""
        wait = kind is not KeyboardInterrupt
        self._threads.shutdown(wait=wait, cancel_futures=True)

    def cancel(self) -> None:
        """Leaves out what is not being compiled yet, and waits for nothing.

        What is being compiled goes on; the end of the process waits for it.
        """
        self._threads.shutdown(wait=False, cancel_futures=True)

    def begin(self, shapes: Iterable[Shape]) -> None:
        """Has the programs of these shapes compiled, in this order."""
        for shape in shapes:
            if shape not in self._programs:
                self._programs[shape] = self._threads.submit(self._compile, shape)

    def wait(self, shape: Shape) -> None:
        """Waits for the program of a shape, if it was begun."""
        if shape in self._programs:
            wait([self._programs[shape]])  # an error comes again, from the step

    def program(self, shape: Shape) -> jax.stages.Compiled:
        """The program of a shape; waits for it."""
        self.begin([shape])
        return self._programs[shape].result()

    def _compile(self, shape: Shape) -> jax.stages.Compiled:
        batch = batch_of(shape, self.mesh, self.linked)
        return self.step.lower(self.state, *batch).compile()


def batch_of(shape: Shape, mesh: Mesh, linked: bool) -> list[jax.ShapeDtypeStruct]:
    """What stands for a batch where a program is compiled: source, target, links."""
    rows, S, T = shape
    by_rows = NamedSharding(mesh, PartitionSpec("data"))
    batch = [
        jax.ShapeDtypeStruct((rows, length), jnp.int32, sharding=by_rows)
        for length in (S, T)
    ]
    links = jax.ShapeDtypeStruct((rows, T, S), jnp.bool_, sharding=by_rows)
    return [*batch, links] if linked else batch


def coming(at: BatchAt, first: int, until: int) -> Iterator[Shape]:
    """The shapes of the steps to come, in the order of their first use.

    They are those of this epoch and the next, which is planned once they are asked for:
    of a large corpus that takes seconds. Later ones are `arriving`. Several processes
    get none: their programs may have to be compiled together.

    Args:
        at: Makes the batches.
        first: The next step, from 0.
        until: The step behind the last.
    """
    if devices.part()[1] > 1:
        return
    plan, known = at.plan, set[int]()
    number = first // plan.per_epoch
    for n in (number, number + 1):
        start = n * plan.per_epoch
        all_known = len(known) == np.count_nonzero(plan.first_epochs <= n)
        if start >= until or all_known:
            return
        epoch = at.epoch(n)
        order = epoch.order[max(first - start, 0) : until - start]
        for place in dict.fromkeys(epoch.shapes[order].tolist()):
            if place not in known:
                yield shape_at(plan, place)
            known.add(place)


def arriving(plan: Plan, number: int, until: int) -> list[Shape]:
    """The shapes that are used for the first time in the epoch of this number.

    Args:
        plan: Has the batches.
        number: Of the epoch, from 0.
        until: The step behind the last.
    """
    if devices.part()[1] > 1 or number * plan.per_epoch >= until:
        return []
    places = np.flatnonzero(plan.first_epochs == number)
    return [shape_at(plan, place) for place in places.tolist()]


def shape_at(plan: Plan, place: int) -> Shape:
    """A shape of a plan's table."""
    source, target = map(int, plan.shapes[place])
    return Shape(int(plan.rows[place]), source, target)
