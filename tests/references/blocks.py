# SPDX-License-Identifier: Apache-2.0
"""Blocks that all systems share."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
Theta: TypeAlias = dict[str, Vector]


def sigmoid(x: Vector) -> Vector:
    return 1.0 / (1.0 + np.exp(-x))


def affine(theta: Theta, *xs: Vector) -> Vector:
    return theta["W"] @ np.concatenate(xs) + theta["b"]


def gru(theta: Theta, h: Vector, x: Vector, reset: str = "after") -> Vector:
    """Three gates, three biases; where the reset gate meets the recurrent product."""
    r = sigmoid(theta["W_r"] @ x + theta["U_r"] @ h + theta["b_r"])
    u = sigmoid(theta["W_u"] @ x + theta["U_u"] @ h + theta["b_u"])
    if reset == "after":
        n = np.tanh(theta["W_n"] @ x + r * (theta["U_n"] @ h) + theta["b_n"])
    elif reset == "after_bias":
        n = np.tanh(theta["W_n"] @ x + r * (theta["U_n"] @ h + theta["b_n"]))
    else:
        n = np.tanh(theta["W_n"] @ x + theta["U_n"] @ (r * h) + theta["b_n"])
    return u * h + (1.0 - u) * n


def lstm(theta: Theta, h: Vector, c: Vector, x: Vector) -> tuple[Vector, Vector]:
    """Four gates, four biases, no peepholes."""
    gates = {
        gate: theta[f"W_{gate}"] @ x + theta[f"U_{gate}"] @ h + theta[f"b_{gate}"]
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
