# SPDX-License-Identifier: Apache-2.0
"""The endless stream of training batches, made ahead of the training by grain.

The batch at a position is a pure function of plan, seed and position, so the stream
can be entered anywhere, and is the same whoever makes it: a thread or processes.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.batches import AnyBatch, EncodedCorpus, make_batch
from kvnmt.data.plan import Epoch, Plan, Planned
from kvnmt.data.pool import end_with_parent
from kvnmt.errors import LEAVING, OptionError

if TYPE_CHECKING:
    import grain

AHEAD = 8  # batches that wait to be used
FOREVER = 1 << 40  # batches; grain wants to know


class WorkerDiedError(OptionError):
    """A process that makes batches died."""


class BatchAt:
    """Makes the batch at a position; another process gets a copy."""

    def __init__(
        self,
        corpus: EncodedCorpus,
        plan: Plan,
        seed: int,
        part: tuple[int, int] = (0, 1),
    ):
        """Takes all that decides the batches.

        Args:
            corpus: Training pairs.
            plan: How they are cut into batches.
            seed: Of the run.
            part: Number of the slice of the rows of every batch, and how many slices.
        """
        self.corpus, self.plan, self.seed, self.part = corpus, plan, seed, part
        self._lock, self._epochs = threading.Lock(), dict[int, Epoch]()

    def __call__(self, position: int) -> AnyBatch:
        """Returns the batch at this position of the stream, from 0."""
        planned = self._planned(position)
        index, count = self.part
        rows = planned.rows // count
        lines = planned.lines[index * rows : (index + 1) * rows]
        return make_batch(self.corpus, lines, rows, planned.shape)

    def lines(self, position: int) -> NDArray[np.integer]:
        """Returns the numbers of the pairs in that batch, from 0, of all slices."""
        return self._planned(position).lines

    def epoch(self, number: int) -> Epoch:
        """Returns an epoch, from 0; it and the one before are kept."""
        with self._lock:
            if number not in self._epochs:
                # The epoch before may still be wanted by another thread.
                known = {n: e for n, e in self._epochs.items() if n == number - 1}
                self._epochs = known | {number: self.plan.epoch(self.seed, number)}
            return self._epochs[number]

    def forget(self) -> None:
        """Keeps no epoch; each is planned again when it is asked for."""
        with self._lock:
            self._epochs = {}

    def __reduce__(self) -> Any:
        """Pickles what decides all batches, not what follows from it."""
        return BatchAt, (self.corpus, self.plan, self.seed, self.part)

    def _planned(self, position: int) -> Planned:
        number, offset = divmod(int(position), self.plan.per_epoch)
        return self.plan.batch(self.epoch(number), offset)


def dataset(at: BatchAt, positions: range, workers: int = 0) -> "grain.IterDataset":
    """Returns the batches at these positions as a dataset of grain."""
    import grain  # here, since it is slow to import
    from absl import flags

    ahead = grain.ReadOptions(num_threads=1, prefetch_buffer_size=AHEAD)
    numbers = grain.MapDataset.range(positions.start, positions.stop)
    batches = numbers.map(at).to_iter_dataset(ahead)
    if workers:
        if not flags.FLAGS.is_parsed():  # grain's workers read its defaults from there
            flags.FLAGS.mark_as_parsed()
        options = grain.MultiprocessingOptions(workers, per_worker_buffer_size=AHEAD)
        batches = batches.mp_prefetch(options, worker_init_fn=_begin_worker)
    return batches


def _begin_worker(index: int, count: int) -> None:
    """Waits for no signal: a terminal sends them to all; ends with the training."""
    end_with_parent()
    for number in LEAVING:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def stream(
    at: BatchAt, position: int = 0, workers: int = 0
) -> Iterator[Iterator[AnyBatch]]:
    """Opens the endless stream of batches at a position.

    Args:
        at: Makes them.
        position: How many batches to pass over.
        workers: Processes that make them; 0: a thread of this process.

    Raises:
        WorkerDiedError: By the stream: one of the processes died.
    """
    batches = iter(dataset(at, range(position, FOREVER), workers))
    try:
        yield _explaining(batches) if workers else batches
    finally:
        batches.close()


def _explaining(batches: Iterator[AnyBatch]) -> Iterator[AnyBatch]:
    try:
        yield from batches
    except RuntimeError as error:  # of grain
        if "terminated unexpectedly" not in str(error):
            raise
        raise WorkerDiedError(
            "a process that makes batches died, perhaps for want of memory; go on with "
            "{0} and fewer {1}, or 0 for none. With {2} they share what is prepared.",
            *("resume", "training.workers", "data.cache"),
        ) from None
