# SPDX-License-Identifier: Apache-2.0
"""Every decoder: how its state moves from word to word."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.references.attention import ATTENTIONS, Memory, Moment
from tests.references.blocks import (
    Theta,
    Vector,
    affine,
    gru,
    lstm,
    read,
    recur,
    sigmoid,
    softmax,
    weighted_sum,
)
from tests.references.encoder import Encoded
from tests.references.transformer import decode

Own = dict[str, Any]  # the decoder's matrices
Choice = tuple[str, dict[str, Any]]  # a name of the catalogue and its options
Advance = Callable[[dict[str, Theta], Vector], Vector]


class Sizes(NamedTuple):
    E: int
    D: int


class Step(NamedTuple):
    """What one target word gives to the readout."""

    s: Vector
    c: Vector
    alignments: list[list[float]]  # one per round
    extras: dict[str, Vector] = {}
    deltas: tuple[Vector, ...] = ()  # what the auxiliary heads see


class Rounds:
    """The rounds of read, advance and write, and the memory between them.

    ``before`` is what sits in the seat of s_{t-1}: also r_t of MemDec, st_t of memory
    RNN.
    """

    def __init__(self, W: Own, attention: Choice, decoder: Choice, encoded: Encoded):
        name, self.options = attention
        self.how = ATTENTIONS[name]
        shared, count = decoder[1]["share_rounds"], decoder[1]["rounds"]
        self.own = [W["rounds"][0 if shared else r] for r in range(count)]
        self.memory: Memory = self.how.start(self.options, encoded.Hs, encoded.C)

    def first_read(self, sizes: Sizes) -> Vector:
        zeros = np.zeros(sizes.D)
        now = Moment(zeros, np.zeros(sizes.E), zeros)
        return self.how.read(self.own[0]["theta"], self.options, self.memory, now)[0]

    def run(
        self, before: Vector, x: Vector, q: Vector, advance: Advance
    ) -> tuple[Vector, Vector, list[list[float]]]:
        """State and context of the last round, alignments of all."""
        alignments, s, c = [], np.zeros(0), np.zeros(0)
        for own in self.own:
            now = Moment(before, x, q)
            c, a = self.how.read(own["theta"], self.options, self.memory, now)
            s = advance(own, c)
            for theta in own["transitions"]:
                s = gru(theta, s, np.zeros(0))
            now = Moment(before, x, q, s, c, a)
            self.memory = self.how.write(own["theta"], self.options, self.memory, now)
            if a is not None:
                alignments += [] if a is None else [a]
        return s, c, alignments


def start(
    W: Own, decoder: Choice, encoded: Encoded, rounds: Rounds, sizes: Sizes
) -> Vector:
    """The affine map from which every initial state is made; ``zero`` has none."""
    kind = decoder[1]["initial"]
    if kind == "zero":
        return np.zeros(sizes.D)
    if kind == "mean":
        return affine(W["init"], mean(encoded))
    if kind == "last":
        last = encoded.Hs[-1] if encoded.Hs else np.zeros(encoded.C)
        return affine(W["init"], last)
    if kind == "backward":
        return affine(W["init"], encoded.backward)
    return affine(W["init"], rounds.first_read(sizes))


def mean(encoded: Encoded) -> Vector:
    return np.mean(encoded.Hs, axis=0) if encoded.Hs else np.zeros(encoded.C)


def conditional(W, attention, decoder, encoded, xs, sizes):
    rounds = Rounds(W, attention, decoder, encoded)
    s = np.tanh(start(W, decoder, encoded, rounds, sizes))
    steps = []
    for x in xs:
        q = gru(W["GRU1"], s, x)
        s, c, alignments = rounds.run(
            s, x, q, lambda own, c, q=q: gru(own["GRU2"], q, c, decoder[1]["reset"])
        )
        steps.append(Step(s, c, alignments))
    return steps


def single(W, attention, decoder, encoded, xs, sizes):
    options = decoder[1]
    rounds = Rounds(W, attention, decoder, encoded)
    s = np.tanh(start(W, decoder, encoded, rounds, sizes))
    steps = []
    for x in xs:
        before = q = s
        if options["query"] == "tanh":
            q = np.tanh(W["query"]["W_q"] @ s + W["query"]["W_e"] @ x)

        def advance(own, c, s=s, x=x):
            return gru(own["GRU"], s, np.concatenate([x, c]), options["reset"])

        s, c, alignments = rounds.run(s, x, q, advance)
        read = before if options["readout_state"] == "previous" else s
        steps.append(Step(read, c, alignments))
    return steps


def stacked_lstm(W, attention, decoder, encoded, xs, sizes):
    options = decoder[1]
    once = (decoder[0], options | {"rounds": 1, "share_rounds": False})
    rounds = Rounds(W, attention, once, encoded)
    h0 = start(W, decoder, encoded, rounds, sizes)
    layers = [(h0, np.zeros(sizes.D)) for _ in range(options["layers"])]
    e, steps = np.zeros(sizes.D), []
    for x in xs:
        before = layers[-1][0]
        below = np.concatenate([x, e]) if options["input_feeding"] else x
        moved = []
        for theta, (h, cell) in zip(W["layers"], layers, strict=True):
            moved.append(lstm(theta, h, cell, below))
            below = moved[-1][0]
        layers = moved
        d = layers[-1][0]
        q = d if options["score_state"] == "current" else before
        _, c, alignments = rounds.run(before, x, q, lambda own, c, d=d: d)
        if options["input_feeding"]:
            e = np.tanh(affine(W["W_d"], d, c))
        steps.append(Step(e if options["input_feeding"] else d, c, alignments))
    return steps


def mem_dec(W, attention, decoder, encoded, xs, sizes):
    options = decoder[1]
    rounds = Rounds(W, attention, decoder, encoded)
    s = np.tanh(start(W, decoder, encoded, rounds, sizes))
    m = np.tanh(W["W_ini"] @ mean(encoded))
    cells = [m + options["noise"] * draw for draw in options["draws"]]
    w = [1.0 / len(cells) for _ in cells]
    w = _address_cells(W, options, s, cells, w)
    steps = []
    for x in xs:
        r = weighted_sum(w, cells, sizes.D)
        q = np.tanh(W["W_r"] @ r + W["W_y"] @ x)

        def advance(own, c, s=s, x=x, r=r):
            if options["seat"] == "read":
                return gru(own["GRU"], r, np.concatenate([x, c]))
            return gru(own["GRU"], s, np.concatenate([x, c, r]))

        before = r if options["seat"] == "read" else s
        s, c, alignments = rounds.run(before, x, q, advance)
        written = w
        if options["weights"] != "reused":
            written = _address_cells(W, options, s, cells, w)
        erase, add = sigmoid(W["W_ers"] @ s), sigmoid(W["W_add"] @ s)
        rows = zip(written, cells, strict=True)
        cells = [cell * (1.0 - w_i * erase) + w_i * add for w_i, cell in rows]
        if options["weights"] == "shared":
            w = written
        else:
            w = _address_cells(W, options, s, cells, w)
        steps.append(Step(s, c, alignments))
    return steps


def _address_cells(
    W: Own, options: dict[str, Any], s: Vector, cells: list[Vector], w: list[float]
) -> list[float]:
    energies = []
    for cell in cells:
        inside = W["W_a"] @ cell + W["U_a"] @ s
        if options["score"] == "tanh":
            inside = np.tanh(inside)
        energies.append(float(W["v"] @ inside))
    g = float(sigmoid(W["w_g"] @ s))
    fresh = softmax(energies)
    return [g * old + (1.0 - g) * new for old, new in zip(w, fresh, strict=True)]


def past_future(W, attention, decoder, encoded, xs, sizes):
    options = decoder[1]
    rounds = Rounds(W, attention, decoder, encoded)
    s = np.tanh(start(W, decoder, encoded, rounds, sizes))
    P, F = np.zeros(sizes.D), s
    steps = []
    for x in xs:
        used = ([P] if options["past"] else []) + ([F] if options["future"] else [])
        q = gru(W["GRU3"], gru(W["GRU1"], s, x), np.concatenate(used))
        s, c, alignments = rounds.run(
            s, x, q, lambda own, c, q=q: gru(own["GRU2"], q, c, decoder[1]["reset"])
        )
        extras, deltas = {}, []
        if options["past"]:
            before, P = P, gru(W["GRU_P"], P, c)
            extras["past"] = P
            if options["subtractive"]:
                deltas.append(_difference(W["past_head"], P, before))
        if options["future"]:
            before, F = F, _future(W["future"], options["cell"], F, c)
            extras["future"] = F
            if options["subtractive"]:
                deltas.append(_difference(W["future_head"], before, F))
        steps.append(Step(s, c, alignments, extras, tuple(deltas)))
    return steps


def _future(own: dict[str, Theta], cell: str, F: Vector, c: Vector) -> Vector:
    if cell == "gru":
        return gru(own["GRU_F"], F, c)
    if cell == "outside":
        sub = own["sub"]
        z = np.tanh(sub["W"] @ (sub["W_a"] @ F - sub["W_b"] @ c) + sub["b"])
        return gru(own["GRU_F"], F, z)
    gates, sub = own["gates"], own["sub"]
    r = sigmoid(read(gates, "r", c) + recur(gates, "r", F) + gates["b_r"])
    u = sigmoid(read(gates, "u", c) + recur(gates, "u", F) + gates["b_u"])
    left = recur(gates, "n", F) - r * read(gates, "n", c)
    n = np.tanh(sub["W"] @ left + gates["b_n"])
    return u * F + (1.0 - u) * n


def _difference(head: Theta, more: Vector, less: Vector) -> Vector:
    inside = head["W_1"] @ more - head["W_2"] @ less
    return np.tanh(head["W"] @ inside + head["b"])


def memory_rnn(W, attention, decoder, encoded, xs, sizes):
    rounds = Rounds(W, attention, decoder, encoded)
    history = [np.tanh(start(W, decoder, encoded, rounds, sizes))]
    own, st, steps = W["history"], np.zeros(sizes.D), []
    for x in xs:
        energies = []
        for s in history:
            inside = own["W_1"] @ s + own["W_2"] @ x + own["W_3"] @ st + own["b"]
            energies.append(float(own["v"] @ np.tanh(inside)))
        st = weighted_sum(softmax(energies), history, sizes.D)
        q = gru(W["GRU1"], st, x)
        s, c, alignments = rounds.run(
            st, x, q, lambda own, c, q=q: gru(own["GRU2"], q, c, decoder[1]["reset"])
        )
        history.append(s)
        steps.append(Step(s, c, alignments))
    return steps


def transformer(*given):
    return [Step(*step) for step in decode(*given)]


DECODERS = {
    "conditional": conditional,
    "single": single,
    "stacked_lstm": stacked_lstm,
    "mem_dec": mem_dec,
    "past_future": past_future,
    "memory_rnn": memory_rnn,
    "transformer": transformer,
}
