# SPDX-License-Identifier: Apache-2.0
"""Blocks that all systems share."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
Theta: TypeAlias = dict[str, Vector]


def sigmoid(x: Vector) -> Vector:
    return 1.0 / (1.0 + np.exp(-x))


def affine(theta: Theta, *xs: Vector) -> Vector:
    return theta["W"] @ np.concatenate(xs) + theta["b"]


def normalised(x: Vector) -> Vector:
    """``(x - mean) / deviation``."""
    middle = sum(x) / len(x)
    variance = sum((n - middle) ** 2 for n in x) / len(x)
    return (x - middle) / np.sqrt(variance + 1e-6)


def read(theta: Theta, gate: str, x: Vector) -> Vector:
    """``W x`` of a gate; with gains the sum of each input's, normalised."""
    W = theta[f"W_{gate}"]
    if "widths" not in theta:
        return W @ x
    total, start = np.zeros(len(W)), 0
    for width, gain in zip(theta["widths"], theta[f"gains_{gate}"], strict=True):
        part = slice(start, start + width)
        total, start = total + gain * normalised(W[:, part] @ x[part]), part.stop
    assert start == len(x)
    return total


def recur(theta: Theta, gate: str, h: Vector) -> Vector:
    """``U h`` of a gate; with a gain it is normalised."""
    product = theta[f"U_{gate}"] @ h
    if "widths" not in theta:
        return product
    return theta[f"gain_{gate}"] * normalised(product)


def gru(theta: Theta, h: Vector, x: Vector, reset: str = "after") -> Vector:
    """Three gates, three biases; where the reset gate meets the recurrent product."""
    r = sigmoid(read(theta, "r", x) + recur(theta, "r", h) + theta["b_r"])
    u = sigmoid(read(theta, "u", x) + recur(theta, "u", h) + theta["b_u"])
    if reset == "after":
        n = np.tanh(read(theta, "n", x) + r * recur(theta, "n", h) + theta["b_n"])
    elif reset == "after_bias":
        n = np.tanh(read(theta, "n", x) + r * (recur(theta, "n", h) + theta["b_n"]))
    else:
        n = np.tanh(read(theta, "n", x) + recur(theta, "n", r * h) + theta["b_n"])
    return u * h + (1.0 - u) * n


def lstm(theta: Theta, h: Vector, c: Vector, x: Vector) -> tuple[Vector, Vector]:
    """Four gates, four biases, no peepholes."""
    gates = {
        gate: read(theta, gate, x) + recur(theta, gate, h) + theta[f"b_{gate}"]
        for gate in "ifog"
    }
    c = sigmoid(gates["f"]) * c + sigmoid(gates["i"]) * np.tanh(gates["g"])
    return sigmoid(gates["o"]) * np.tanh(c), c


def softmax(energies: list[float]) -> list[float]:
    weights = [np.exp(e - max(energies)) for e in energies]
    return [w / sum(weights) for w in weights]


def log_softmax(logits: Vector) -> Vector:
    return logits - np.log(np.sum(np.exp(logits)))


def address(theta: Theta, q: Vector, keys: list[Vector]) -> list[float]:
    """``softmax_j(v . tanh(W q + U k_j + b))``; no keys, no weights."""
    energies = []
    for k in keys:
        hidden = np.tanh(theta["W"] @ q + theta["U"] @ k + theta["b"])
        energies.append(float(theta["v"] @ hidden))
    return softmax(energies)


def weighted_sum(weights: list[float], vectors: list[Vector], width: int) -> Vector:
    total = np.zeros(width)
    for w, vector in zip(weights, vectors, strict=True):
        total = total + w * vector
    return total


def layer_norm(theta: Theta, x: Vector) -> Vector:
    variance = np.mean((x - np.mean(x)) ** 2)
    return (x - np.mean(x)) / np.sqrt(variance + 1e-6) * theta["g"] + theta["b"]


def position(t: int, width: int) -> Vector:
    """Of the t-th place, from 0."""
    vector = np.zeros(width)
    for n in range(width):
        angle = t / 10000 ** (2 * (n // 2) / width)
        vector[n] = np.sin(angle) if n % 2 == 0 else np.cos(angle)
    return vector


def enter(P: Vector | None, x: Vector, t: int, width: int) -> Vector:
    projected = x if P is None else P @ x
    return np.sqrt(width) * projected + position(t, width)


def number_of_heads(given: int | None, width: int) -> int:
    if given is not None:
        return given
    fits = [n for n in range(1, width + 1) if width % n == 0 and width // n >= 64]
    return max([1, *fits])


def attend(
    heads: int, q: Vector, ks: list[Vector], vs: list[Vector]
) -> tuple[Vector, list[float]]:
    """What all heads read, side by side, and the mean of their alignments."""
    size, reads, alignments = len(q) // heads, [], []
    for n in range(heads):
        part = slice(n * size, (n + 1) * size)
        a = softmax([float(q[part] @ k[part]) / np.sqrt(size) for k in ks])
        reads.append(weighted_sum(a, [v[part] for v in vs], size))
        alignments.append(a)
    mean = [float(np.mean(column)) for column in zip(*alignments)]
    return np.concatenate(reads), mean


def feed_forward(own: dict[str, Any], x: Vector) -> Vector:
    normal = layer_norm(own["LN_feed"], x)
    inner = np.maximum(0, own["W_1"] @ normal + own["b_1"])
    return x + own["W_2"] @ inner + own["b_2"]
