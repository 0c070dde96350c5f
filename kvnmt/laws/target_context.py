# SPDX-License-Identifier: Apache-2.0
"""The laws of a target context under its contract, and what they are tried on."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.laws.law import (
    LARGE,
    Law,
    differences,
    drawn,
    faults_of_form,
    faults_of_gradient,
    faults_of_init,
    faults_of_looks,
    faults_of_precision,
    faults_of_sharp,
    leaves,
    normal_numbers,
    normalised,
    not_finite,
)
from kvnmt.target_context import TargetContext
from kvnmt.typing import Array, PyTree, Sizes

# Widths differ, but that heads share the state's; small enough for every mechanism.
SIZES = Sizes(embedding=7, encoder=4, annotation=8, state=12, alignment=6)
B, T, SEEN = 3, 5, 3  # sentences, steps, and those before what is changed
ROOM = 2  # for steps that are not made, or none
COMPANIES = ([2, 0, 0], [1])  # one leaves and one comes twice; one alone


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
    draw = normal_numbers(3)
    return Trial(
        context=context,
        sizes=sizes,
        params=drawn(context.init, sizes),
        states=draw((B, T, sizes.state)),
        embedded=draw((B, T, sizes.embedding)).at[:, 0].set(0),
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


def init(trial: Trial) -> Iterator[str]:
    """The numbers that training starts from."""
    yield from faults_of_init(trial.context.init, trial.sizes)


def widths(trial: Trial) -> Iterator[str]:
    """Names, shapes and finite numbers of what the readout takes."""
    shapes = {name: array.shape for name, array in trial.course().items()}
    promised = trial.context.widths(trial.sizes)
    if "context" in promised:
        yield "context is the name of what the attention gives"
    if shapes != (want := {name: (B, T, width) for name, width in promised.items()}):
        yield f"it gives {shapes}, and its widths say {want}"
    yield from not_finite(trial.course())


def steps(trial: Trial) -> Iterator[str]:
    """What a search computes is what training computed."""
    for room in (0, ROOM):
        got = trial.steps(room, trial.params, trial.states, trial.embedded)
        yield from differences(trial.course(), got, tolerance=1e-5)


def earlier(trial: Trial) -> Iterator[str]:
    """Other numbers at later steps change nothing."""
    changed = [x.at[:, SEEN:].add(1.0) for x in (trial.states, trial.embedded)]
    first, got = (
        {name: array[:, :SEEN] for name, array in course.items()}
        for course in (trial.course(), trial.over_time(trial.params, *changed))
    )
    yield from differences(first, got, tolerance=1e-5)


def rows(trial: Trial) -> Iterator[str]:
    """Sentences in other rows and company."""
    for rows in map(np.array, COMPANIES):
        for run in (trial.over_time, partial(trial.steps, 0)):
            params, *inputs = _arrays(trial)
            want = {name: x[rows] for name, x in run(params, *inputs).items()}
            got = run(params, *(x[rows] for x in inputs))
            for difference in differences(want, got, tolerance=1e-5):
                yield f"in rows {rows.tolist()}, {difference}"


def state(trial: Trial) -> Iterator[str]:
    """What is carried keeps its form, and a search reorders its rows."""
    (_, taken), _, memories = _stepped(trial, *_arrays(trial))
    faults = list(faults_of_form(memories, B))
    yield from faults
    if faults:
        return
    order = np.array(COMPANIES[0])
    memory = jax.tree.map(lambda leaf: leaf[order], memories[SEEN])
    params, *inputs = _arrays(trial)
    for t in range(SEEN, T):
        memory, got = trial.context.step(params, memory, *(x[order, t] for x in inputs))
        want = {name: array[order] for name, array in taken[t].items()}
        for difference in differences(want, got, tolerance=1e-5):
            yield f"once rows are {COMPANIES[0]}, {difference}"


def hypotheses(trial: Trial) -> Iterator[str]:
    """As a search has them, on an axis behind the rows."""
    context, params = trial.context, trial.params

    @jax.jit
    def run(states: Array, embedded: Array) -> tuple[PyTree, PyTree]:
        memory = context.initial_state(params, trial.sizes, B, T, states.dtype)
        of = partial(context.step, params)
        given = [(memory, states[:, t], embedded[:, t]) for t in (0, 1)]
        each = [of(*now) for now in given]
        both, wanted = (
            jax.tree.map(lambda *x: jnp.stack(x, axis=1), *two) for two in (given, each)
        )
        return wanted, jax.vmap(of, in_axes=1, out_axes=1)(*both)

    yield from differences(*run(trial.states, trial.embedded), tolerance=1e-5)


def attended(trial: Trial) -> Iterator[str]:
    """Shares of what earlier words are in the mixture."""
    if trial.context.self_attention is None:
        return
    weights = np.asarray(trial.context.self_attention(*_arrays(trial)))
    yield from faults_of_looks(weights, B, T)


def precision(trial: Trial) -> Iterator[str]:
    """From bfloat16 come bfloat16 readout inputs; from float64 nothing less precise."""
    stepped = partial(_stepped, trial)
    yield from faults_of_precision(stepped, *_arrays(trial))


def large(trial: Trial) -> Iterator[str]:
    """Numbers far larger than usual: an exponential of a score may overflow."""
    inputs = (LARGE * x for x in (trial.states, trial.embedded))
    yield from not_finite(trial.over_time(trial.params, *inputs))
    usual = trial.states, trial.embedded
    yield from faults_of_sharp(lambda p: trial.over_time(p, *usual), trial.params)


def reach(trial: Trial) -> Iterator[str]:
    """The gradient reaches the parameters and something of what is read."""

    def total(params: PyTree, states: Array, embedded: Array) -> Array:
        course = trial.over_time(params, states, embedded)
        return jnp.asarray(sum(jnp.sum(jnp.sin(x)) for x in course.values()))

    gradient = jax.grad(total, argnums=(0, 1, 2))
    by_params, *read = gradient(trial.params, trial.states, trial.embedded)
    yield from faults_of_gradient(leaves(by_params))
    for params in normalised(trial.context.init, trial.sizes):
        by_params, *_ = gradient(params, trial.states, trial.embedded)
        yield from faults_of_gradient(leaves(by_params))
    if not all(np.isfinite(leaf).all() for leaf in read):
        yield "the gradient of what is read is not finite"
    elif not any(np.any(np.asarray(leaf) != 0) for leaf in read):
        yield "neither states nor words are read"


LAWS: tuple[Law[Trial], ...] = (
    Law("init", "parameters begin with finite numbers, drawn from the key", init),
    Law("widths", "what the readout takes has the promised shapes", widths),
    Law("steps", "step after step it computes what it computes at once", steps),
    Law("earlier", "no step sees a later one", earlier),
    Law("rows", "the rows of a batch do not know each other", rows),
    Law("state", "what is carried keeps its form, rows first", state),
    Law("hypotheses", "hypotheses of a search do not know each other", hypotheses),
    Law("attended", "`self_attention` tells weights of earlier words", attended),
    Law("large", "large numbers do not overflow", large),
    Law("precision", "results have the types of what is given, or finer", precision),
    Law("reach", "the loss has a finite gradient in every parameter", reach),
)


def _arrays(trial: Trial) -> tuple[PyTree, Array, Array]:
    return trial.params, trial.states, trial.embedded


def _stepped(
    trial: Trial, params: PyTree, states: Array, embedded: Array
) -> tuple[PyTree, PyTree, list[PyTree]]:
    """At once, step by step, and what was carried."""
    at_once = trial.context.over_time(params, states, embedded)
    memory = trial.context.initial_state(params, trial.sizes, B, T, states.dtype)
    memories, taken = [memory], []
    for t in range(T):
        memory, inputs = trial.context.step(
            params, memory, states[:, t], embedded[:, t]
        )
        memories.append(memory)
        taken.append(inputs)
    return (at_once, taken), (), memories
