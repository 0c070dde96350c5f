# SPDX-License-Identifier: Apache-2.0
"""The largest batch is tried first: its need is told, and too much is an error."""

import dataclasses

import jax
import numpy as np
import pytest

from kvnmt import devices
from kvnmt.data.plan import by_tokens
from kvnmt.data.stream import BatchAt
from kvnmt.errors import UserError
from kvnmt.runs import train as experiment
from kvnmt.training import device_memory as memory
from kvnmt.training.loop import Trainer
from tests.helpers import quiet, tiny, toy_data


def need_of(trainer: Trainer) -> memory.Need:
    found = memory.check(trainer.train_step, trainer.state, trainer.plan, trainer.mesh)
    assert found is not None
    return found


@pytest.fixture
def trainer_of(tmp_path, monkeypatch):
    """Makes trainers without training."""
    made: list[Trainer] = []
    monkeypatch.setattr(Trainer, "fit", lambda self, resume: made.append(self))

    def make(name: str = "rnnsearch-star", longest: int = 6, **training) -> Trainer:
        data = toy_data(tmp_path / "text", train=200, longest=longest)
        folder = tmp_path / f"run-{len(made)}"
        exp = tiny(data, name, batch_size=64, **training)
        wide = dataclasses.replace(exp.model, embedding=64, encoder=64, state=64)
        exp = dataclasses.replace(exp, model=wide)
        experiment.run(exp, folder, console=quiet())
        return made[-1]

    return make


def test_the_need_of_the_largest_batch_is_told(trainer_of):
    trainer = trainer_of(shapes=3)
    need = need_of(trainer)
    assert need.rows == 64 and (need.source, need.target) == (7, 7)
    state = sum(leaf.nbytes for leaf in jax.tree.leaves(trainer.state))
    assert state < need.bytes < 100 * state
    assert "64 pairs of 7 and 7 tokens" in str(need) and " GiB of " in str(need)


def test_its_program_is_not_compiled_again(trainer_of):
    trainer = trainer_of(shapes=1)
    need_of(trainer)
    with jax.log_compiles(), pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr(
            "logging.Logger.handle", lambda _, record: said.append(str(record.msg))
        )
        batch = BatchAt(trainer.corpora.train, trainer.plan, 1)(0)
        trainer.train_step(trainer.state, *devices.split_rows(batch, trainer.mesh))
    assert not [line for line in said if "step" in line]


def test_what_does_not_fit_is_an_error_with_remedies(trainer_of, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1000)
    with pytest.raises(UserError, match="64 pairs .*--training.batch-size .*remat"):
        need_of(trainer_of())


def test_running_out_of_memory_is_told_alike():
    error = memory.explained(RuntimeError("RESOURCE_EXHAUSTED: Out of"), 80, 51, 52)
    assert isinstance(error, UserError) and "80 pairs of 51 and 52" in str(error)
    other = RuntimeError("INTERNAL")
    assert memory.explained(other, 80, 51, 52) is other


@pytest.mark.parametrize(
    "remedy", [{"remat": "chunk:4"}, {"remat": "step"}, {"accumulate": 4}]
)
def test_the_remedies_help(trainer_of, remedy):
    """A memory that is rewritten in each step is not kept for each step."""
    asked = {"name": "kvmematt-r2", "longest": 23}
    plain, less = need_of(trainer_of(**asked)), need_of(trainer_of(**asked, **remedy))
    assert less.bytes < 0.8 * plain.bytes


def test_attention_decides_which_batch_is_the_largest():
    """Batches of tokens have about as many tokens each; long ones attend more."""
    random = np.random.default_rng(1)
    lengths = np.clip(random.lognormal(3, 0.6, (4000, 2)), 2, 90).astype(int)
    plan = by_tokens(lengths, 4096, 12, multiple=8)
    loads = plan.rows * plan.shapes.prod(axis=1)
    assert int(loads.max()) in {rows * S * T for rows, S, T in memory._largest(plan)}
    tokens = plan.rows * plan.shapes.sum(axis=1)
    assert loads.argmax() != tokens.argmax()
