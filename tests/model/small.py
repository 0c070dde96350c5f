# SPDX-License-Identifier: Apache-2.0
"""Small models and what they predict."""

import dataclasses

import jax
import numpy as np

from kvnmt.model.config import Dropout
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET

NO_DROPOUT = Dropout(output=0.0)


def logits(rates: Dropout, key: jax.Array | None) -> np.ndarray:
    config = dataclasses.replace(cases.BASE, dropout=rates)
    prediction = cases.forward(config)(cases.params(config), SOURCE, TARGET, key)
    return np.asarray(prediction.logits)
