# SPDX-License-Identifier: Apache-2.0
"""How the decoder state moves: the catalogue, one file per decoder."""

from kvnmt.catalogue import Catalogue
from kvnmt.decoder import conditional
from kvnmt.decoder.base import Decoder, Features, Options

__all__ = ["CATALOGUE", "Decoder", "Features", "Options"]

CATALOGUE = Catalogue(
    "decoder",
    {
        "conditional": conditional,  # RNNsearch*; with rounds, KVMemAtt
    },
)
