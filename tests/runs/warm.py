# SPDX-License-Identifier: Apache-2.0
"""Parameters that are told by the names of their arrays."""

import functools

import numpy as np

from kvnmt.model import assembly
from kvnmt.model.assembly import Params
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import system
from kvnmt.trees import by_name
from tests.helpers import SIZES, drawn

BASELINE = system("rnnsearch-star").model(SIZES)


@functools.cache
def params(config: ModelConfig, seed: int) -> Params:
    """Random parameters, biases too: no two arrays are equal by chance."""
    return drawn(assembly.build(config, 10, 11), seed, 1)


def named(tree: Params) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf) for name, leaf in by_name(tree).items()}
