# SPDX-License-Identifier: Apache-2.0
"""Memories that are matrices or slots, one write after another, head by head.

``M <- D M - k (b * k)^T D M + k (w * v)^T`` with D, I and all products written out, and
the p_j as the products of the matrices that the later writes multiply with.
"""

from typing import NamedTuple

import numpy as np

from tests.references.blocks import Theta, Vector, sigmoid, softmax

DECAYS = {"decay": "scalar", "gated_delta": "scalar"}
DECAYS |= {"gated": "channels", "kda": "channels", "gated_delta_2": "channels"}
ERASES = {"delta": "scalar", "gated_delta": "scalar", "kda": "scalar"}
ERASES |= {"gated_delta_2": "channels"}


class Written(NamedTuple):
    """One write of one head: ``M <- A M + k u^T``."""

    A: Vector
    k: Vector
    u: Vector


class Head(NamedTuple):
    """A memory, and the p_j of what the source wrote to it."""

    M: Vector
    P: list[Vector]


def part(vector: Vector, head: int, heads: int) -> Vector:
    width = len(vector) // heads
    return vector[head * width : (head + 1) * width]


def unit(x: Vector) -> Vector:
    x = x * sigmoid(x)
    return x / np.sqrt(np.sum(x**2) + 1e-6)


def query(update: str, W: Vector, x: Vector, head: int, heads: int) -> Vector:
    q = part(W @ x, head, heads)
    return unit(q) if update in ERASES else q / np.sqrt(len(q))


def written(theta: Theta, update: str, x: Vector, head: int, heads: int) -> Written:
    k = part(theta["W_k"] @ x, head, heads)
    v = part(theta["W_v"] @ x, head, heads)
    a, b, w = np.ones(len(k)), np.zeros(len(k)), np.ones(len(v))
    if update in DECAYS:
        amount = np.log(1 + np.exp(part(theta["W_a"] @ x + theta["b_a"], head, heads)))
        a = np.exp(-np.exp(theta["A"][head]) * amount) * a  # a scalar, or by channels
    if update in ERASES:
        k = unit(k)
        beta = sigmoid(part(theta["W_b"] @ x + theta["b_b"], head, heads))
        b, w = beta + b, beta * w if update != "gated_delta_2" else w
    if update == "gated_delta_2":
        w = sigmoid(part(theta["W_w"] @ x + theta["b_w"], head, heads))
    D = np.diag(a)
    return Written((np.eye(len(k)) - np.outer(k, b * k)) @ D, k, w * v)


def rewritten(head: Head, w: Written, own: bool = True) -> Head:
    """The head after a write: by the source, which gets a p_j, or the decoder's own."""
    added = np.outer(w.k, w.u)
    P = [w.A @ p for p in head.P] + ([] if own else [w.k])
    return Head(w.A @ head.M + added, P)


def empty(keys: int, values: int) -> Head:
    return Head(np.zeros((keys, values)), [])


def filled(theta: Theta, options: dict, Hs: list[Vector], keys: int) -> list[Head]:
    """The heads after the source; those of the second direction from its end."""
    n = options["heads"]
    ends = 2 if options["direction"] == "both" else 1
    heads = []
    for head in range(ends * n):
        order = Hs if head < n else Hs[::-1]
        values = len(theta["W_v"]) // (ends * n)
        memory = empty(keys // n, values)
        for h in order:
            one = written(theta, options["update"], h, head, ends * n)
            memory = rewritten(memory, one, own=False)
        if head >= n:
            memory = memory._replace(P=memory.P[::-1])
        heads.append(memory)
    return heads


def shares(weights: list[float]) -> list[float]:
    """``|w_j| / sum``."""
    total = sum(abs(w) for w in weights)
    return [abs(w) / total if total > 0 else 0.0 for w in weights]


class Slots(NamedTuple):
    """Keys and values of m slots, and z of each."""

    K: list[Vector]
    V: list[Vector]
    z: list[float]
    c: list[list[float]]  # by slot: how much of every write is left


def empty_slots(m: int, keys: int, values: int) -> Slots:
    K, V = [np.zeros(keys)] * m, [np.zeros(values)] * m
    return Slots(K, V, [0.0] * m, [[] for _ in range(m)])


def filled_slot(theta: Theta, options: dict, slots: Slots, x: Vector) -> Slots:
    """All slots after one write."""
    k, v, u = (theta[name] @ x for name in ("W_k", "W_v", "W_m"))
    K, V, z, c = [], [], [], []
    for m in range(len(slots.K)):
        if options["gate"] == "gsa":
            a = float(sigmoid(u[m])) ** (1.0 / options["tau"])
            f, total = 1.0 - a, 0.0
        else:
            total = slots.z[m] + float(np.exp(u[m]))
            a, f = slots.z[m] / total, float(np.exp(u[m])) / total
        K.append(a * slots.K[m] + f * k)
        V.append(a * slots.V[m] + f * v)
        z.append(total)
        c.append([a * old for old in slots.c[m]] + [f])
    return Slots(K, V, z, c)


def read_slots(slots: Slots, q: Vector) -> tuple[Vector, list[float]]:
    """What is read, and the weight of every write."""
    p = softmax([float(k @ q) for k in slots.K])
    o = sum((p_m * v for p_m, v in zip(p, slots.V)), np.zeros(len(slots.V[0])))
    count = len(slots.c[0])
    return o, [sum(p_m * c[j] for p_m, c in zip(p, slots.c)) for j in range(count)]
