# SPDX-License-Identifier: Apache-2.0
"""How many parameters a config has: every part from its equations, by hand."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvnmt.attention import (
    delta_memory,
    distortion,
    linguistic_coverage,
    neural_coverage,
)
from kvnmt.layers import Blocks
from kvnmt.model.config import ModelConfig
from tests.laws import cases


def gru(inputs: int, n: int) -> int:
    return 3 * (n * inputs + n * n + n)


def lstm(inputs: int, n: int) -> int:
    return 4 * (n * inputs + n * n + n)


def affine(inputs: int, n: int) -> int:
    return n * inputs + n


@dataclass
class Widths:
    """The letters of a config."""

    E: int
    H: int
    C: int
    D: int
    A: int
    c: int = 0  # width of the context

    @property
    def address(self) -> int:
        return self.A * self.D + self.A * self.C + 2 * self.A


def transformer_layer(o: Blocks, n: int) -> int:
    """Self-attention, feed-forward and a LayerNorm before each."""
    F = o.feed_forward or 4 * n
    return 4 * n * n + affine(n, F) + affine(F, n) + 4 * n


def transformer(o: Blocks, layers: int, inputs: int, n: int) -> int:
    """A stack, but for looks at a source."""
    entry = 0 if inputs == n else inputs * n
    return entry + layers * transformer_layer(o, n) + 2 * n


def encoder(config: ModelConfig, n: Widths) -> int:
    if config.cell == "transformer":
        return transformer(config.blocks, config.layers, n.E, n.H)
    cell = lstm if config.cell == "lstm" else gru
    above = (config.layers - 1) * cell(n.H, n.H)
    stack = cell(n.E, n.H) + above
    return {
        "none": 0,
        "forward": stack,
        "stack": stack + cell(n.H, n.H) + above,
        "project": 2 * stack + affine(2 * n.H, n.H),
        "halves": 2 * stack + 2 * affine(n.H, n.H // 2),
    }.get(config.merge, 2 * stack)


def _linguistic(o: linguistic_coverage.Options, n: Widths) -> int:
    return n.A + (0 if o.max_fertility is None else affine(n.C, 1))


def _neural(o: neural_coverage.Options, n: Widths) -> int:
    k, inputs = o.size, 1 + n.C + n.D
    return k * n.A + (k * k + k * inputs if o.cell == "tanh" else gru(inputs, k))


def _distortion(o: distortion.Options, n: Widths) -> int:
    width = {"source": n.C, "target": n.E, "hidden": n.D}[o.context]
    return affine(width, 2 * o.window + 1)


def writer(update: str, inputs: int, heads: int, keys: int, values: int) -> int:
    """A writer to a linear memory; ``keys`` and ``values`` of all heads together."""
    scalar, channels = affine(inputs, heads) + heads, affine(inputs, keys) + heads
    beta = affine(inputs, heads)
    both = affine(inputs, keys) + affine(inputs, values)
    return (
        inputs * (keys + values)
        + {
            "sum": 0,
            "decay": scalar,
            "gated": channels,
            "delta": beta,
            "gated_delta": scalar + beta,
            "kda": channels + beta,
            "gated_delta_2": channels + both,
        }[update]
    )


def _delta(o: delta_memory.Options, n: Widths) -> int:
    ends = 2 if o.direction == "both" else 1
    heads, keys, values = ends * o.heads, ends * (o.key_size or n.A), ends * n.C
    total = n.D * keys + writer(o.update, n.C, heads, keys, values)
    own = writer(o.update, n.D, heads, keys, values)
    return total + (own if o.write == "decoder" else 0)


def slots(o: Any, query: int, inputs: int, A: int) -> int:
    keys = o.key_size or A
    return query * keys + inputs * (keys + inputs + o.slots)


def _slots(o: Any, n: Widths) -> int:
    own = n.D * ((o.key_size or n.A) + n.C + o.slots)
    return slots(o, n.D, n.C, n.A) + (own if o.write == "decoder" else 0)


ATTENTIONS: dict[str, Callable[[Any, Widths], int]] = {
    "none": lambda o, n: affine(n.C, n.D) if o.projection else 0,
    "additive": lambda o, n: n.address,
    "dot": lambda o, n: {"dot": 0, "general": n.C * n.D, "concat": n.address}[o.score],
    "key_value": lambda o, n: affine(n.D, n.c) if o.query == "projection" else 0,
    "modifying_iw": lambda o, n: 0,
    "multi_head": lambda o, n: n.D * n.D + 2 * n.C * n.D,
    "linguistic_coverage": lambda o, n: n.address + _linguistic(o, n),
    "neural_coverage": lambda o, n: n.address + _neural(o, n),
    "distortion": lambda o, n: n.address + _distortion(o, n),
    "kv_memory": lambda o, n: (
        (1 if o.share_addresses else 2) * n.address + 2 * affine(n.D, n.C)
    ),
    "delta_memory": _delta,
    "slots": _slots,
}


def _past_future(o: Any, n: Widths, words: int) -> int:
    count, D = o.past + o.future, n.D
    future = {
        "gru": gru(n.c, D),
        "inside": gru(n.c, D) + D * D,
        "outside": gru(D, D) + D * D + D * n.c + affine(D, D),
    }[o.cell]
    heads = 2 * D * D + affine(D, n.E) + affine(n.E, words)
    own = gru(n.E, D) + gru(count * D, D) + o.subtractive * count * heads
    return own + o.past * gru(n.c, D) + o.future * future


def decoder(name: str, o: Any, n: Widths, attention: int, words: int) -> int:
    D, c = n.D, n.c
    if name == "transformer":
        own = o.rounds * {"last": 1, "each": o.layers}[o.attention_in]
        plain = 0 if o.attention_in == "each" else o.layers - 1
        looks = own * (attention + c * D) + plain * (2 * D * D + 2 * n.C * D)
        return transformer(o, o.layers, n.E, D) + looks + (own + plain) * 2 * D
    start = {"backward": n.H, "read": c, "mean": n.C, "last": n.C}
    total = 0 if o.initial == "zero" else affine(start[o.initial], D)
    if name == "stacked_lstm":
        fed = affine(D + c, D) if o.input_feeding else 0
        lowest = lstm(n.E + (D if o.input_feeding else 0), D)
        return total + lowest + (o.layers - 1) * lstm(D, D) + attention + fed
    query = D * D + n.E * D
    inputs = {
        "single": n.E + c,
        "mem_dec": n.E + c + (D if getattr(o, "seat", "read") != "read" else 0),
    }.get(name, c)
    rounds = 1 if o.share_rounds else o.rounds
    own = {
        "conditional": lambda: gru(n.E, D),
        "single": lambda: query if o.query == "tanh" else 0,
        "mem_dec": lambda: query + 4 * D * D + 2 * D + n.C * D,
        "past_future": lambda: _past_future(o, n, words),
        "memory_rnn": lambda: gru(n.E, D) + affine(2 * D + n.E, D) + D,
    }[name]()
    return (
        total + own + rounds * (attention + gru(inputs, D) + o.transitions * gru(0, D))
    )


def gains(config: ModelConfig) -> int:
    """Of normalised products: for each matrix as many as all gates have units."""
    if not config.layer_norm:
        return 0
    o, D = config.decoder, config.state
    stacks = {"none": 0, "forward": 1}.get(config.merge, 2)
    gates = 4 if config.cell == "lstm" else 3
    total = 2 * gates * config.encoder * stacks * config.layers
    name = cases.CATALOGUES["decoder"].name_of(o)
    if name == "stacked_lstm":
        return total + 4 * D * (2 * o.layers + o.input_feeding)
    rounds = 1 if o.share_rounds else o.rounds
    matrices = {
        "conditional": lambda: 2 + 2 * rounds,
        "single": lambda: 3 * rounds,
        "mem_dec": lambda: (3 + (o.seat != "read")) * rounds,
        "past_future": lambda: 2 + 2 * rounds + 1 + 3 * (o.past + o.future),
        "memory_rnn": lambda: 2 + 2 * rounds,
    }[name]()
    return total + 3 * D * (matrices + rounds * o.transitions)


FORMS = {"plain": 1, "kv": 2, "kvp": 3}


def target_context(name: str, o: Any, n: Widths) -> tuple[int, list[int]]:
    """The parameters, and the widths of the readout inputs."""
    E, D = n.E, n.D
    if name in ("key_value_predict", "n_gram"):
        parts = o.parts if name == "n_gram" else FORMS[o.form]
        k = D // parts
        return (D * k if name == "n_gram" else 4 * k * k + k), [k] + [E] * o.word
    if name == "delta_memory":
        keys = o.key_size or n.A
        return D * keys + writer(o.update, D, o.heads, keys, D), [D, E, D]
    return {
        "previous_word": lambda: (0, [D, E]),
        "state_only": lambda: (0, [D]),
        "mean": lambda: (0, [D, E]),
        "self_attentive": lambda: (affine(E, E) + E + o.scope * E * D, [D, E]),
        "self_attentive_rnn": lambda: (affine(2 * D, D) + D, [D, E, D]),
        "slots": lambda: (slots(o, D, D, n.A), [D, E, D]),
    }[name]()


def formula(config: ModelConfig, Vs: int, Vt: int) -> int:
    E, H, D = config.embedding, config.encoder, config.state
    C = {"concat": 2 * H, "none": 0}.get(config.merge, H)
    n = Widths(E, H, C, D, config.alignment or D)
    looks, moves, reads = (
        (catalogue.name_of(options), options)
        for options, catalogue in (
            (getattr(config, field), catalogue)
            for field, catalogue in cases.CATALOGUES.items()
        )
    )
    n.c = C // 2 if looks[0] == "key_value" else C
    if looks[0] == "multi_head" or looks[0] == "none" and looks[1].projection:
        n.c = D
    if looks[0] == "delta_memory" and looks[1].direction == "both":
        n.c = 2 * C
    attention = ATTENTIONS[looks[0]](looks[1], n)
    own, inputs = target_context(*reads, n)
    inputs = inputs + [n.c]
    if moves[0] == "past_future":
        inputs += [D] * (moves[1].past + moves[1].future)
    size = config.readout_size or E
    readout = {
        "tanh": affine(sum(inputs), size),
        "maxout": affine(sum(inputs), 2 * size),
        "none": 0,
    }[config.readout]
    width = inputs[0] if config.readout == "none" else size
    low_rank = config.low_rank or (E if config.tie != "none" and width != E else 0)
    if low_rank:
        readout, width = readout + width * low_rank, low_rank
    tables = (Vs * E if config.merge != "none" and config.tie != "all" else 0) + Vt * E
    output = affine(width, Vt) if config.tie == "none" else Vt
    output += (affine(E, E) + E * width) if config.lexicon else 0
    outer = tables + encoder(config, n) + own + readout + output + gains(config)
    return outer + decoder(*moves, n, attention, Vt)
