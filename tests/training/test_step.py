# SPDX-License-Identifier: Apache-2.0
"""One step: what it minimises, what it consumes, and who shares the work."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kvnmt import devices
from kvnmt.data.batches import Batch
from kvnmt.errors import OptionError, UserError
from kvnmt.training import step as steps
from kvnmt.training.freezing import check_frozen
from kvnmt.training.losses import Objective
from kvnmt.training.optimizer import OptimizerConfig, build
from kvnmt.training.step import StepOptions
from kvnmt.training.validation import make_eval_step
from tests.helpers import DEVICES
from tests.training.stepping import (
    KEY,
    LENGTH,
    OBJECTIVE,
    ROWS,
    WORDS,
    make_batch,
    make_model,
    mesh_of,
    stepper,
    train,
)

BY_SENTENCES = Objective(atteos=1.0, guided=0.5, normalization="sentences")


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
