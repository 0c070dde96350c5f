# SPDX-License-Identifier: Apache-2.0
"""Layers as pairs of functions: ``init_*`` makes the arrays, the other applies them."""

from kvnmt.layers.basic import (
    Linear,
    draw,
    dropout,
    embed,
    init_linear,
    last_annotation,
    linear,
    masked_mean,
    masked_softmax,
    precise,
    row_keys,
    split_key,
)
from kvnmt.layers.recurrent import (
    GRU,
    LSTM,
    Reset,
    gru,
    init_gru,
    init_lstm,
    lstm,
    recurrent_inputs,
    recurrent_product,
    with_masks,
)
from kvnmt.layers.scan import Kept, Residuals, keep, scan

__all__ = [
    "GRU",
    "Kept",
    "LSTM",
    "Linear",
    "Reset",
    "Residuals",
    "draw",
    "dropout",
    "embed",
    "gru",
    "init_gru",
    "init_linear",
    "init_lstm",
    "keep",
    "last_annotation",
    "linear",
    "lstm",
    "masked_mean",
    "masked_softmax",
    "precise",
    "recurrent_inputs",
    "recurrent_product",
    "row_keys",
    "scan",
    "split_key",
    "with_masks",
]
