# SPDX-License-Identifier: Apache-2.0
"""A whole sentence pair: encoder, decoder, readout, losses."""

from typing import Any, NamedTuple

import numpy as np

from tests.references.attention import ATTENTIONS
from tests.references.blocks import Vector, gru, log_softmax

TARGET_CONTEXTS = {"previous_word": lambda s, x: [s, x]}


class Setting(NamedTuple):
    """A system in plain words; options as dicts."""

    merge: str
    attention: tuple[str, dict[str, Any]]
    decoder: tuple[str, dict[str, Any]]
    target_context: str


class Result(NamedTuple):
    log_probs: list[Vector]  # one per target word
    alignments: list[list[list[float]]]  # round, target word, source word
    nll: float
    atteos: float


def encode(W: dict[str, Any], merge: str, words: list[int]) -> list[Vector]:
    """Annotations of one sentence."""
    x = [W["E_x"][word] for word in words]
    hf = _run(W["forward"], x)
    below = hf if merge == "stack" else x
    hb = _run(W["backward"], below[::-1])[::-1]
    if merge == "concat":
        return [np.concatenate([f, b]) for f, b in zip(hf, hb)]
    if merge == "sum":
        return [f + b for f, b in zip(hf, hb)]
    if merge == "project":
        project = W["project"]
        return [
            project["W"] @ np.concatenate([f, b]) + project["b"] for f, b in zip(hf, hb)
        ]
    return hb  # stack


def conditional(
    W: dict[str, Any], setting: Setting, Hs: list[Vector], xs: list[Vector]
) -> list[tuple[Vector, Vector, list[list[float]]]]:
    """State, context and every round's alignment at every target word."""
    name, options = setting.attention
    start, read, write = ATTENTIONS[name]
    rounds, shared = setting.decoder[1]["rounds"], setting.decoder[1]["share_rounds"]
    C = W["init"]["W"].shape[1]
    hbar = np.mean(Hs, axis=0) if Hs else np.zeros(C)
    s = np.tanh(W["init"]["W"] @ hbar + W["init"]["b"])
    memory = start(Hs, options)
    steps = []
    for x in xs:
        q = gru(W["GRU1"], s, x)
        alignments = []
        for r in range(rounds):
            own = W["rounds"][0 if shared else r]
            c, a = read(own["theta"], options, memory, q)
            s = gru(own["GRU2"], q, c)
            memory = write(own["theta"], options, memory, s)
            alignments.append(a)
        steps.append((s, c, alignments))
    return steps


DECODERS = {"conditional": conditional}


def translate(
    W: dict[str, Any], setting: Setting, source: list[int], target: list[int]
) -> Result:
    """Runs a sentence pair, both ending with EOS and without padding."""
    Hs = encode(W, setting.merge, source)
    before_first = np.zeros(W["E_y"].shape[1])
    xs = [before_first] + [W["E_y"][word] for word in target]
    xs = xs[: len(target)]
    steps = DECODERS[setting.decoder[0]](W, setting, Hs, xs)
    log_probs = []
    for x, (s, c, _) in zip(xs, steps):
        inputs = [*TARGET_CONTEXTS[setting.target_context](s, x), c]
        o = np.tanh(W["readout"]["W"] @ np.concatenate(inputs) + W["readout"]["b"])
        log_probs.append(log_softmax(W["output"]["W"] @ o + W["output"]["b"]))
    nll = -sum(log_p[word] for log_p, word in zip(log_probs, target))
    rounds = range(setting.decoder[1]["rounds"])
    alignments = [[step[2][r] for step in steps] for r in rounds]
    return Result(log_probs, alignments, float(nll), atteos(alignments[-1]))


def atteos(alignment: list[list[float]]) -> float:
    """Attention to the source's EOS: a loss everywhere but at the target's EOS."""
    total = 0.0
    for t, a in enumerate(alignment, start=1):
        on_end = a[-1] if a else 0.0
        total += 1.0 - on_end if t == len(alignment) else on_end
    return total


def _run(theta: dict[str, Vector], xs: list[Vector]) -> list[Vector]:
    h = np.zeros(len(theta["b_r"]))
    states = []
    for x in xs:
        h = gru(theta, h, x)
        states.append(h)
    return states
