# SPDX-License-Identifier: Apache-2.0
"""One step: what it minimises, what it consumes, and who shares the work."""

import dataclasses
import re
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, Mesh, PartitionSpec

from kvnmt import devices
from kvnmt.data.batches import Batch, LinkedBatch, pad, with_end
from kvnmt.errors import OptionError, UserError
from kvnmt.model import assembly
from kvnmt.model.assembly import Model
from kvnmt.model.config import Dropout
from kvnmt.systems.named import system
from kvnmt.training import step as steps
from kvnmt.training.freezing import check_frozen
from kvnmt.training.losses import Objective
from kvnmt.training.optimizer import OptimizerConfig, build
from kvnmt.training.sharding import shardings
from kvnmt.training.step import StepOptions
from kvnmt.training.validation import make_eval_step
from tests.helpers import DEVICES, SIZES

WORDS, ROWS, LENGTH = 9, 8, 6
KEY = jax.random.key(3)
OBJECTIVE = Objective(atteos=1.0, guided=0.5)
BY_SENTENCES = Objective(atteos=1.0, guided=0.5, normalization="sentences")


def make_model(
    name: str = "rnnsearch-star-atteos", dropout: float = 0.3, **changes: Any
) -> Model:
    config = dataclasses.replace(SIZES, dropout=Dropout(output=dropout), **changes)
    return assembly.build(system(name).model(config), WORDS, WORDS)


def make_batch(seed: int) -> LinkedBatch:
    """Pairs of all lengths; the last row holds nothing."""
    random = np.random.default_rng(seed)

    def side() -> np.ndarray:
        sizes = random.integers(0, LENGTH, ROWS - 1)
        words = (random.integers(1, WORDS, size).tolist() for size in sizes)
        return pad([with_end(ids) for ids in words], ROWS, LENGTH)

    source, target = side(), side()
    there = (target >= 0)[:, :, None] & (source >= 0)[:, None, :]
    return LinkedBatch(source, target, there & (random.random(there.shape) < 0.4))


def mesh_of(devices: int) -> Mesh:
    return jax.make_mesh(
        (devices,), ("data",), (AxisType.Auto,), devices=jax.devices()[:devices]
    )


class Trace(NamedTuple):
    """What some steps gave."""

    losses: list[float]
    norms: list[float]
    params: Any
    mean: Any


def train(
    run: Callable[..., Any],
    state: steps.TrainState,
    mesh: Mesh,
    count: int,
    place: bool = True,
) -> Trace:
    state = devices.replicate(state, mesh) if place else state
    losses, norms = [], []
    for seed in range(count):
        state, metrics = run(state, *devices.split_rows(make_batch(seed), mesh))
        losses.append(float(metrics.loss.total))
        norms.append(float(metrics.gradient_norm))
    return Trace(losses, norms, *jax.device_get((state.params, state.mean)))


@pytest.fixture(scope="module")
def start() -> Callable[[], steps.TrainState]:
    """Makes the same state again and again, since a step consumes it."""
    update = build(OptimizerConfig(learning_rate=0.01), 4)
    params = jax.device_get(make_model().init(jax.random.key(1)))
    return lambda: steps.init_state(jax.tree.map(jnp.array, params), update)


@cache
def stepper(count: int, **options: Any) -> Callable[..., Any]:
    """The compiled step on so many devices."""
    update = build(OptimizerConfig(learning_rate=0.01), 4)
    chosen = StepOptions(**options)
    mesh = mesh_of(count)
    return steps.make_train_step(make_model(), OBJECTIVE, update, KEY, chosen, mesh)


def test_the_mesh_has_every_device():
    assert devices.data_mesh().size == jax.device_count() == DEVICES


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("good", [False, True])
def test_only_sound_numbers_change_anything_on_any_platform(start, platform, good):
    def updated(state, gradients):
        params = jax.tree.map(jnp.add, state.params, gradients)
        return dataclasses.replace(state, params=params)

    state = start()
    ones = jax.tree.map(jnp.ones_like, state.params)
    found = steps._update_if(jnp.bool_(good), updated, state, ones, platform)
    for old, new in zip(*map(jax.tree.leaves, (state.params, found.params))):
        np.testing.assert_array_equal(new, old + good)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_are_of_the_type_that_is_asked_for(start, dtype):
    batch = devices.split_rows(make_batch(1), mesh_of(1))
    text = stepper(1, dtype=dtype).lower(start(), *batch).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert products and any("bf16" in line for line in products) == (
        dtype == "bfloat16"
    )


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


@pytest.mark.parametrize("ramp", [True, False])
def test_the_mean_of_the_parameters_follows_them(start, ramp):
    """By min(ema, (1 + t) / (10 + t)), or by as much in all steps."""
    mesh, run = mesh_of(1), stepper(1, ema=0.15, ema_ramp=ramp)
    params = start().params
    update = build(OptimizerConfig(learning_rate=0.01), 4)
    state = steps.init_state(params, update, StepOptions(ema=0.15))
    state = devices.replicate(state, mesh)
    mean = jax.device_get(state.params)
    for number, decay in enumerate([0.1 if ramp else 0.15, 0.15, 0.15]):
        state, _ = run(state, *devices.split_rows(make_batch(number), mesh))
        mean = jax.tree.map(
            lambda old, new: decay * old + (1 - decay) * np.asarray(new),  # noqa: B023
            mean,
            jax.device_get(state.params),
        )
    assert state.served is state.mean
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7),
        *(jax.device_get(state.mean), mean),
    )


def test_the_scale_is_that_of_the_rate(start):
    def moved(scale: float) -> list[np.ndarray]:
        state = devices.replicate(start(), mesh_of(1))
        before = jax.device_get(state.params)
        state = state.replace(scale=jnp.float32(scale))
        batch = devices.split_rows(make_batch(1), mesh_of(1))
        after = jax.device_get(stepper(1)(state, *batch)[0].params)
        return [b - a for a, b in zip(*map(jax.tree.leaves, (before, after)))]

    for whole, half in zip(moved(1.0), moved(0.5)):
        np.testing.assert_allclose(half, whole / 2, rtol=1e-3, atol=1e-7)


def test_a_batch_is_split_by_rows():
    few = ROWS // DEVICES
    for array in devices.split_rows(make_batch(1), devices.data_mesh()):
        shapes = {shard.data.shape for shard in array.addressable_shards}
        assert shapes == {(few, *array.shape[1:])}
        assert len({shard.device for shard in array.addressable_shards}) == DEVICES


def test_the_same_steps_give_the_same_bits(start):
    some, others = (
        train(stepper(DEVICES), start(), mesh_of(DEVICES), 3) for _ in range(2)
    )
    assert some.losses == others.losses
    jax.tree.map(np.testing.assert_array_equal, some.params, others.params)


def test_masks_change_with_the_step(start):
    mesh, batch = mesh_of(1), make_batch(1)

    def loss(step: int) -> float:
        state = devices.replicate(start().replace(step=jnp.int32(step)), mesh)
        return float(stepper(1)(state, *devices.split_rows(batch, mesh))[1].loss.nats)

    losses = [loss(step) for step in range(3)]
    assert len(set(losses)) == len(losses)
    assert loss(1) == losses[1]


def test_a_step_goes_down_the_gradient_per_real_token():
    model, batch = make_model(dropout=0.0), make_batch(5)
    params = jax.device_get(model.init(jax.random.key(1)))
    source, target = jnp.asarray(batch.source), jnp.asarray(batch.target)

    def mean(params) -> jax.Array:
        logits = model.forward(params, source, target).logits
        words = jax.nn.one_hot(target, WORDS)  # of padding: all zero
        return -jnp.sum(jax.nn.log_softmax(logits) * words) / jnp.sum(words)

    value, gradient = jax.jit(jax.value_and_grad(mean))(params)
    update = optax.sgd(1.0)
    state = steps.init_state(jax.tree.map(jnp.array, params), update)
    mesh = devices.data_mesh()
    step = steps.make_train_step(model, Objective(), update, KEY, mesh=mesh)
    new, metrics = step(
        devices.replicate(state, mesh), *devices.split_rows(batch, mesh)
    )
    sums = metrics.loss
    assert int(sums.tokens) == np.sum(batch.target >= 0)
    np.testing.assert_allclose(sums.total / sums.tokens, value, rtol=1e-5)
    np.testing.assert_allclose(
        metrics.gradient_norm, optax.tree.norm(gradient), rtol=1e-4
    )
    for before, after, slope in zip(
        *map(jax.tree.leaves, (params, new.params, gradient))
    ):
        np.testing.assert_allclose(before - after, slope, rtol=1e-3, atol=1e-6)
    assert int(new.step) == 1


def test_a_gradient_of_sentences_is_longer_by_their_tokens():
    """As in the papers' codes; a row that holds nothing is no sentence."""
    model, batch, update = make_model(dropout=0.0), make_batch(2), optax.sgd(1.0)
    mesh, norms = devices.data_mesh(), []
    for objective in (OBJECTIVE, BY_SENTENCES):
        params = jax.tree.map(jnp.copy, model.init(KEY))
        state = devices.replicate(steps.init_state(params, update), mesh)
        step = steps.make_train_step(model, objective, update, KEY, mesh=mesh)
        _, metrics = step(state, *devices.split_rows(batch, mesh))
        norms.append(float(metrics.gradient_norm))
    tokens = np.sum(batch.target >= 0)
    np.testing.assert_allclose(norms[1], norms[0] * tokens / (ROWS - 1), rtol=1e-5)


def test_what_is_frozen_stays_to_the_bit_and_the_rest_learns():
    """Under weight decay too, as its mean does; the gradient is that of the rest."""
    model, frozen = make_model(), ("encoder", "*_embedding", "decoder/rounds/*/W_query")
    update = build(OptimizerConfig(learning_rate=0.01, weight_decay=0.1), 4)
    params, norms = jax.device_get(model.init(jax.random.key(1))), []
    for names in (frozen, ()):
        options = StepOptions(frozen=names, accumulate=2, ema=0.9)
        mesh, arrays = mesh_of(2), jax.tree.map(jnp.array, params)
        step = steps.make_train_step(model, OBJECTIVE, update, KEY, options, mesh)
        state = steps.init_state(arrays, update, options)
        other = jax.tree.map(lambda leaf: leaf + 1, jax.device_get(state.mean))
        trace = train(step, dataclasses.replace(state, mean=other), mesh, 2)
        norms.append(trace.norms[0])
        paths = jax.tree.leaves_with_path(trace.params)
        means = map(jax.tree.leaves, (trace.mean, other))
        for (path, after), before, *of_mean in zip(
            paths, jax.tree.leaves(params), *means
        ):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            still = name.startswith("encoder/") or name.endswith(
                ("embedding", "W_query")
            )
            assert np.array_equal(after, before) == (still and bool(names)), name
            assert np.array_equal(*of_mean) == (still and bool(names)), name
    assert norms[0] < norms[1]
    check_frozen(params, frozen)
    with pytest.raises(OptionError, match="no array 'encodr'; did you mean 'encoder'"):
        check_frozen(params, ("encodr",))
    # As of a model whose source words are rows of the target's table.
    tied = dataclasses.replace(params, source_embedding=np.zeros((5, 0)))
    with pytest.raises(UserError, match="there is no array 'source_embedding'"):
        check_frozen(tied, ("source_embedding",))
    tied = dataclasses.replace(params, output=params.output.replace(W=()))
    with pytest.raises(OptionError, match="tied to target_embedding; name that, too"):
        check_frozen(tied, ("output", "encoder"))
    check_frozen(tied, ("output/b",))
    check_frozen(tied, ("output", "target_embedding"))
    with pytest.raises(OptionError, match="nothing to train"):
        check_frozen(params, ("*",))


def test_options_that_do_nothing_or_are_none_are_refused():
    """By whoever makes a step of one's own, too."""
    model, batch, update = make_model(), make_batch(1), optax.sgd(1.0)
    options = StepOptions(ema=0.9)
    step = steps.make_train_step(model, OBJECTIVE, update, KEY, options)
    with pytest.raises(UserError, match="give the same options to init_state"):
        step(steps.init_state(model.init(KEY), update), *batch)
    for options, objective in (
        (StepOptions(dtype="float16"), OBJECTIVE),  # pyright: ignore
        (StepOptions(), Objective(label_smoothing=10)),
    ):
        with pytest.raises(UserError, match="must be"):
            steps.make_train_step(model, objective, update, KEY, options)
    with pytest.raises(UserError, match="adam"):
        build(OptimizerConfig(name="adamw"), 9)  # pyright: ignore
    step = steps.make_train_step(model, OBJECTIVE, update, KEY)
    with pytest.raises(UserError, match="links between words; give these too"):
        step(steps.init_state(model.init(KEY), update), *batch[:2])


def test_a_batch_without_words_changes_nothing():
    model, update = make_model(dropout=0.0), optax.sgd(1.0)
    params = jax.device_get(model.init(jax.random.key(1)))
    state = steps.init_state(jax.tree.map(jnp.array, params), update)
    nothing = Batch(*(np.full((ROWS, LENGTH), -1, np.int32),) * 2)
    mesh = devices.data_mesh()
    step = steps.make_train_step(model, Objective(), update, KEY, mesh=mesh)
    new, metrics = step(
        devices.replicate(state, mesh), *devices.split_rows(nothing, mesh)
    )
    assert float(metrics.loss.total) == 0
    for before, after in zip(*map(jax.tree.leaves, (params, new.params))):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("count", [1, DEVICES])
def test_a_loss_that_is_no_number_changes_nothing(count):
    """But the number of the step, which says what comes next."""
    model, update = make_model(), build(OptimizerConfig(learning_rate=0.01), 4)

    def bad_forward(params, *inputs, **options):
        prediction = model.forward(params, *inputs, **options)
        heads = (head.replace(x=head.x * jnp.nan) for head in prediction.heads)
        return prediction.replace(heads=tuple(heads))

    bad, mesh = model._replace(forward=bad_forward), mesh_of(count)
    options = StepOptions(ema=0.5)
    state = steps.init_state(model.init(jax.random.key(1)), update, options)
    before = jax.device_get(state)
    step = steps.make_train_step(bad, OBJECTIVE, update, KEY, options, mesh)
    batch = devices.split_rows(make_batch(1), mesh)
    after, metrics = step(devices.replicate(state, mesh), *batch)
    assert metrics.skipped and int(after.step) == 1
    same = jax.device_get(after.replace(step=before.step))
    jax.tree.map(np.testing.assert_array_equal, same, before)


@pytest.mark.parametrize(("precision", "whole"), [("fast", False), ("float32", True)])
def test_float32_products_are_whole_where_they_are_asked_for(start, precision, whole):
    """Of every product, forward and backward; a TPU's own default is bfloat16."""
    options = StepOptions(precision=precision)
    step = steps.make_train_step(make_model(), OBJECTIVE, optax.sgd(1.0), KEY, options)
    state = steps.init_state(start().params, optax.sgd(1.0))
    traced = step.program.trace(step.key, state, *make_batch(1))
    lowered = traced.lower(lowering_platforms=("tpu",))
    products = [x for x in lowered.as_text().splitlines() if "dot_general" in x]
    assert len(products) > 20
    assert {"HIGHEST" in product for product in products} == {whole}


def test_products_are_else_as_jax_is_told(start):
    step = steps.make_train_step(
        make_model(), OBJECTIVE, optax.sgd(1.0), KEY, StepOptions()
    )
    state = steps.init_state(start().params, optax.sgd(1.0))
    with jax.default_matmul_precision("highest"):
        traced = str(step.program.trace(step.key, state, *make_batch(1)).jaxpr)
    assert "Precision.HIGHEST" in traced and "Precision.DEFAULT" not in traced


def test_a_step_consumes_its_state(start):
    mesh = mesh_of(1)
    state = devices.replicate(start(), mesh)
    stepper(1)(state, *devices.split_rows(make_batch(1), mesh))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.params))


@pytest.mark.parametrize("name", ["rnnsearch-star-atteos", "past-future-losses"])
def test_validation_is_plain_likelihood(name):
    """No dropout, no smoothing, no further objective; that of a mean of predictors."""
    model, batch = make_model(name, average_auxiliary=True), make_batch(2)
    params = model.init(jax.random.key(1))
    sums = make_eval_step(model)(params, *batch[:2])
    prediction = jax.jit(model.forward)(params, *batch[:2])
    gains = jnp.take_along_axis(
        jax.nn.log_softmax(prediction.logits),
        jnp.maximum(batch.target, 0)[..., None],
        axis=-1,
    )
    nats = -np.sum(np.where(batch.target >= 0, gains[..., 0], 0))
    np.testing.assert_allclose(sums.nats, nats, rtol=1e-5)
    np.testing.assert_allclose(sums.total, nats, rtol=1e-5)
    assert int(sums.tokens) == np.sum(batch.target >= 0)
