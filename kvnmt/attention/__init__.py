# SPDX-License-Identifier: Apache-2.0
"""How the source is looked at: the catalogue, one file per mechanism."""

from kvnmt.attention import (
    additive,
    delta_memory,
    distortion,
    dot,
    key_value,
    kv_memory,
    linguistic_coverage,
    modifying_iw,
    multi_head,
    neural_coverage,
    none,
    slots,
)
from kvnmt.attention.base import (
    Attended,
    Attention,
    Change,
    Moment,
    Options,
    Weighed,
)
from kvnmt.catalogue import Catalogue

__all__ = [
    "CATALOGUE",
    "Attended",
    "Attention",
    "Change",
    "Moment",
    "Options",
    "Weighed",
]

CATALOGUE = Catalogue(
    "attention",
    {
        "none": none,  # Cho et al. 2014: one fixed context
        "additive": additive,  # Bahdanau et al. 2015
        "dot": dot,  # Luong et al. 2015
        "key_value": key_value,  # Mino et al. 2017
        "modifying_iw": modifying_iw,  # Mino et al. 2017
        "linguistic_coverage": linguistic_coverage,  # Tu et al. 2016
        "neural_coverage": neural_coverage,  # Tu et al. 2016
        "distortion": distortion,  # Zhang et al. 2017
        "kv_memory": kv_memory,  # Meng et al. 2018; 2016 with rewritten values
        "multi_head": multi_head,  # Vaswani et al. 2017
        "delta_memory": delta_memory,  # Yang et al. 2024, 2025 and relatives
        "slots": slots,  # Zhang et al. 2024, Peng et al. 2022
    },
)
