# SPDX-License-Identifier: Apache-2.0
"""A whole sentence pair: encoder, decoder, readout, losses."""

from typing import Any, NamedTuple

import numpy as np

from tests.references.blocks import Vector, affine, log_softmax
from tests.references.decoder import DECODERS, Choice, Sizes, Step
from tests.references.encoder import encode
from tests.references.target_context import TARGET_CONTEXTS


class Setting(NamedTuple):
    """A system in plain words; options as dicts."""

    merge: str
    cell: str
    heads: int | None  # of the encoder
    annotation: int  # C
    sizes: Sizes
    attention: Choice
    decoder: Choice
    target_context: Choice
    readout: str
    average_auxiliary: bool
    residual: bool = False  # between layers of the encoder


class Result(NamedTuple):
    log_probs: list[Vector]  # one per target word
    alignments: list[list[list[float]]]  # round, target word, source word
    nll: float
    atteos: float | None  # None: there is no alignment
    auxiliary: list[list[Vector]]  # head, target word
    auxiliary_nll: list[float]


def translate(
    W: dict[str, Any], setting: Setting, source: list[int], target: list[int]
) -> Result:
    """Runs a sentence pair, both ending with EOS and without padding."""
    encoded = encode(
        *(W, setting.merge, setting.cell, setting.heads, source, setting.annotation),
        setting.residual,
    )
    before_first = np.zeros(setting.sizes.E)
    xs = [before_first] + [W["E_y"][word] for word in target]
    xs = xs[: len(target)]
    name, _ = setting.decoder
    steps = DECODERS[name](
        W["decoder"], setting.attention, setting.decoder, encoded, xs, setting.sizes
    )
    inputs = readout_inputs(W, setting, steps, xs)
    fs = [W["E_x"][word] for word in source] if W["lexicon"] else []
    log_probs = [
        log_softmax(
            logits(W, setting.readout, given, looked_up(W["lexicon"], fs, step))
        )
        for given, step in zip(inputs, steps, strict=True)
    ]
    auxiliary = [
        [log_softmax(affine(head, step.deltas[place])) for step in steps]
        for place, head in enumerate(W["auxiliary"])
    ]
    if setting.average_auxiliary:
        rows = zip(log_probs, *auxiliary, strict=True)
        log_probs = [np.log(np.mean(np.exp(row), axis=0)) for row in rows]
    rounds = (
        setting.decoder[1].get("rounds", 1) if setting.attention[0] != "none" else 0
    )
    alignments = [[step.alignments[r] for step in steps] for r in range(rounds)]
    return Result(
        log_probs,
        alignments,
        negative_log_likelihood(log_probs, target),
        atteos(alignments[-1]) if alignments else None,
        auxiliary,
        [negative_log_likelihood(head, target) for head in auxiliary],
    )


def readout_inputs(
    W: dict[str, Any], setting: Setting, steps: list[Step], xs: list[Vector]
) -> list[dict[str, Vector]]:
    """At every target word: target context, source context, extras."""
    name, options = setting.target_context
    states, inputs = [step.s for step in steps], []
    for t, step in enumerate(steps, start=1):
        target_context = TARGET_CONTEXTS[name](
            W["target_context"], options, states[:t], xs[:t]
        )
        inputs.append(target_context | {"context": step.c} | step.extras)
    return inputs


def looked_up(
    lexicon: dict[str, Any] | None, fs: list[Vector], step: Step
) -> Vector | float:
    """What the words of the source add, by the alignment of the last round."""
    if lexicon is None:
        return 0.0
    pairs = zip(step.alignments[-1], fs, strict=True)
    seen = np.tanh(sum((a * f for a, f in pairs), np.zeros(lexicon["W_o"].shape[1])))
    return lexicon["W_o"] @ (np.tanh(affine(lexicon["hidden"], seen)) + seen)


def logits(
    W: dict[str, Any],
    readout: str,
    inputs: dict[str, Vector],
    looked_up: Vector | float = 0.0,
) -> Vector:
    if readout == "none":
        o = next(iter(inputs.values()))
    else:
        o = W["readout"]["b"]
        for name, x in inputs.items():
            o = o + W["readout"][name] @ x
        if readout == "tanh":
            o = np.tanh(o)
        else:
            o = np.array([max(o[i], o[i + 1]) for i in range(0, len(o), 2)])
    if W["low_rank"] is not None:
        o = W["low_rank"] @ o
    return affine(W["output"], o + looked_up)


def negative_log_likelihood(log_probs: list[Vector], target: list[int]) -> float:
    rows = zip(log_probs, target, strict=True)
    return float(-sum(log_p[word] for log_p, word in rows))


def atteos(alignment: list[list[float]]) -> float:
    """Attention to the source's EOS: a loss everywhere but at the target's EOS."""
    total = 0.0
    for t, a in enumerate(alignment, start=1):
        on_end = a[-1] if a else 0.0
        total += 1.0 - on_end if t == len(alignment) else on_end
    return total


def guided(alignment: list[list[float]], links: set[tuple[int, int]]) -> float:
    """Nats between links (source, target), which share a word's mass, and attention."""
    total = 0.0
    for t, a in enumerate(alignment):
        linked = [i for i, j in links if j == t]
        total -= sum(np.log(a[i]) / len(linked) for i in linked)
    return float(total)
