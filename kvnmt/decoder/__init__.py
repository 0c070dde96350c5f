# SPDX-License-Identifier: Apache-2.0
"""How the decoder state moves: the catalogue, one file per decoder."""

from kvnmt.catalogue import Catalogue
from kvnmt.decoder import (
    conditional,
    mem_dec,
    memory_rnn,
    past_future,
    single,
    stacked_lstm,
    transformer,
)
from kvnmt.decoder.base import (
    SCAN,
    Decoder,
    Features,
    Options,
    features_over_time,
    scanned,
    whole_step,
)

__all__ = [
    "CATALOGUE",
    "Decoder",
    "Features",
    "Options",
    "SCAN",
    "features_over_time",
    "scanned",
    "whole_step",
]

CATALOGUE = Catalogue(
    "decoder",
    {
        "conditional": conditional,  # RNNsearch*; with rounds, KVMemAtt
        "single": single,  # Bahdanau et al. 2015
        "stacked_lstm": stacked_lstm,  # Luong et al. 2015, Mino et al. 2017
        "mem_dec": mem_dec,  # Wang et al. 2016
        "past_future": past_future,  # Zheng et al. 2018
        "memory_rnn": memory_rnn,  # Miculicich et al. 2018
        "transformer": transformer,  # Vaswani et al. 2017
    },
)
