# SPDX-License-Identifier: Apache-2.0
"""The laws of a decoder under its contract."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.decoder import Features, whole_step
from kvnmt.encoder import Encoded
from kvnmt.laws.decoder_trial import MASK, B, S, T, Trial, at_once, stepped
from kvnmt.laws.law import (
    LARGE,
    Law,
    differences,
    faults_of_form,
    faults_of_gradient,
    faults_of_init,
    faults_of_looks,
    faults_of_precision,
    faults_of_sharp,
    leaves,
    named,
    normalised,
    not_finite,
    unchanged,
)
from kvnmt.typing import Array, PyTree

SEEN = 2  # steps before those that are changed
ROOM, MORE = 2, 2  # for steps that are not made, columns of padding
COMPANIES = ([2, 0, 0], [1])  # one leaves and one comes twice; one alone


def init(trial: Trial) -> Iterator[str]:
    """The numbers that training starts from."""
    yield from faults_of_init(trial.decoder.init, trial.sizes)


def source(trial: Trial) -> Iterator[str]:
    """Every array of the Source begins with the rows, however many there are."""
    for rows in (B, B - 1):
        encoded = jax.tree.map(lambda x, rows=rows: x[:rows], trial.encoded)
        prepared = jax.eval_shape(trial.decoder.prepare, trial.params, encoded)
        for name, leaf in named(prepared):
            if leaf.shape[:1] != (rows,):
                yield f"of {rows} rows, {name} has shape {leaf.shape}"


def widths(trial: Trial) -> Iterator[str]:
    """Names, shapes and finite numbers of what readout, losses and people take."""
    found, decoder, sizes = trial.course(), trial.decoder, trial.sizes
    have = {"state": found.state, **found.extras}
    if found.context is None:
        yield "it gives no context"
    else:
        have["context"] = found.context
    promised = {"state": sizes.state, **decoder.feature_sizes(sizes)}
    shapes = {name: x.shape for name, x in have.items()}
    if shapes != (want := {name: (B, T, width) for name, width in promised.items()}):
        yield f"it gives {shapes}, and its feature_sizes say {want}"
    auxiliary = tuple(x.shape for x in found.auxiliary)
    if auxiliary != tuple((B, T, n) for n in decoder.auxiliary_sizes(sizes)):
        yield f"what predicts on its own has shapes {auxiliary}"
    for alignment in found.alignments:
        if alignment.shape != (B, T, S):
            yield f"an alignment has shape {alignment.shape} of {B, T, S}"
    if found.waiting is not None:
        yield "`attend` leaves what `step` let wait"
    yield from not_finite(found)


def handed_on(trial: Trial) -> Iterator[str]:
    """Another source, though all begins alike, gives another state.

    A readout without layers hands on the state alone.
    """
    decoder, params = trial.decoder, trial.params
    if not decoder.state_reads:
        return

    @jax.jit
    def second_state(source: PyTree, state: PyTree) -> Array:
        for t in (0, 1):
            inputs = decoder.inputs(params, trial.embedded[:, t])
            state, features = whole_step(decoder, params, source, state, inputs)
        return features.state

    other = replace(trial.encoded, annotations=-trial.encoded.annotations)
    sources = [decoder.prepare(params, encoded) for encoded in (trial.encoded, other)]
    begun = decoder.initial_state(params, sources[0], T)
    first, second = (second_state(source, begun) for source in sources)
    if np.array_equal(first, second):
        yield "no state has read the source: say `state_reads=False`"


def keys(trial: Trial) -> Iterator[str]:
    """With the keys of training features keep their shapes, and each row its draw."""
    drawn = jax.random.split(jax.random.key(5), B)
    found = trial.at_once(*_arrays(trial), drawn)
    form, want = (jax.tree.map(jnp.shape, _shown(x)) for x in (found, trial.course()))
    if form != want:
        yield "with keys it gives features of another form"
    yield from not_finite(found)
    order = np.array(COMPANIES[0])
    arrays = jax.tree.map(lambda x: x[order], (trial.encoded, trial.embedded, drawn))
    got = trial.at_once(trial.params, *arrays)
    want = jax.tree.map(lambda x: x[order], found)
    for difference in differences(want, got, tolerance=1e-5):
        yield f"with keys, in rows {COMPANIES[0]}, {difference}"


def padding(trial: Trial) -> Iterator[str]:
    """Alignments are distributions over the words that are there."""
    alignments = [np.asarray(a) for a in trial.course().alignments]
    for number, alignment in enumerate(alignments, start=1):
        if alignment.shape != (B, T, S):
            continue  # see `widths`
        if np.any(np.moveaxis(alignment, 2, 1)[~MASK] != 0):
            yield f"alignment {number} looks at padding"
        if np.any(alignment < 0) or np.any(alignment.sum(axis=2) > 1 + 1e-5):
            yield f"alignment {number} is negative somewhere or sums to more than 1"


def steps(trial: Trial) -> Iterator[str]:
    """What a search computes is what training computed."""
    for room in (0, ROOM):
        each, _ = trial.stepped(T + room, *_arrays(trial))
        together = jax.tree.map(lambda *x: jnp.stack(x, axis=1), *map(_shown, each))
        yield from differences(_shown(trial.course()), together, tolerance=1e-5)


def earlier(trial: Trial) -> Iterator[str]:
    """Other words later on change nothing."""
    other = trial.embedded.at[:, SEEN:].add(1.0)
    changed = trial.at_once(trial.params, trial.encoded, other)
    first, got = (
        jax.tree.map(lambda x: x[:, :SEEN], _shown(features))
        for features in (trial.course(), changed)
    )
    yield from differences(first, got, tolerance=1e-5)


def wider(trial: Trial) -> Iterator[str]:
    """More columns of padding change nothing."""
    encoded = replace(
        trial.encoded,
        annotations=jnp.pad(trial.encoded.annotations, ((0, 0), (0, MORE), (0, 0))),
        mask=jnp.pad(trial.encoded.mask, ((0, 0), (0, MORE))),
    )
    got = trial.at_once(trial.params, encoded, trial.embedded)
    cut = replace(got, alignments=tuple(a[..., :S] for a in got.alignments))
    yield from differences(trial.course(), cut, tolerance=1e-5)


def rows(trial: Trial) -> Iterator[str]:
    """Sentences in other rows and company."""
    for rows in map(np.array, COMPANIES):
        encoded, embedded, want = jax.tree.map(
            lambda x, rows=rows: x[rows],
            (trial.encoded, trial.embedded, trial.course()),
        )
        got = trial.at_once(trial.params, encoded, embedded)
        for difference in differences(want, got, tolerance=1e-5):
            yield f"in rows {rows.tolist()}, {difference}"


def state(trial: Trial) -> Iterator[str]:
    """What is carried keeps its form, rows first; a search reorders them."""
    features, states = trial.stepped(T, *_arrays(trial))
    faults = list(faults_of_form(states, B))
    # Some of it may be constant, such as masks that are drawn once.
    if not faults and len(unchanged(states)) == len(jax.tree.leaves(states[0])) > 0:
        faults = ["after every word all of it is what it was at first"]
    yield from faults
    if faults:
        return
    order = np.array(COMPANIES[0])
    encoded, embedded, now, want = jax.tree.map(
        lambda x: x[order],
        (trial.encoded, trial.embedded, states[SEEN], features[SEEN]),
    )
    constants = trial.decoder.prepare(trial.params, encoded)
    inputs = trial.decoder.inputs(trial.params, embedded[:, SEEN])
    _, got = whole_step(trial.decoder, trial.params, constants, now, inputs)
    for difference in differences(want, got, tolerance=1e-5):
        yield f"once rows are {COMPANIES[0]}, {difference}"


def hypotheses(trial: Trial) -> Iterator[str]:
    """As a search has them, on an axis behind the rows, with one Source for all."""
    decoder, params = trial.decoder, trial.params

    @jax.jit
    def run(encoded: Encoded, embedded: Array) -> tuple[PyTree, PyTree]:
        constants = decoder.prepare(params, encoded)
        begun = decoder.initial_state(params, constants, T)
        of = partial(whole_step, decoder, params, constants)
        given = [(begun, decoder.inputs(params, embedded[:, t])) for t in (0, 1)]
        each = [of(*pair) for pair in given]
        both, wanted = (
            jax.tree.map(lambda *x: jnp.stack(x, axis=1), *two) for two in (given, each)
        )
        return wanted, jax.vmap(of, in_axes=1, out_axes=1)(*both)

    yield from differences(*run(trial.encoded, trial.embedded), tolerance=1e-5)


def attended(trial: Trial) -> Iterator[str]:
    """Shares of what earlier states are in a mixture."""
    looks = trial.course().self_attention
    if looks is not None:
        yield from faults_of_looks(np.asarray(looks)[..., :T], B, T)


def large(trial: Trial) -> Iterator[str]:
    """Numbers far larger than usual: an exponential of a score may overflow."""
    annotations = LARGE * trial.encoded.annotations
    encoded = replace(trial.encoded, annotations=annotations)
    yield from not_finite(trial.at_once(trial.params, encoded, LARGE * trial.embedded))
    usual = trial.encoded, trial.embedded
    yield from faults_of_sharp(lambda p: trial.at_once(p, *usual), trial.params)


def precision(trial: Trial) -> Iterator[str]:
    """From bfloat16 come bfloat16 features; from float64 nothing less precise."""

    def results(*arrays: PyTree) -> tuple[PyTree, PyTree, list[PyTree]]:
        found, (_, states) = (
            at_once(trial.decoder, *arrays),
            stepped(trial.decoder, T, *arrays),
        )
        seen = {"alignment": found.alignments, "self_attention": found.self_attention}
        return replace(found, alignments=(), self_attention=None), seen, states

    yield from faults_of_precision(results, *_arrays(trial))


def reach(trial: Trial) -> Iterator[str]:
    """The gradient of the features reaches parameters, annotations and words."""

    def total(params: PyTree, annotations: Array, embedded: Array) -> Array:
        encoded = replace(trial.encoded, annotations=annotations)
        found = trial.at_once(params, encoded, embedded)
        read = jax.tree.leaves(replace(_shown(found), alignments=()))
        return jnp.asarray(sum(jnp.sum(jnp.sin(leaf)) for leaf in read))

    gradient = jax.grad(total, argnums=(0, 1, 2))
    for params in (trial.params, *normalised(trial.decoder.init, trial.sizes)):
        by_params, by_annotations, by_words = gradient(
            params, trial.encoded.annotations, trial.embedded
        )
        read = {"the annotations": by_annotations, "the words": by_words}
        yield from faults_of_gradient([*leaves(by_params), *leaves(read)])


LAWS: tuple[Law[Trial], ...] = (
    Law("init", "parameters begin with finite numbers, drawn from the key", init),
    Law("source", "every array of the Source begins with the rows", source),
    Law("widths", "features have the promised shapes and are finite", widths),
    Law("handed-on", "states have read the source if `state_reads` says so", handed_on),
    Law("keys", "with the keys of training rows keep their form and draws", keys),
    Law("padding", "alignments are of the words that are there", padding),
    Law("steps", "step after step it computes what it computes at once", steps),
    Law("earlier", "no step sees a later word", earlier),
    Law("wider", "more padding changes nothing", wider),
    Law("rows", "the rows of a batch do not know each other", rows),
    Law("state", "steps change what is carried and keep its form", state),
    Law("hypotheses", "hypotheses of a search do not know each other", hypotheses),
    Law("attended", "`self_attention` tells weights of earlier states", attended),
    Law("large", "large numbers do not overflow", large),
    Law("precision", "results have the types of what is given, or finer", precision),
    Law("reach", "the loss has a finite gradient in every parameter", reach),
)


def _arrays(trial: Trial) -> tuple[PyTree, Encoded, Array]:
    return trial.params, trial.encoded, trial.embedded


def _shown(features: Features) -> Features:
    """The features without self-attention, whose width is the room for steps."""
    return replace(features, self_attention=None)
