# SPDX-License-Identifier: Apache-2.0
"""Annotations of one sentence: stacks of cells in two directions, and their merge."""

from typing import Any, NamedTuple

import numpy as np

from tests.references.blocks import Theta, Vector, affine, gru, lstm
from tests.references.transformer import read_all


class Encoded(NamedTuple):
    Hs: list[Vector]
    C: int
    backward: Vector  # state of the upper backward cell at position 1


def encode(
    W: dict[str, Any],
    merge: str,
    cell: str,
    heads: int | None,
    words: list[int],
    C: int,
    residual: bool = False,
) -> Encoded:
    if merge == "none":
        return Encoded([np.zeros(0) for _ in words], C, np.zeros(0))
    x = [W["E_x"][word] for word in words]
    own = W["encoder"]
    if cell == "transformer":  # one stack, merge ``forward``
        return Encoded(read_all(own["forward"], heads, x), C, np.zeros(0))
    hf = _stack(own["forward"], cell, x, residual)
    if merge == "forward":
        return Encoded(hf, C, np.zeros(0))
    below = hf if merge == "stack" else x
    hb = _stack(own["backward"], cell, below[::-1], residual)[::-1]
    H = len(own["backward"][0]["U_" + ("i" if cell == "lstm" else "r")])
    Hs = [_merge(own, merge, f, b) for f, b in zip(hf, hb, strict=True)]
    return Encoded(Hs, C, hb[0] if hb else np.zeros(H))


def _merge(own: dict[str, Any], merge: str, f: Vector, b: Vector) -> Vector:
    if merge == "concat":
        return np.concatenate([f, b])
    if merge == "sum":
        return f + b
    if merge == "project":
        return affine(own["project"], f, b)
    if merge == "halves":
        half = len(f) // 2
        k = affine(own["W_f"], f[:half], b[:half])
        return np.concatenate([k, affine(own["W_g"], f[half:], b[half:])])
    return b  # stack


def _stack(
    layers: list[Theta], cell: str, xs: list[Vector], residual: bool
) -> list[Vector]:
    for n, theta in enumerate(layers):
        hs = _run(theta, cell, xs)
        xs = [h + x for h, x in zip(hs, xs)] if residual and n > 0 else hs
    return xs


def _run(theta: Theta, cell: str, xs: list[Vector]) -> list[Vector]:
    h = c = np.zeros(len(theta["U_i" if cell == "lstm" else "U_r"]))
    states = []
    for x in xs:
        if cell == "lstm":
            h, c = lstm(theta, h, c, x)
        else:
            h = gru(theta, h, x, {"gru": "after", "gru_before": "before"}[cell])
        states.append(h)
    return states
