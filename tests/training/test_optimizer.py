# SPDX-License-Identifier: Apache-2.0
"""Rates over time, and the optimisers against their papers' equations."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.errors import UserError
from kvnmt.training.optimizer import OptimizerConfig, build, learning_rate

EPOCH = 10  # steps
START = np.array([1.0, -2.0, 3.0])
GRADIENTS = np.array([[0.3, -0.4, 0.0], [3.0, 4.0, 12.0], [0.1, 0.1, -0.1]])


def rates(config: OptimizerConfig, steps: range) -> list[float]:
    schedule = learning_rate(config, EPOCH)
    return [float(schedule(jnp.asarray(step))) for step in steps]


@pytest.mark.parametrize(
    ("name", "rate"), [("adam", 0.001), ("adadelta", 1.0), ("sgd", 1.0)]
)
def test_each_optimizer_has_its_rate(name, rate):
    found = rates(OptimizerConfig(name=name), range(0, 50, 7))
    np.testing.assert_allclose(found, rate, rtol=1e-6)
    found = rates(OptimizerConfig(name=name, learning_rate=0.5), range(0, 50, 7))
    np.testing.assert_allclose(found, 0.5, rtol=1e-6)


def test_the_rate_falls_after_every_epoch():
    config = OptimizerConfig(learning_rate=1.0, decay=0.5)
    expected = [0.5 ** (step // EPOCH) for step in range(50)]
    np.testing.assert_allclose(rates(config, range(50)), expected, rtol=1e-6)


@pytest.mark.parametrize("epoch", [41, 61, 454])
def test_a_compiled_rate_falls_in_time(epoch):
    """A quotient of float32, compiled as a product, is less than 1 for such epochs."""
    schedule = learning_rate(OptimizerConfig(learning_rate=1.0, decay=0.5), epoch)
    steps = [n * epoch + place for n in (1, 2, 3) for place in (-1, 0)]
    found = [float(jax.jit(schedule)(jnp.int32(step))) for step in steps]
    np.testing.assert_allclose(found, [1, 0.5, 0.5, 0.25, 0.25, 0.125], rtol=1e-6)
    assert found == [float(schedule(step)) for step in steps]


@pytest.mark.parametrize("warmup", [0, 4])
def test_a_rate_may_fall_to_nothing(warmup):
    """From the end of the warm-up on, along a line or half a cosine."""
    end, some = 24, range(warmup, 30)
    share = np.minimum((np.array(some) - warmup) / (end - warmup), 1)
    for schedule, wanted in (
        ("linear", 1 - share),
        ("cosine", np.cos(share * np.pi / 2) ** 2),
    ):
        config = OptimizerConfig(
            learning_rate=3.0, warmup=warmup, schedule=schedule, schedule_steps=end
        )
        found = rates(config, some)
        np.testing.assert_allclose(found, 3 * wanted, rtol=1e-5, atol=1e-6)
        assert rates(config, range(warmup)) == [3 * (n + 1) / 4 for n in range(warmup)]
        given_up = dataclasses.replace(config, schedule="constant")
        assert rates(given_up, some) == [3.0] * len(some)
        endless = dataclasses.replace(config, schedule_steps=None)
        with pytest.raises(UserError, match="ends at .*_steps, which is None"):
            learning_rate(endless, EPOCH)


@pytest.mark.parametrize("schedule", ["constant", "inverse_sqrt"])
@pytest.mark.parametrize("warmup", [0, 7])
def test_the_rate_that_is_written_down_is_that_of_the_step(schedule, warmup):
    config = OptimizerConfig(
        learning_rate=0.3, decay=0.5, decay_after=2, warmup=warmup, schedule=schedule
    )
    host, device = (learning_rate(config, EPOCH, library) for library in (np, jnp))
    ours, theirs = (
        [float(rate(step)) for step in range(50)] for rate in (host, device)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert not isinstance(host(3), jax.Array)


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_the_rate_falls_first_at_the_end_of_a_given_epoch(epoch):
    config = OptimizerConfig(learning_rate=1.0, decay=0.5, decay_after=epoch)
    expected = [0.5 ** max(step // EPOCH - epoch + 1, 0) for step in range(50)]
    assert expected[epoch * EPOCH - 1] == 1 and expected[epoch * EPOCH] == 0.5
    np.testing.assert_allclose(rates(config, range(50)), expected, rtol=1e-6)


def test_the_rate_rises_at_first():
    config = OptimizerConfig(learning_rate=2.0, warmup=4, decay=0.5)
    expected = [0.5, 1, 1.5, 2, 2, 2, 2, 2, 2, 2, 1, 1]
    np.testing.assert_allclose(rates(config, range(12)), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("warmup", "expected"),
    [
        (4, [0.5, 1, 1.5, 2, 2 * (4 / 5) ** 0.5, 2 * (4 / 6) ** 0.5]),
        (0, [2, 2 / 2**0.5, 2 / 3**0.5, 1, 2 / 5**0.5, 2 / 6**0.5]),
    ],
)
def test_the_rate_falls_as_the_root_of_steps(warmup, expected):
    """All that is given acts together: halves by the epoch, too."""
    config = OptimizerConfig(
        learning_rate=2.0, warmup=warmup, schedule="inverse_sqrt", decay=0.5
    )
    np.testing.assert_allclose(rates(config, range(6)), expected, rtol=1e-6)
    tenth = 2 * (max(warmup, 1) / 11) ** 0.5 / 2
    np.testing.assert_allclose(rates(config, range(10, 11)), tenth, rtol=1e-6)


def clipped(limit: float) -> np.ndarray:
    norms = np.linalg.norm(GRADIENTS, axis=1, keepdims=True)
    return GRADIENTS * np.minimum(1, limit / norms) if limit else GRADIENTS


def adam(
    gradients: np.ndarray,
    rate: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> np.ndarray:
    """Kingma and Ba (2015), algorithm 1."""
    x, m, v = START.copy(), np.zeros(3), np.zeros(3)
    for t, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        x -= rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
    return x


def adadelta(gradients: np.ndarray, rate: float) -> np.ndarray:
    """Zeiler (2012), algorithm 1, with rho 0.95 and epsilon 1e-6."""
    x, g2, x2 = START.copy(), np.zeros(3), np.zeros(3)
    for g in gradients:
        g2 = 0.95 * g2 + 0.05 * g**2
        delta = -np.sqrt(x2 + 1e-6) / np.sqrt(g2 + 1e-6) * g
        x2 = 0.95 * x2 + 0.05 * delta**2
        x += rate * delta
    return x


def sgd(gradients: np.ndarray, rate: float, momentum: float = 0.0) -> np.ndarray:
    """Polyak (1964)."""
    x, moved = START.copy(), np.zeros(3)
    for g in gradients:
        moved = momentum * moved + g
        x -= rate * moved
    return x


@pytest.mark.parametrize("clip", [0.0, 0.2, 5.0])
@pytest.mark.parametrize(
    ("reference", "config"),
    [
        (adam, OptimizerConfig(learning_rate=0.1)),
        (partial(adam, beta2=0.9), OptimizerConfig(learning_rate=0.1, beta2=0.9)),
        (
            partial(adam, beta1=0.5, epsilon=0.1),
            OptimizerConfig(learning_rate=0.1, beta1=0.5, epsilon=0.1),
        ),
        (  # of matrices alone weights decay
            partial(adam, beta2=0.9),
            OptimizerConfig(learning_rate=0.1, beta2=0.9, weight_decay=0.5),
        ),
        (adadelta, OptimizerConfig(name="adadelta")),
        (sgd, OptimizerConfig(name="sgd", learning_rate=0.1)),
        (
            partial(sgd, momentum=0.9),
            OptimizerConfig(name="sgd", learning_rate=0.1, momentum=0.9),
        ),
    ],
)
def test_updates_are_those_of_the_papers(reference, config, clip):
    update = build(dataclasses.replace(config, clip=clip), EPOCH)
    params = {"x": jnp.asarray(START[:2], jnp.float32), "y": jnp.float32(START[2])}
    state = update.init(params)
    for g in GRADIENTS:
        gradient = {"x": jnp.asarray(g[:2], jnp.float32), "y": jnp.float32(g[2])}
        changes, state = update.update(gradient, state, params)
        params = {name: params[name] + changes[name] for name in params}
    expected = reference(clipped(clip), config.learning_rate or 1.0)
    found = np.append(params["x"], params["y"])
    np.testing.assert_allclose(found - START, expected - START, rtol=1e-4, atol=1e-7)


def test_weight_decay_takes_from_matrices_alone():
    """Loshchilov and Hutter (2019), algorithm 2, line 12: rate times decay times x."""
    params = {"W": jnp.ones((2, 2)), "b": jnp.ones(2)}
    still = {"W": jnp.zeros((2, 2)), "b": jnp.zeros(2)}
    update = build(OptimizerConfig(learning_rate=0.1, weight_decay=0.5), EPOCH)
    moved, _ = update.update(still, update.init(params), params)
    np.testing.assert_allclose(moved["W"], -0.05 * np.ones((2, 2)))
    np.testing.assert_array_equal(moved["b"], [0, 0])


@pytest.mark.parametrize(
    ("kind", "option", "name"),
    [
        ("adam", "weight_decay", "adadelta"),
        ("adam", "beta1", "sgd"),
        ("adam", "beta2", "sgd"),
        ("adam", "epsilon", "adadelta"),
        ("sgd", "momentum", "adam"),
    ],
)
def test_an_option_goes_with_its_optimizer_alone(kind, option, name):
    config = OptimizerConfig(name=name, **{option: 0.1})
    with pytest.raises(UserError, match=f"{option} goes with {kind}, not with {name}"):
        build(config, EPOCH)
