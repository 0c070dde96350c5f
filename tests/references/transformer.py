# SPDX-License-Identifier: Apache-2.0
"""Stacks of Transformer layers, word by word: an encoder's and a decoder's."""

from typing import Any

import numpy as np

from tests.references.attention import ATTENTIONS, Memory, Moment
from tests.references.blocks import (
    Vector,
    attend,
    enter,
    feed_forward,
    layer_norm,
    number_of_heads,
)


def read_all(W: dict[str, Any], heads: int | None, words: list[Vector]) -> list[Vector]:
    """A stack in which every position looks at all."""
    width = len(W["LN"]["g"])
    N = number_of_heads(heads, width)
    xs = [enter(W["P"], x, t, width) for t, x in enumerate(words)]
    for own in W["layers"]:
        normal = [layer_norm(own["LN_own"], x) for x in xs]
        ks = [own["W_K"] @ x for x in normal]
        vs = [own["W_V"] @ x for x in normal]
        reads = [attend(N, own["W_Q"] @ x, ks, vs)[0] for x in normal]
        xs = [x + own["W_O"] @ read for x, read in zip(xs, reads, strict=True)]
        xs = [feed_forward(own, x) for x in xs]
    return [layer_norm(W["LN"], x) for x in xs]


def decode(W, attention, decoder, encoded, xs, sizes):
    """At every word: s_t, c_t and the alignments of all rounds."""
    options = decoder[1]
    heads = number_of_heads(options["heads"], sizes.D)
    plain = ("multi_head", {"heads": options["heads"]})
    looks = [plain] * len(W["layers"])
    looks[-1] = attention
    if options["attention_in"] == "each":
        looks = [attention] * len(looks)
    memories: list[Memory] = [
        ATTENTIONS[name].start(given, encoded.Hs, encoded.C) for name, given in looks
    ]
    ks: list[list[Vector]] = [[] for _ in looks]
    vs: list[list[Vector]] = [[] for _ in looks]
    before = [np.zeros(sizes.D) for _ in looks]
    steps = []
    for t, x in enumerate(xs):
        h = enter(W["P"], x, t, sizes.D)
        for n, (own, (name, given)) in enumerate(zip(W["layers"], looks)):
            how = ATTENTIONS[name]
            normal = layer_norm(own["LN_own"], h)
            ks[n].append(own["W_K"] @ normal)
            vs[n].append(own["W_V"] @ normal)
            read, _ = attend(heads, own["W_Q"] @ normal, ks[n], vs[n])
            h = came = h + own["W_O"] @ read
            alignments = []
            for part in own["rounds"]:
                q = layer_norm(part["LN"], h)
                now = Moment(before[n], x, q)
                c, a = how.read(part["theta"], given, memories[n], now)
                h = h + part["W_c"] @ c
                now = Moment(before[n], x, q, h, c, a)
                memories[n] = how.write(part["theta"], given, memories[n], now)
                alignments += [] if a is None else [a]
            before[n] = came
            h = feed_forward(own, h)
        steps.append((layer_norm(W["LN"], h), c, alignments))
    return steps
