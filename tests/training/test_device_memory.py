# SPDX-License-Identifier: Apache-2.0
"""The largest batch is tried first: its need is told, and too much is an error."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from kvnmt import devices
from kvnmt.compiling import targets
from kvnmt.data.plan import by_tokens
from kvnmt.data.stream import BatchAt
from kvnmt.errors import UserError
from kvnmt.training import device_memory as memory
from kvnmt.training import job as jobs
from kvnmt.training.ahead import StepAhead, coming
from kvnmt.training.job import Job
from tests.helpers import DEVICES, tiny, toy_data
from tests.training.jobs import compiling, job_of


def need_of(job: Job, available: int | None = None) -> memory.Need:
    with StepAhead(job.train_step, job.shapes, job.mesh) as step:
        need = memory.check(step, job.plan, available)
    assert need is not None
    return need


@pytest.fixture
def job(tmp_path):
    """Makes what is trained, and its state."""

    def make(name: str = "rnnsearch-star", longest: int = 6, **training):
        data = toy_data(tmp_path / "text", train=200, longest=longest)
        exp = tiny(data, name, batch_size=64, **training)
        wide = dataclasses.replace(exp.model, embedding=64, encoder=64, state=64)
        return job_of(dataclasses.replace(exp, model=wide), tmp_path / "run")

    return make


def test_the_need_of_the_largest_batch_is_told(job):
    made, state = job(shapes=3)
    need = need_of(made, memory.available())
    assert need.rows == 64 and (need.source, need.target) == (7, 7)
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert held < need.bytes < 100 * held
    assert "64 pairs of 7 and 7 tokens" in str(need) and " GiB of " in str(need)


def test_its_program_is_not_compiled_again(job):
    made, state = job(shapes=1)
    need_of(made)
    batch = BatchAt(made.corpora.train, made.plan, 1)(0)
    with compiling() as names:
        made.train_step(state, *devices.split_rows(batch, made.mesh))
    assert not [name for name in names if "step" in name]


def test_what_does_not_fit_is_an_error_with_remedies(job):
    with pytest.raises(UserError, match="64 pairs .* training.batch_size .*remat 8"):
        need_of(job()[0], 1000)


def test_a_search_needs_all_arrays_whole(job):
    """Though they are split over devices for training."""
    made, _ = job(model_axis=2)
    served = made.shapes.served
    whole = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(served))
    split = memory.bytes_of(served)
    assert whole / 2 < split < whole  # tables are halved
    memory.check_whole(served, whole + split, made.mesh)
    with pytest.raises(UserError, match="GiB on each device, .* training.model_axis"):
        memory.check_whole(served, whole + split - 1, made.mesh)
    memory.check_whole(served, 0, devices.data_mesh())


def test_a_state_that_is_split_is_whole_on_no_device(data, tmp_path, monkeypatch):
    """It is computed where it will lie; the parameters alone were whole before."""
    made = jobs.init_state

    def init_state(params, **choices):
        assert all(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(params))
        return made(params, **choices)

    exp = tiny(data, model_axis=2)
    monkeypatch.setattr(jobs, "init_state", init_state)
    made_job, state = job_of(exp, tmp_path / "run")
    monkeypatch.undo()
    _, other = job_of(tiny(data), tmp_path / "run")
    places = jax.tree.map(lambda leaf: leaf.sharding, made_job.shapes)
    assert jax.tree.map(lambda leaf: leaf.sharding, state) == places
    jax.tree.map(np.testing.assert_array_equal, *map(jax.device_get, (state, other)))


def test_validation_is_told_what_helps_validation():
    sentence = str(memory.too_large("3 GiB", memory.VALIDATION))
    assert "a greater training.accumulate, in whose parts" in sentence
    assert "remat" not in sentence and "bfloat16" not in sentence


def test_running_out_of_memory_is_told_alike():
    full = RuntimeError("RESOURCE_EXHAUSTED: Out of")
    error = memory.explained(full, 80, 51, 52)
    assert isinstance(error, UserError) and "80 pairs of 51 and 52" in str(error)
    of_validation = str(memory.explained(full, 80, 51, 52, memory.VALIDATION))
    assert "a batch of validation of 80 pairs" in of_validation
    assert "remat" not in of_validation
    other = RuntimeError("INTERNAL")
    assert memory.explained(other, 80, 51, 52) is other


def test_what_there_is_is_the_containers(monkeypatch):
    monkeypatch.setattr(memory, "memory_limit", lambda: 8000)
    assert memory.available() == 8000 // DEVICES  # of each
    assert targets.target("cpu").memory == 8000  # as kvnmt compile tells it


def test_memory_that_others_use_is_told(tmp_path, monkeypatch):
    """What the machine has is no promise that it is free."""
    need = memory.Need(80, 50, 50, 3 * 2**30, 8 * 2**30, memory.TRAINING)
    monkeypatch.setattr(memory, "free_memory", lambda: 2 * 2**30)
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    told = "5.00 GiB more are needed and 2.0 GiB are free now"
    assert told in memory.shortage(need, 2**29)
    assert not memory.shortage(need, 2**31) and not memory.shortage(None, 0)
    monkeypatch.undo()
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:  8 kB\nMemAvailable:    5 kB\n")
    assert memory.free_memory(path) == 5 * 1024
    assert memory.free_memory(tmp_path / "nowhere") is None


def test_the_remedies_help(job):
    """A memory that is rewritten in each step is not kept for each step."""
    plain, *less = (
        need_of(job("kvmematt-r1", longest=23, shapes=1, **remedy)[0])
        for remedy in ({}, {"remat": 4}, {"accumulate": 4})
    )
    assert max(need.bytes for need in less) < 0.8 * plain.bytes


def test_the_largest_need_of_all_counts(monkeypatch):
    random = np.random.default_rng(1)
    lengths = np.clip(random.lognormal(3, 0.6, (4000, 2)), 2, 90).astype(int)
    plan = by_tokens(lengths, 4096, 12, multiple=8)
    needs = [rows * S * T for rows, S, T in memory.largest_batches(plan)]
    assert len(needs) > 1 and min(needs) < max(needs)
    monkeypatch.setattr(memory, "program_bytes", lambda size: size)
    step: Any = SimpleNamespace(begin=lambda shapes: None, program=np.prod)
    need = memory.check(step, plan, max(needs))
    assert need and need.bytes == max(needs)
    with pytest.raises(UserError, match="batch"):
        memory.check(step, plan, max(needs) - 1)


def test_attention_decides_which_batch_is_the_largest():
    """Batches of tokens have about as many tokens each; long ones attend more."""
    random = np.random.default_rng(1)
    lengths = np.clip(random.lognormal(3, 0.6, (4000, 2)), 2, 90).astype(int)
    plan = by_tokens(lengths, 4096, 12, multiple=8)
    largest = memory.largest_batches(plan)
    loads = plan.rows * plan.shapes.prod(axis=1)
    assert int(loads.max()) in {rows * S * T for rows, S, T in largest}
    tokens = plan.rows * plan.shapes.sum(axis=1)
    assert loads.argmax() != tokens.argmax()


def test_programs_are_compiled_before_they_are_called(job, monkeypatch):
    """In the order in which an epoch needs them; a call compiles nothing."""
    epoch, planned = BatchAt.epoch, []
    watch = lambda at, number: planned.append(number) or epoch(at, number)  # noqa: E731
    monkeypatch.setattr(BatchAt, "epoch", watch)
    made, state = job(shapes=3, seed=3)
    plan, steps = made.plan, made.plan.per_epoch
    batch_at = BatchAt(made.corpora.train, plan, 3)
    batches = [batch_at(n) for n in range(steps)]
    shapes = [(*batch.source.shape, batch.target.shape[1]) for batch in batches]
    assert [*coming(batch_at, 0, steps)] == list(dict.fromkeys(shapes))
    planned.clear()
    assert {*coming(batch_at, 0, 2 * steps)} == {*shapes}
    assert planned == [0]  # the next has nothing new
    assert [*coming(batch_at, 1, 2)] == shapes[1:2]
    late = [*coming(batch_at, steps - 1, 2 * steps)]  # those of the next epoch, too
    assert late[0] == shapes[-1] and {*late} == {*shapes}
    assert [*coming(batch_at, steps - 1, steps)] == shapes[-1:]
    with StepAhead(made.train_step, made.shapes, made.mesh) as step:
        step.begin([*coming(batch_at, 0, 1)])
        program = step.program(shapes[0])
        assert step.program(shapes[0]) is program
        with compiling() as names:
            made.train_step(state, *devices.split_rows(batches[0], made.mesh))
        assert not [name for name in names if "step" in name]
