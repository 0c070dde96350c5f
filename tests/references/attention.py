# SPDX-License-Identifier: Apache-2.0
"""Every source mechanism: what it remembers, how it reads, how it writes.

A memory is a dict with a list of vectors per name, one vector per source word.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from tests.references import memories
from tests.references.blocks import (
    Theta,
    Vector,
    address,
    affine,
    attend,
    gru,
    number_of_heads,
    sigmoid,
    softmax,
    weighted_sum,
)

Memory = dict[str, Any]
Options = dict[str, Any]
Own = dict[str, Theta]  # the matrices of one round
Alignment = list[float] | None  # None: the mechanism has none


class Moment(NamedTuple):
    """What is known of a target step; the last three once they exist."""

    before: Vector  # s_{t-1}, or what replaces it
    x: Vector
    q: Vector
    s: Vector = np.zeros(0)
    c: Vector = np.zeros(0)
    a: Alignment = None


class Start(Protocol):
    def __call__(self, options: Options, Hs: list[Vector], C: int) -> Memory: ...


class Read(Protocol):
    def __call__(
        self, theta: Own, options: Options, memory: Memory, now: Moment
    ) -> tuple[Vector, Alignment]: ...


class Write(Protocol):
    def __call__(
        self, theta: Own, options: Options, memory: Memory, now: Moment
    ) -> Memory: ...


class Reference(NamedTuple):
    start: Start
    read: Read
    write: Write


def annotations(options: Options, Hs: list[Vector], C: int) -> Memory:
    return {"Hs": Hs, "C": C}


def nothing(theta: Own, options: Options, memory: Memory, now: Moment) -> Memory:
    return memory


# RNNencdec: the last annotation, whatever the query.


def none_read(theta, options, memory, now):
    h = memory["Hs"][-1] if memory["Hs"] else np.zeros(memory["C"])
    return (np.tanh(affine(theta["V"], h)) if options["projection"] else h), None


# RNNsearch and RNNsearch*: the annotations are addressed and read, never rewritten.


def additive_read(theta, options, memory, now):
    a = address(theta["theta_r"], now.q, memory["Hs"])
    return weighted_sum(a, memory["Hs"], memory["C"]), a


# Products of query and annotation, plain, with a matrix between, or additive.


def dot_read(theta, options, memory, now):
    energies = []
    for h in memory["Hs"]:
        if options["score"] == "dot":
            energies.append(float(now.q @ h))
        elif options["score"] == "general":
            energies.append(float(now.q @ (theta["general"]["W"] @ h)))
        else:
            own = theta["theta_r"]
            hidden = np.tanh(own["W"] @ now.q + own["U"] @ h + own["b"])
            energies.append(float(own["v"] @ hidden))
    a = softmax(energies)
    return weighted_sum(a, memory["Hs"], memory["C"]), a


# Keys are the first half of every annotation, values the second.


def key_value_read(theta, options, memory, now):
    half = memory["C"] // 2
    query = now.q[:half]
    if options["query"] == "projection":
        query = affine(theta["Q"], now.q)
    a = softmax([float(query @ h[:half]) for h in memory["Hs"]])
    return weighted_sum(a, [h[half:] for h in memory["Hs"]], half), a


# The score sees the upper half of the annotations, the context all of them.


def modifying_iw_read(theta, options, memory, now):
    C = memory["C"]
    u = np.array([1.0] * (C // 2) + [0.0] * (C - C // 2))
    a = softmax([float(now.q @ (h * u)) for h in memory["Hs"]])
    return weighted_sum(a, memory["Hs"], C), a


# Coverage: what every source word has received so far is part of its energy.


def linguistic_start(options, Hs, C):
    full = float(options["subtractive"])
    return {"Hs": Hs, "C": C, "cov": [np.full(1, full) for _ in Hs]}


def neural_start(options, Hs, C):
    return {"Hs": Hs, "C": C, "cov": [np.zeros(options["size"]) for _ in Hs]}


def coverage_read(theta, options, memory, now):
    own, energies = theta["theta_r"], []
    for h, cov in zip(memory["Hs"], memory["cov"], strict=True):
        inside = own["W"] @ now.q + own["U"] @ h + theta["cover"]["G"] @ cov + own["b"]
        energies.append(float(own["v"] @ np.tanh(inside)))
    a = softmax(energies)
    return weighted_sum(a, memory["Hs"], memory["C"]), a


def linguistic_write(theta, options, memory, now):
    rows = zip(memory["Hs"], memory["cov"], now.a, strict=True)
    cov = [_linguistic(theta, options, h, cov, a) for h, cov, a in rows]
    return memory | {"cov": cov}


def neural_write(theta, options, memory, now):
    rows = zip(memory["Hs"], memory["cov"], now.a, strict=True)
    cov = [_neural(theta, options, h, cov, a, now.before) for h, cov, a in rows]
    return memory | {"cov": cov}


def _linguistic(theta, options, h, cov, a):
    phi = 1.0
    if options["max_fertility"] is not None:
        own = theta["fertility"]
        phi = options["max_fertility"] * sigmoid(own["U"] @ h + own["b"])
    return cov - a / phi if options["subtractive"] else cov + a / phi


def _neural(theta, options, h, cov, a, before):
    if options["cell"] != "tanh":
        z = np.concatenate([[a], h, before])
        reset = {"gru": "after", "gru_before": "before"}[options["cell"]]
        return gru(theta["GRU_cov"], cov, z, reset)
    own = theta["cov"]
    fresh = own["W_a"] @ np.array([a]) + own["W_h"] @ h + own["W_s"] @ before
    return np.tanh(own["W_c"] @ cov + fresh)


# Distortion: last step's alignment, shifted, is mixed into this step's.


def distortion_start(options, Hs, C):
    return {"Hs": Hs, "C": C, "afin": None, "c": np.zeros(C)}


def distortion_read(theta, options, memory, now):
    a, last = address(theta["theta_r"], now.q, memory["Hs"]), memory["afin"]
    if last is not None:
        L, weight = options["window"], options["weight"]
        z = {"source": memory["c"], "target": now.x, "hidden": now.q}
        P = softmax(list(affine(theta["shift"], z[options["context"]])))
        dis = [0.0] * len(a)
        for k in range(-L, L + 1):
            for j in range(len(a)):
                if 0 <= j - k < len(a):
                    dis[j] += P[k + L] * last[j - k]
        if options["renormalise"] == "distortion":
            dis = _unit(dis)
        a = [weight * d_j + (1.0 - weight) * a_j for d_j, a_j in zip(dis, a)]
        if options["renormalise"] == "final":
            a = _unit(a)
    return weighted_sum(a, memory["Hs"], memory["C"]), a


def distortion_write(theta, options, memory, now):
    return memory | {"afin": now.a, "c": now.c}


def _unit(weights: list[float]) -> list[float]:
    total = sum(weights)
    return [w / total if total > 0 else 0.0 for w in weights]


# KVMemAtt: values Vm fixed, keys Km rewritten. MemAtt: one memory Hs for both.


def memory_start(options, Hs, C):
    if options["values"] == "fixed":
        return {"Km": Hs, "Vm": Hs, "C": C}
    return {"Hs": Hs, "C": C}


def memory_read(theta, options, memory, now):
    if options["values"] == "fixed":
        a = address(theta["theta_r"], now.q, memory["Km"])
        return weighted_sum(a, memory["Vm"], memory["C"]), a
    a = address(theta["theta_r"], now.q, memory["Hs"])
    return weighted_sum(a, memory["Hs"], memory["C"]), a


def memory_write(theta: Own, options: Options, memory: Memory, s: Vector) -> Memory:
    if options["values"] == "fixed":
        return memory | {"Km": _rewritten(theta, options, memory["Km"], s)}
    return memory | {"Hs": _rewritten(theta, options, memory["Hs"], s)}


def memory_update(theta, options, memory, now):
    return memory_write(theta, options, memory, now.s)


def _rewritten(
    theta: Own, options: Options, cells: list[Vector], s: Vector
) -> list[Vector]:
    own = theta["theta_r"] if options["share_addresses"] else theta["theta_w"]
    w = address(own, s, cells)
    gates = theta["gates"]
    forget = sigmoid(gates["W_F"] @ s + gates["b_F"])
    add = gates["W_A"] @ s + gates["b_A"]
    add = {"sigmoid": sigmoid, "tanh": np.tanh}[options["add"]](add)
    rewritten = []
    for w_j, k_j in zip(w, cells, strict=True):
        rewritten.append(k_j * (1.0 - w_j * forget) + w_j * add)
    return rewritten


# Every head compares its part of the query with its part of the keys.


def multi_head_read(theta, options, memory, now):
    own = theta["heads"]
    heads = number_of_heads(options["heads"], len(now.q))
    ks = [own["W_K"] @ h for h in memory["Hs"]]
    vs = [own["W_V"] @ h for h in memory["Hs"]]
    return attend(heads, own["W_Q"] @ now.q, ks, vs)


# Linear memories: filled by the annotations with the matrices of whoever reads first.


def delta_read(theta, options, memory, now):
    heads = delta_heads(theta, options, memory)
    read, weights = [], np.zeros(len(memory["Hs"]))
    for n, head in enumerate(heads):
        for own in memory.get("own", []):
            head = memories.rewritten(head, own[n])
        q = memories.query(options["update"], theta["query"]["W"], now.q, n, len(heads))
        read.append(head.M.T @ q)
        weights = weights + [abs(float(q @ p)) for p in head.P]
    return np.concatenate(read), memories.shares(list(weights))


def delta_heads(theta, options, memory):
    ends = 2 if options["direction"] == "both" else 1
    keys = len(theta["query"]["W"]) // ends
    return memories.filled(theta["write"], options, memory["Hs"], keys)


def delta_write(theta, options, memory, now):
    if options["write"] == "none":
        return memory
    N = len(delta_heads(theta, options, memory))
    what = theta["own"], options["update"], now.s
    own = [memories.written(*what, n, N) for n in range(N)]
    return memory | {"own": [*memory.get("own", []), own]}


# Slots, filled by the annotations.


def slots_read(theta, options, memory, now):
    keys, values = len(theta["query"]["W"]), len(theta["write"]["W_v"])
    slots = memories.empty_slots(options["slots"], keys, values)
    for h in memory["Hs"]:
        slots = memories.filled_slot(theta["write"], options, slots, h)
    for writer, s in memory.get("own", []):
        slots = memories.filled_slot(writer, options, slots, s)
    read, weights = memories.read_slots(slots, theta["query"]["W"] @ now.q)
    return read, memories.shares(weights[: len(memory["Hs"])])


def slots_write(theta, options, memory, now):
    if options["write"] == "none":
        return memory
    return memory | {"own": [*memory.get("own", []), (theta["own"], now.s)]}


ATTENTIONS = {
    "none": Reference(annotations, none_read, nothing),
    "additive": Reference(annotations, additive_read, nothing),
    "dot": Reference(annotations, dot_read, nothing),
    "key_value": Reference(annotations, key_value_read, nothing),
    "modifying_iw": Reference(annotations, modifying_iw_read, nothing),
    "linguistic_coverage": Reference(linguistic_start, coverage_read, linguistic_write),
    "neural_coverage": Reference(neural_start, coverage_read, neural_write),
    "distortion": Reference(distortion_start, distortion_read, distortion_write),
    "kv_memory": Reference(memory_start, memory_read, memory_update),
    "multi_head": Reference(annotations, multi_head_read, nothing),
    "delta_memory": Reference(annotations, delta_read, delta_write),
    "slots": Reference(annotations, slots_read, slots_write),
}
