# SPDX-License-Identifier: Apache-2.0
"""The laws of a target context under its contract, and what they are tried on."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.initializers import gaussian
from kvnmt.laws.law import Law, differences, leaves
from kvnmt.target_context import TargetContext
from kvnmt.typing import Array, PyTree, Sizes

# Widths differ, but that heads share the state's; small enough for every mechanism.
SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=12, alignment=6)
B, T, SEEN = 3, 5, 3  # sentences, steps, and those before what is changed
ROOM = 2  # for steps that are not made, or none
ROWS = np.array([2, 0, 0])


class Trial(NamedTuple):
    """A target context, what it works on, and its two compiled forms."""

    context: TargetContext
    sizes: Sizes
    params: PyTree
    states: Array  # [B, T, D]
    embedded: Array  # [B, T, E]; no word precedes the first
    over_time: Callable[..., dict[str, Array]]  # of params, states, embedded
    steps: Callable[..., dict[str, Array]]  # of room too, step after step

    def course(self) -> dict[str, Array]:
        """What the readout takes with the arrays as they are."""
        return self.over_time(self.params, self.states, self.embedded)


def make_trial(context: TargetContext, sizes: Sizes = SIZES) -> Trial:
    """Draws parameters, states and words, none of them tiny."""
    shapes = jax.eval_shape(
        lambda key: context.init(key, sizes, gaussian()), jax.random.key(0)
    )
    normal = np.random.default_rng(3).normal

    def draw(*shape: int) -> Array:
        return jax.device_put(normal(0, 1, shape).astype(np.float32))

    return Trial(
        context=context,
        sizes=sizes,
        params=jax.tree.map(lambda leaf: draw(*leaf.shape), shapes),
        states=draw(B, T, sizes.state),
        embedded=draw(B, T, sizes.embedding).at[:, 0].set(0),
        over_time=jax.jit(context.over_time),
        steps=jax.jit(partial(unroll, context, sizes), static_argnums=0),
    )


def unroll(
    context: TargetContext, sizes: Sizes, room: int, params: PyTree, *xs: Array
) -> dict[str, Array]:
    """Takes step after step, with room for some more."""
    states, embedded = (jnp.swapaxes(x, 0, 1) for x in xs)

    length, rows = states.shape[:2]

    def step(memory: PyTree, now: tuple[Array, Array]) -> tuple[PyTree, PyTree]:
        return context.step(params, memory, *now)

    memory = context.initial_state(params, sizes, rows, length + room, states.dtype)
    _, results = jax.lax.scan(step, memory, (states, embedded))
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), results)


def widths(trial: Trial) -> Iterator[str]:
    """Names, shapes and finite numbers of what the readout takes."""
    shapes = {name: array.shape for name, array in trial.course().items()}
    promised = trial.context.widths(trial.sizes)
    if shapes != (want := {name: (B, T, width) for name, width in promised.items()}):
        yield f"it gives {shapes}, and its widths say {want}"
    for name, array in leaves(trial.course()):
        if not np.isfinite(array).all():
            yield f"{name} is not finite"


def steps(trial: Trial) -> Iterator[str]:
    """What a search computes is what training computed."""
    for room in (0, ROOM):
        got = trial.steps(room, trial.params, trial.states, trial.embedded)
        yield from _compared(trial.course(), got)


def earlier(trial: Trial) -> Iterator[str]:
    """Other numbers at later steps change nothing."""
    changed = [x.at[:, SEEN:].add(1.0) for x in (trial.states, trial.embedded)]
    first, got = (
        {name: array[:, :SEEN] for name, array in course.items()}
        for course in (trial.course(), trial.over_time(trial.params, *changed))
    )
    yield from _compared(first, got)


def rows(trial: Trial) -> Iterator[str]:
    """Sentences in other rows and company."""
    other = trial.over_time(trial.params, trial.states[ROWS], trial.embedded[ROWS])
    want = {name: array[ROWS] for name, array in trial.course().items()}
    yield from _compared(want, other)


def reach(trial: Trial) -> Iterator[str]:
    """The gradient reaches the parameters and something of what is read."""

    def total(params: PyTree, states: Array, embedded: Array) -> Array:
        course = trial.over_time(params, states, embedded)
        return jnp.asarray(sum(jnp.sum(jnp.sin(x)) for x in course.values()))

    gradient = jax.grad(total, argnums=(0, 1, 2))
    by_params, *read = gradient(trial.params, trial.states, trial.embedded)
    for name, leaf in leaves(by_params):
        if not np.isfinite(leaf).all():
            yield f"the gradient of {name} is not finite"
        elif not np.any(leaf != 0):
            yield f"the gradient of {name} is 0"
    if not all(np.isfinite(leaf).all() for leaf in read):
        yield "the gradient of what is read is not finite"
    elif not any(np.any(np.asarray(leaf) != 0) for leaf in read):
        yield "neither states nor words are read"


LAWS: tuple[Law[Trial], ...] = (
    Law("widths", "what the readout takes has the promised shapes", widths),
    Law("steps", "step after step it computes what it computes at once", steps),
    Law("earlier", "no step sees a later one", earlier),
    Law("rows", "the rows of a batch do not know each other", rows),
    Law("reach", "the loss has a finite gradient in every parameter", reach),
)


def _compared(want: dict[str, Array], got: dict[str, Array]) -> Iterator[str]:
    if want.keys() != got.keys():
        yield f"it gives {sorted(got)}, not {sorted(want)}"
    else:
        yield from differences(want, got, tolerance=1e-5)
