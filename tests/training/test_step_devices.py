# SPDX-License-Identifier: Apache-2.0
"""A step on several devices does what it does on one."""

import dataclasses
import re
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from kvnmt import devices
from kvnmt.errors import UserError
from kvnmt.model import assembly
from kvnmt.model.config import Dropout
from kvnmt.systems.named import system
from kvnmt.training import step as steps
from kvnmt.training.losses import Objective
from kvnmt.training.optimizer import OptimizerConfig, build
from kvnmt.training.sharding import shardings
from kvnmt.training.step import StepOptions
from tests.helpers import DEVICES, SIZES
from tests.training.stepping import (
    KEY,
    ROWS,
    Trace,
    make_batch,
    make_model,
    mesh_of,
    stepper,
    train,
)


def test_the_mesh_has_every_device():
    assert devices.data_mesh().size == jax.device_count() == DEVICES


@pytest.mark.parametrize("rows", [1, 7, 10])
def test_rows_that_the_devices_cannot_share_are_refused(rows):
    with pytest.raises(UserError, match=f"{rows} sentences .* {DEVICES} devices"):
        devices.check_rows(rows, devices.rows(devices.data_mesh()))


def test_rows_that_they_can_share_are_not():
    devices.check_rows(16, devices.rows(devices.data_mesh()))
    devices.check_rows(7, devices.rows(mesh_of(1)))


def test_several_devices_do_what_one_does(start):
    """Dropout and the objective of the paper included, over five steps."""
    many, one = (train(stepper(n), start(), mesh_of(n), 5) for n in (DEVICES, 1))
    check_close(many, one)


def check_close(ours: Trace, theirs: Trace, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=tolerance)
    np.testing.assert_allclose(ours.norms, theirs.norms, rtol=10 * tolerance)
    for some, other in zip(*map(jax.tree.leaves, (ours.params, theirs.params))):
        np.testing.assert_allclose(some, other, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("count", "options"),
    [
        (1, {}),
        (2, {"accumulate": 2, "remat": 4}),
    ],
)
def test_the_way_of_computing_changes_nothing(start, count, options):
    """Rows of all lengths, one of them empty; dropout on; three steps."""
    options = {"residuals": "vectors", "products": "merged", **options}
    plain = train(stepper(1), start(), mesh_of(1), 3)
    check_close(train(stepper(count, **options), start(), mesh_of(count), 3), plain)


def test_devices_that_split_the_vocabulary_do_what_one_does(x64):
    """In float64, with an optimiser whose moments are split too."""
    words, update = 12, build(OptimizerConfig(learning_rate=0.01), 4)
    config = dataclasses.replace(SIZES, dropout=Dropout(output=0.3))
    model = assembly.build(system("past-future-losses").model(config), words, words)
    params = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64), model.init(jax.random.key(1))
    )
    objective = Objective(subtractive=1.0)

    def run(*shape: int) -> Trace:
        count, axes = shape[0] * shape[1], (AxisType.Auto,) * 2
        some = jax.devices()[:count]
        mesh = jax.make_mesh(shape, ("data", "model"), axes, devices=some)
        state = steps.init_state(jax.tree.map(jnp.array, params), update)
        found = shardings(state, mesh)
        step = steps.make_train_step(
            *(model, objective, update, KEY, StepOptions(), mesh, found)
        )
        return train(step, jax.device_put(state, found), mesh, 3, place=False)

    check_close(run(1, 4), run(1, 1), 1e-10)  # two axes: tests/training/test_processes


def test_what_has_an_entry_for_each_word_is_split():
    mesh = devices.data_mesh(2)
    model = assembly.build(system("past-future-losses").model(SIZES), 12, 14)
    update = build(OptimizerConfig(), 4)
    state = jax.eval_shape(
        lambda: steps.init_state(
            model.init(jax.random.key(1)), update, StepOptions(ema=0.9)
        )
    )
    places = jax.tree_util.tree_flatten_with_path(shardings(state, mesh))[0]
    split = {
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, place in places
        if "model" in place.spec
    }
    one = ["source_embedding", "target_embedding", "output/W/0", "output/b"]
    one += [f"auxiliary/{n}/{part}" for n in range(2) for part in ("W/0", "b")]
    assert {name for name in split if name.startswith("params/")} == {
        f"params/{name}" for name in one
    }
    # The parameters, their mean, and both moments of Adam.
    assert len(split) == 4 * len(one)


@pytest.mark.parametrize("part", ["decoder/rounds/0/attention", "target_context"])
@pytest.mark.parametrize("name", ["output", "auxiliary/0"])
def test_what_a_mechanism_calls_so_is_whole(part, name):
    """Its width need not divide, either."""
    layer: Any = {"W": [jnp.zeros((3, 5))], "b": jnp.zeros(5)}
    for key in reversed(f"params/{part}/{name}".split("/")):
        layer = {key: layer}
    for place in jax.tree.leaves(shardings(layer, devices.data_mesh(2))):
        assert place.spec == PartitionSpec()


def test_a_vocabulary_that_cannot_be_split_is_told():
    mesh = devices.data_mesh(DEVICES)
    state = {"source_embedding": jnp.zeros((10, 3))}
    with pytest.raises(UserError, match="of 10 entries .* 4 devices; make it 8 with"):
        shardings(state, mesh)


def test_devices_that_cannot_be_grouped_are_told():
    told = f"model_axis is 3 but must divide the {DEVICES} devices .* start one process"
    with pytest.raises(UserError, match=told):
        devices.data_mesh(3)


def test_unequal_numbers_of_devices_are_told(monkeypatch):
    """JAX would fail later, on the rows of a batch."""
    held = [SimpleNamespace(process_index=n) for n in (0, 0, 1, 2, 2)]
    monkeypatch.setattr(jax, "devices", lambda: held)
    told = "process 1 has 1 device and process 0 has 2, .* CUDA_VISIBLE_DEVICES show 1"
    with pytest.raises(UserError, match=told):
        devices.data_mesh()


def test_devices_meet_outside_of_every_loop():
    """A gradient that met in every step of a scan would wait as often."""
    model, update = make_model("kvmematt-r2-atteos"), build(OptimizerConfig(), 4)
    mesh = mesh_of(DEVICES)
    state = steps.init_state(model.init(jax.random.key(1)), update)
    step = steps.make_train_step(model, Objective(), update, KEY, mesh=mesh)
    placed = devices.replicate(state, mesh), *devices.split_rows(make_batch(1), mesh)
    text = step.lower(*placed).compile().as_text()
    bodies = set(re.findall(r"body=%?([\w.\-]+)", text))
    meetings, inside = 0, ""
    for line in text.splitlines():
        if found := re.match(r"(?:ENTRY )?%?([\w.\-]+) .*\{$", line):
            inside = found[1]
        if re.search(r" all-(reduce|gather)(-start)?\(", line):
            meetings += 1
            assert inside not in bodies, line
    assert bodies and 1 <= meetings <= 4


def test_a_batch_is_split_by_rows():
    few = ROWS // DEVICES
    for array in devices.split_rows(make_batch(1), devices.data_mesh()):
        shapes = {shard.data.shape for shard in array.addressable_shards}
        assert shapes == {(few, *array.shape[1:])}
        assert len({shard.device for shard in array.addressable_shards}) == DEVICES
