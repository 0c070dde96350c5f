# SPDX-License-Identifier: Apache-2.0
"""What of the target so far reaches the readout: the catalogue, one file each."""

from kvnmt.catalogue import Catalogue
from kvnmt.target_context import (
    delta_memory,
    key_value_predict,
    mean,
    n_gram,
    previous_word,
    self_attentive,
    self_attentive_rnn,
    slots,
    state_only,
)
from kvnmt.target_context.base import Options, TargetContext

__all__ = ["CATALOGUE", "Options", "TargetContext"]

CATALOGUE = Catalogue(
    "target context",
    {
        "previous_word": previous_word,  # RNNsearch and all that extends it
        "state_only": state_only,  # Luong et al. 2015, Mino et al. 2017
        "mean": mean,  # Miculicich et al. 2018
        "self_attentive": self_attentive,  # Miculicich et al. 2018
        "self_attentive_rnn": self_attentive_rnn,  # Miculicich et al. 2018
        "key_value_predict": key_value_predict,  # Daniluk et al. 2017
        "n_gram": n_gram,  # Daniluk et al. 2017
        "delta_memory": delta_memory,  # Yang et al. 2024, 2025 and relatives
        "slots": slots,  # Zhang et al. 2024, Peng et al. 2022
    },
)
