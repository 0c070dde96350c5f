# SPDX-License-Identifier: Apache-2.0
"""The stream of batches: the same from any position and whoever makes it."""

import hashlib
import multiprocessing
import os
import signal
from itertools import islice

import grain
import numpy as np
import pytest

from kvnmt.data.batches import Batch, EncodedCorpus, encoded
from kvnmt.data.plan import by_pairs, by_tokens
from kvnmt.data.stream import BatchAt, WorkerDiedError, dataset, stream
from tests.data.helpers import batches

PLANS = {
    "pairs": lambda lengths: by_pairs(lengths, 8, 3),
    "tokens": lambda lengths: by_tokens(lengths, 60, 3, multiple=2),
}
every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


def corpus(count: int = 41, seed: int = 0) -> EncodedCorpus:
    """Sentences of random lengths; the first words of both sides number the pair."""
    random = np.random.default_rng(seed)
    sides = (
        [[offset + i, *[5] * random.integers(1, 8)] for i in range(count)]
        for offset in (100, 500)
    )
    return encoded(*sides)


def at(plan, part: tuple[int, int] = (0, 1), seed: int = 7) -> BatchAt:
    pairs = corpus()
    return BatchAt(pairs, plan(pairs.lengths), seed, part)


def digest(made: list[Batch]) -> str:
    """A hash of batches, shapes included."""
    state = hashlib.sha256()
    for side in (side for batch in made for side in batch):
        state.update(f"{side.shape} {side.dtype}".encode())
        state.update(side.tobytes())
    return state.hexdigest()


def taken(make: BatchAt, count: int, position: int = 0, workers: int = 0) -> str:
    with stream(make, position, workers) as made:
        return digest(list(islice(made, count)))


@every_plan
def test_the_stream_follows_the_plan(plan):
    make = at(plan)
    with stream(make) as made:
        for epoch in range(3):
            for planned in batches(make.plan, 7, epoch):
                batch = next(made)
                assert batch.source.shape == (planned.rows, planned.shape[0])
                assert batch.target.shape == (planned.rows, planned.shape[1])
                full = batch.source[:, 0] >= 0
                assert list(batch.source[full, 0] - 100) == list(planned.lines)
                assert list(batch.target[full, 0] - 500) == list(planned.lines)


@every_plan
def test_the_stream_can_be_entered_anywhere(plan):
    make = at(plan)
    total = 3 * make.plan.per_epoch
    whole = [make(position) for position in range(total)]
    assert taken(make, total) == digest(whole)
    for position in range(total):
        rest = taken(at(plan), total - position, position)
        assert rest == digest(whole[position:])


@every_plan
def test_slices_of_processes_make_the_batch(plan):
    whole = at(plan)
    parts = [at(plan, (i, 2)) for i in range(2)]
    for position in range(2 * whole.plan.per_epoch):
        batch = whole(position)
        sides = zip(*(part(position) for part in parts))
        joined = Batch(*(np.concatenate(halves) for halves in sides))
        assert digest([joined]) == digest([batch])


@every_plan
def test_grain_itself_finds_no_checkpoint_that_changes_a_batch(plan):
    make = at(plan)
    batches_of_grain = dataset(make, range(make.plan.per_epoch + 3))
    grain.experimental.assert_equal_output_after_checkpoint(batches_of_grain)


def test_another_seed_is_another_stream():
    plan = PLANS["pairs"]
    assert taken(at(plan), 9) != taken(at(plan, seed=8), 9)


@pytest.mark.slow
def test_workers_change_nothing():
    """Of a slice of batches, entered anywhere."""
    plan, part = PLANS["tokens"], (1, 2)
    count = 2 * at(plan).plan.per_epoch
    alone = taken(at(plan, part), count, position=3)
    assert taken(at(plan, part), count, position=3, workers=2) == alone


@pytest.mark.slow
def test_a_worker_that_dies_is_told():
    """As one does for which there is no memory."""
    with stream(at(PLANS["pairs"]), workers=1) as made:
        next(made)
        (child,) = multiprocessing.active_children()
        assert child.pid
        os.kill(child.pid, signal.SIGTERM)  # a terminal's signals are not for it
        os.kill(child.pid, signal.SIGHUP)
        next(made)
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="go on with resume and fewer"):
            for _ in range(1000):
                next(made)


def test_a_stream_that_is_left_early_ends():
    with stream(at(PLANS["pairs"])) as made:
        next(made)
    with pytest.raises(ValueError, match="closed"):
        next(made)
    with pytest.raises(KeyError), stream(at(PLANS["pairs"])):
        raise KeyError
