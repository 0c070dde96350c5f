# SPDX-License-Identifier: Apache-2.0
"""What the readout gets in the place of (s_t, x_t), from all steps up to t.

``ss`` are the states s_1..s_t that the decoder gives the readout, ``xs`` the words
x_1..x_t; x_1 is the zero vector. The names are those of the readout's matrices:
``state`` and ``word`` are the seats of s_t and x_t, whatever sits in them.
"""

from typing import Any, Protocol

import numpy as np

from tests.references import memories
from tests.references.blocks import Theta, Vector, softmax, weighted_sum

Options = dict[str, Any]


class TargetContext(Protocol):
    def __call__(
        self,
        theta: Theta,
        options: Options,
        ss: list[Vector],
        xs: list[Vector],
    ) -> dict[str, Vector]: ...


def previous_word(theta, options, ss, xs):
    return {"state": ss[-1], "word": xs[-1]}


def state_only(theta, options, ss, xs):
    return {"state": ss[-1]}


def mean(theta, options, ss, xs):
    words = xs[1:]
    d = sum(words) / len(words) if words else np.zeros(len(xs[0]))
    return {"state": ss[-1], "word": d}


def self_attentive(theta, options, ss, xs):
    energies = []
    for x in xs:  # x_1 = 0 too: the null slot
        inside = theta["W_y"] @ x + theta["b"]
        if options["scope"]:
            inside = inside + theta["W_z"] @ ss[-1]
        energies.append(float(theta["v"] @ np.tanh(inside)))
    first = 0 if options["null_slot"] else 1
    return {"state": ss[-1], "word": _read(energies[first:], xs[first:], len(xs[0]))}


def self_attentive_rnn(theta, options, ss, xs):
    energies = []
    for s in ss[:-1]:
        hidden = np.tanh(theta["W_1"] @ s + theta["W_2"] @ ss[-1] + theta["b"])
        energies.append(float(theta["v"] @ hidden))
    st = _read(energies, ss[:-1], len(ss[-1]))
    return {"state": ss[-1], "word": xs[-1], "summary": st}


def key_value_predict(theta, options, ss, xs):
    kind, D = options["form"], len(ss[-1])
    n = D // {"plain": 1, "kv": 2, "kvp": 3}[kind]
    key = slice(0, n)
    value = {"plain": key, "kv": slice(n, 2 * n), "kvp": slice(n, 2 * n)}[kind]
    predict = {"plain": key, "kv": slice(n, 2 * n), "kvp": slice(2 * n, 3 * n)}[kind]
    earlier = ss[:-1]
    if options["window"] is not None:
        earlier = earlier[max(0, len(earlier) - options["window"]) :]
    energies = []
    for s in earlier:
        hidden = np.tanh(theta["W_Y"] @ s[key] + theta["W_h"] @ ss[-1][key])
        energies.append(float(theta["w"] @ hidden))
    r = _read(energies, [s[value] for s in earlier], n)
    hs = np.tanh(theta["W_r"] @ r + theta["W_x"] @ ss[-1][predict])
    return {"predict": hs} | ({"word": xs[-1]} if options["word"] else {})


def n_gram(theta, options, ss, xs):
    n = len(ss[-1]) // options["parts"]
    parts = []
    for place in range(options["parts"]):
        s = ss[-1 - place] if place < len(ss) else np.zeros(len(ss[-1]))
        parts.append(s[place * n : (place + 1) * n])
    hs = np.tanh(theta["W_N"] @ np.concatenate(parts))
    return {"predict": hs} | ({"word": xs[-1]} if options["word"] else {})


def delta_memory(theta, options, ss, xs):
    N, update = options["heads"], options["update"]
    read = []
    for head in range(N):
        keys, values = len(theta["W_k"]) // N, len(theta["W_v"]) // N
        memory = memories.empty(keys, values)
        for s in ss[:-1]:
            one = memories.written(theta, update, s, head, N)
            memory = memories.rewritten(memory, one)
        q = memories.query(update, theta["W_q"], ss[-1], head, N)
        read.append(memory.M.T @ q)
    return {"state": ss[-1], "word": xs[-1], "summary": np.concatenate(read)}


def slots(theta, options, ss, xs):
    keys, values = len(theta["W_k"]), len(theta["W_v"])
    filled = memories.empty_slots(options["slots"], keys, values)
    for s in ss[:-1]:
        filled = memories.filled_slot(theta, options, filled, s)
    o, _ = memories.read_slots(filled, theta["W_q"] @ ss[-1])
    return {"state": ss[-1], "word": xs[-1], "summary": o}


def _read(energies: list[float], vectors: list[Vector], width: int) -> Vector:
    return weighted_sum(softmax(energies), vectors, width)


TARGET_CONTEXTS: dict[str, TargetContext] = {
    "previous_word": previous_word,
    "state_only": state_only,
    "mean": mean,
    "self_attentive": self_attentive,
    "self_attentive_rnn": self_attentive_rnn,
    "key_value_predict": key_value_predict,
    "n_gram": n_gram,
    "delta_memory": delta_memory,
    "slots": slots,
}
