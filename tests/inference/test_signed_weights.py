# SPDX-License-Identifier: Apache-2.0
"""What looks consist of, against the alignment."""

import dataclasses

import jax
import numpy as np

from kvnmt.attention import CATALOGUE, delta_memory
from kvnmt.decoder import conditional, stacked_lstm, transformer
from kvnmt.inference.recording import has_signs, signed_weights
from kvnmt.inference.score import score
from kvnmt.model import assembly
from kvnmt.model.config import ModelConfig

BASE = ModelConfig(embedding=4, encoder=4, state=4, initializer="unit", merge="sum")
SOURCE, TARGET = [[3, 4, 5], [6], []], [[3, 4], [5, 6, 7, 3], [2]]


def test_which_mechanisms_have_signs():
    telling = {
        name
        for name, member in CATALOGUE.items()
        if has_signs(dataclasses.replace(BASE, attention=member.Options()))
    }
    assert telling == {"delta_memory", "slots"}


def test_sizes_are_the_alignment_and_own_writes_begin_after_the_first():
    """In both rounds; where the decoder looks after its scan; in the last of layers."""
    both = {"heads": 2, "direction": "both"}
    writes = delta_memory.Options(update="gated_delta", write="decoder", **both)
    for attention, decoder, heads in (
        (writes, conditional.Options(rounds=2), 4),
        (delta_memory.Options(), stacked_lstm.Options(), 1),
        (delta_memory.Options(), transformer.Options(attention_in="each"), 1),
    ):
        config = dataclasses.replace(BASE, attention=attention, decoder=decoder)
        model = assembly.build(config, 9, 8)
        params = model.init(jax.random.key(3))
        told = signed_weights(config, params, SOURCE, TARGET)
        for one, pair, x, y in zip(
            told, score(model, params, SOURCE, TARGET), SOURCE, TARGET, strict=True
        ):
            for signed, own, alignment in zip(
                one.signed, one.own, pair.alignments, strict=True
            ):
                assert signed.shape == (heads, len(y) + 1, len(x) + 1)
                size = np.abs(signed).sum(axis=0)
                size /= size.sum(-1, keepdims=True)
                np.testing.assert_allclose(size, alignment, atol=1e-5)
                assert own.shape == (len(y) + 1,) and np.all((own >= 0) & (own <= 1))
            assert one.own[0][0] == 0
            later = np.concatenate([one.own[0][1:], *one.own[1:]])
            assert np.all((later > 0) == (attention == writes))
