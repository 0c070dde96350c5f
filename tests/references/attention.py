# SPDX-License-Identifier: Apache-2.0
"""Every source mechanism: what it remembers, how it reads, how it writes.

A memory is a dict with a list of vectors per name, one vector per source word.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from tests.references.blocks import Theta, Vector, address, sigmoid, weighted_sum

Memory = dict[str, list[Vector]]
Options = dict[str, Any]


class Start(Protocol):
    def __call__(self, Hs: list[Vector], options: Options) -> Memory: ...


class Read(Protocol):
    def __call__(
        self, theta: dict[str, Theta], options: Options, memory: Memory, q: Vector
    ) -> tuple[Vector, list[float]]: ...


class Write(Protocol):
    def __call__(
        self, theta: dict[str, Theta], options: Options, memory: Memory, s: Vector
    ) -> Memory: ...


class Reference(NamedTuple):
    start: Start
    read: Read
    write: Write


# RNNsearch*: the annotations are addressed and read, never rewritten.


def additive_start(Hs: list[Vector], options: Options) -> Memory:
    return {"Hs": Hs}


def additive_read(theta, options, memory, q):
    a = address(theta["theta_r"], q, memory["Hs"])
    C = theta["theta_r"]["U"].shape[1]
    return weighted_sum(a, memory["Hs"], C), a


def additive_write(theta, options, memory, s):
    return memory


# KVMemAtt: values Vm fixed, keys Km rewritten. MemAtt: one memory Hs for both.


def memory_start(Hs: list[Vector], options: Options) -> Memory:
    if options["values"] == "fixed":
        return {"Km": Hs, "Vm": Hs}
    return {"Hs": Hs}


def memory_read(theta, options, memory, q):
    C = theta["theta_r"]["U"].shape[1]
    if options["values"] == "fixed":
        a = address(theta["theta_r"], q, memory["Km"])
        return weighted_sum(a, memory["Vm"], C), a
    a = address(theta["theta_r"], q, memory["Hs"])
    return weighted_sum(a, memory["Hs"], C), a


def memory_write(theta, options, memory, s):
    if options["values"] == "fixed":
        return {"Km": _write(theta, options, memory["Km"], s), "Vm": memory["Vm"]}
    return {"Hs": _write(theta, options, memory["Hs"], s)}


def _write(
    theta: dict[str, Theta], options: Options, cells: list[Vector], s: Vector
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


ATTENTIONS = {
    "additive": Reference(additive_start, additive_read, additive_write),
    "kv_memory": Reference(memory_start, memory_read, memory_write),
}
