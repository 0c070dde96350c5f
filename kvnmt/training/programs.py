# SPDX-License-Identifier: Apache-2.0
"""The programs of a training: compiled from its start on, and made sure to fit.

They are compiled while parameters are drawn, for which some sixty small programs are
compiled one after the other. The first step waits for its own program alone. Those of
the largest batches, which say what memory is needed, come next: before a second step,
before a first one on any of them, and before validation, it is sure that all fit.
"""

from itertools import chain, islice

from kvnmt.data.stream import BatchAt
from kvnmt.model.assembly import Params
from kvnmt.training import device_memory
from kvnmt.training.ahead import Shape, StepAhead, arriving, coming
from kvnmt.training.device_memory import VALIDATION, bytes_of, largest_batches
from kvnmt.training.job import Job
from kvnmt.training.step import Metrics, TrainState
from kvnmt.training.validation import Validation
from kvnmt.typing import Array


class Programs:
    """A train step whose programs are compiled, and checked, ahead of its calls."""

    def __init__(self, job: Job, batch_at: BatchAt):
        """Compiles nothing yet.

        Args:
            job: What is trained.
            batch_at: Makes its batches.
        """
        linked = job.corpora.train.links is not None
        self.job, self.batch_at = job, batch_at
        self.step = StepAhead(job.train_step, job.shapes, job.mesh, linked)
        self._free: Shape | None = None  # of a first step that may be made unchecked
        self._checked = False
        self._next = 0  # the step that is to be made

    def begin(self, step: int, most: int | None = None) -> None:
        """Has the programs compiled that are to come, the first one first.

        Several processes do so with the first call, all at the same place.

        Args:
            step: The next one, from 0.
            most: How many; None: all.
        """
        self._next = step
        job, largest = self.job, largest_batches(self.job.plan)
        shapes = iter(coming(self.batch_at, step, job.steps))
        if first := next(shapes, None):
            self._free = None if first in largest else first
            self.step.begin(islice(chain([first], largest, shapes), most))

    def wait(self, shape: Shape) -> None:
        """Waits until a step on a batch of this shape can be made.

        Raises:
            UserError: A device has less memory than the largest batch needs.
        """
        if shape != self._free:
            self._check()
        self._free = None
        self.step.wait(shape)

    def __call__(
        self, state: TrainState, source: Array, target: Array, *links: Array
    ) -> tuple[TrainState, Metrics]:
        """Makes a step."""
        self._begin_next_epoch()
        return self.job.train_step(state, source, target, *links)

    def _begin_next_epoch(self) -> None:
        """At the first step of an epoch: has what is new in the next compiled."""
        number, offset = divmod(self._next, self.job.plan.per_epoch)
        self._next += 1
        if offset == 0:
            self.step.begin(arriving(self.job.plan, number + 1, self.job.steps))

    def validate(self, params: Params) -> Validation:
        """Validates, once its largest batch is known to fit."""
        self._check()
        return self.job.validate(params)

    def _check(self) -> None:
        """Refuses batches that do not fit; validation has the optimiser's beside it."""
        if self._checked:
            return
        job, available = self.job, device_memory.available()
        if need := device_memory.check(self.step, job.plan, available):
            job.tell(str(need))
        if warning := device_memory.shortage(need, bytes_of(job.shapes)):
            job.tell(warning)
        if available is not None:
            available -= bytes_of(job.shapes.rest)
            if job.searches:  # for BLEU
                device_memory.check_whole(job.shapes.served, available, job.mesh)
        with StepAhead(job.eval_step, job.shapes.served, job.mesh) as step:
            device_memory.check(step, job.valid_plan, available, VALIDATION)
        self._checked = True
