# SPDX-License-Identifier: Apache-2.0
"""How the source is looked at: the catalogue, one file per mechanism."""

from kvnmt.attention import additive, kv_memory
from kvnmt.attention.base import Attended, Attention, Moment, Options
from kvnmt.catalogue import Catalogue

__all__ = ["CATALOGUE", "Attended", "Attention", "Moment", "Options"]

CATALOGUE = Catalogue(
    "attention",
    {
        "additive": additive,  # Bahdanau et al. 2015
        "kv_memory": kv_memory,  # Meng et al. 2018; 2016 with rewritten values
    },
)
