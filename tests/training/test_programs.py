# SPDX-License-Identifier: Apache-2.0
"""What is compiled before and beside the first steps, and what waits for it."""

import dataclasses
import os
import signal
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

from kvnmt.data.config import DataConfig
from kvnmt.data.plan import Plan
from kvnmt.data.stream import BatchAt
from kvnmt.errors import StoppedError, UserError
from kvnmt.training import device_memory, loop
from kvnmt.training.ahead import Shape, StepAhead, coming, shape_at, shape_of
from kvnmt.training.checkpoints import manifest as manifests
from kvnmt.training.programs import Programs
from kvnmt.training.signals import Signals
from tests.helpers import steps_kept, tiny, toy_data
from tests.training.jobs import fit_with, job_and_draw, with_lower
from tests.training.runs import EPOCH, standstill


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> DataConfig:
    return toy_data(tmp_path_factory.mktemp("text"))


def test_the_first_step_waits_for_its_own_program_alone(tmp_path, data, monkeypatch):
    """What takes most memory comes next, and is sure to fit before it is called."""
    check, begin, begun, events = device_memory.check, StepAhead.begin, [], []

    def watch(ahead: StepAhead, shapes: Any) -> None:
        begun.extend((shapes := [*shapes]) if ahead.step is call else [])
        begin(ahead, shapes)

    def look(step: StepAhead, plan: Plan, *more: Any) -> Any:
        events.append("check" if plan is job.plan else "check validation")
        return check(step, plan, *more)

    def call(*inputs: Any) -> Any:
        events.append(shape_of(inputs[1], inputs[2]))
        return real(*inputs)

    def drawn() -> Any:
        assert begun == [first]
        return draw()

    monkeypatch.setattr(StepAhead, "begin", watch)
    monkeypatch.setattr(device_memory, "check", look)
    for seed in range(20):
        exp = tiny(data, epochs=1, shapes=2, seed=seed)
        job, draw = job_and_draw(exp, tmp_path / "run")
        at = BatchAt(job.corpora.train, job.plan, seed)
        first, *others = coming(at, 0, job.steps)
        largest = device_memory.largest_batches(job.plan)
        if first not in largest:
            break
    real = job.train_step
    loop.fit(dataclasses.replace(job, train_step=with_lower(call, real)), drawn)
    place = events.index("check")
    assert events[:place] == [first] and set(others) <= set(events[place:])
    assert events[place + 1] == "check validation" and events.count("check") == 1
    assert begun[1:][: 1 + len(largest)] == [first, *largest]
    assert set(begun) == {first, *others}
    begun.clear(), events.clear()
    short = dataclasses.replace(job.config, steps=1)
    job = dataclasses.replace(
        job, config=short, folder=tmp_path / "short", train_step=call
    )
    loop.fit(job, drawn)  # no second shape comes, but validation does
    assert events == [first, "check", "check validation"]


def test_one_step_at_most_is_made_before_memory_is_checked(tmp_path, data, monkeypatch):
    """However many there are of its shape."""
    job, _ = job_and_draw(tiny(data), tmp_path / "run")
    at, checks, shape = BatchAt(job.corpora.train, job.plan, 1), [], Shape(16, 2, 3)
    programs = Programs(job, at)
    monkeypatch.setattr(device_memory, "check", lambda *how: checks.append(how))
    monkeypatch.setattr("kvnmt.training.programs.coming", lambda *_: [shape])
    monkeypatch.setattr(programs, "step", lambda state, *batch: (state, None))
    programs.step.begin = programs.step.wait = lambda shapes: None
    programs.begin(0)
    counts = []
    for _ in range(3):
        programs.wait(shape)
        counts.append(len(checks))
    assert counts == [0, 2, 2]  # of training, and of validation


@pytest.mark.parametrize("at", [0, 1])
def test_a_signal_does_not_wait_for_a_program(tmp_path, data, monkeypatch, at):
    """What was sent off before is saved; the step that waits is not made."""
    job, draw = job_and_draw(tiny(data), tmp_path / "run")
    real, called = StepAhead.wait, []

    def wait(ahead: StepAhead, shape: Shape) -> None:
        real(ahead, shape)
        if len(called) == at:
            kill = partial(os.kill, os.getpid(), signal.SIGTERM)
            threading.Timer(0.1, kill).start()
            threading.Event().wait(60)  # for a compiler

    def call(*inputs: Any) -> Any:
        called.append(inputs)
        return step(*inputs)

    step = job.train_step
    monkeypatch.setattr(StepAhead, "wait", wait)
    job = dataclasses.replace(job, train_step=with_lower(call, step))
    with pytest.raises(StoppedError, match="step 1" if at else "before the first step"):
        loop.fit(job, draw)
    assert len(called) == at
    assert steps_kept(tmp_path / "run") == {1} & {at}


def test_a_signal_before_a_step_leaves_what_is_rated(tmp_path, data, monkeypatch):
    """It is not saved once more, as a checkpoint without a score."""
    folder = tmp_path / "run"
    fit_with(tiny(data, epochs=1), folder, validate=standstill)
    path = folder / "checkpoints" / str(EPOCH)
    before = manifests.read(path)

    def wait(ahead: StepAhead, shape: Shape) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(StepAhead, "wait", wait)
    with pytest.raises(StoppedError, match=f"step {EPOCH}"):
        fit_with(tiny(data, epochs=2), folder, validate=standstill, resume=True)
    assert before.score == 1.0 and manifests.read(path) == before


def test_a_shape_of_a_later_epoch_is_compiled_an_epoch_before(
    tmp_path, data, monkeypatch
):
    begin, events = StepAhead.begin, []

    def watch(ahead: StepAhead, shapes: Any) -> None:
        shapes = [*shapes]
        events.extend(("begin", shape) for shape in shapes if ahead.step is call)
        begin(ahead, shapes)

    def call(*inputs: Any) -> Any:
        events.append(("step", shape_of(inputs[1], inputs[2])))
        return real(*inputs)

    monkeypatch.setattr(StepAhead, "begin", watch)
    job, draw = job_and_draw(tiny(data, epochs=4, shapes=2), tmp_path / "run")
    plan = dataclasses.replace(job.plan, first_epochs=np.array([2, 0]))
    real, late = job.train_step, shape_at(plan, 0)
    call = with_lower(call, real)
    loop.fit(dataclasses.replace(job, plan=plan, train_step=call), draw)
    place = events.index(("begin", late))
    assert len([what for what, _ in events[:place] if what == "step"]) == plan.per_epoch
    assert events.index(("step", late)) > place + plan.per_epoch


@pytest.mark.parametrize("resume", [False, True])
def test_what_is_told_before_training_waits_for_no_program(
    tmp_path, data, monkeypatch, resume
):
    """A warm start of other words, say; the first program is being compiled then."""
    job, _ = job_and_draw(tiny(data), tmp_path / "run")
    begun, let, ended = threading.Event(), threading.Event(), []

    def compiled(ahead: StepAhead, shape: Shape) -> None:
        begun.set()
        let.wait(20)
        ended.append(shape)

    def draw() -> Any:
        assert begun.wait(20)
        raise UserError("of other words")

    monkeypatch.setattr(StepAhead, "_compile", compiled)
    try:
        with pytest.raises(UserError, match="of other words"):
            loop.fit(job, draw, resume=resume)
        assert not ended and (tmp_path / "run").exists() == resume
    finally:
        let.set()


def test_signals_are_heard_while_leaving_waits_for_programs(
    tmp_path, data, monkeypatch
):
    """Else a second one would end the process without a word."""
    leave, handlers = StepAhead.__exit__, []

    def watch(ahead: StepAhead, *error: object) -> None:
        handlers.append(signal.getsignal(signal.SIGTERM))
        leave(ahead, *error)

    monkeypatch.setattr(StepAhead, "__exit__", watch)
    job, draw = job_and_draw(tiny(data, epochs=1), tmp_path / "run")
    loop.fit(job, draw)
    heard = [isinstance(getattr(h, "__self__", None), Signals) for h in handlers]
    assert heard == [True, True]  # of validation's programs, and of the steps'
