# SPDX-License-Identifier: Apache-2.0
"""What of the target so far reaches the readout: the catalogue, one file each."""

from kvnmt.catalogue import Catalogue
from kvnmt.target_context import previous_word
from kvnmt.target_context.base import Options, TargetContext

__all__ = ["CATALOGUE", "Options", "TargetContext"]

CATALOGUE = Catalogue(
    "target context",
    {
        "previous_word": previous_word,  # RNNsearch and all that extends it
    },
)
