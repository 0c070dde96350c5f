# SPDX-License-Identifier: Apache-2.0
"""How a run is trained: lengths, batches, validation, checkpoints."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from kvnmt import devices
from kvnmt.data.plan import Plan, by_pairs, by_tokens
from kvnmt.training.step import StepOptions


@dataclass(frozen=True)
class TrainingConfig(StepOptions):
    """How long, how much at a time, and when to stop."""

    epochs: int = 20  # at most
    batch_size: int = 80  # pairs, over all devices
    batch_tokens: int | None = None  # or tokens of the longer side, padding included
    shapes: int = 12  # at most so many padded shapes are compiled
    workers: int = 0  # processes that make batches; 0: a thread
    model_axis: int = 1  # devices that share what has an entry for each word
    seed: int = 1
    validate_every: int = 0  # steps; 0: after every epoch
    metric: Literal["bleu", "loss"] = "bleu"  # chooses the best checkpoint
    bleu_tokenize: str = "13a"  # sacreBLEU's; none: the text is tokenised
    patience: int = 5  # validations without a better score before an early stop
    skip_at_most: int = 10  # steps in a row whose numbers are not finite
    save_every: int = 0  # steps, beside the save at every validation; 0: none
    keep_last: int = 2  # newest checkpoints kept beside the best
    keep_every: int = 0  # checkpoints of steps that are multiples stay; 0: none
    warm_start: Path | None = None  # run directory of a trained model to start from


def plan_batches(
    config: TrainingConfig, lengths: NDArray[np.integer], mesh: Mesh
) -> Plan:
    """Plans batches that the devices, and the parts of a batch, can share.

    Raises:
        UserError: So many pairs cannot be shared.
    """
    share = devices.rows(mesh) * config.accumulate
    if config.batch_tokens:
        # The same batches on any number of devices that divides eight.
        multiple = math.lcm(8 * config.accumulate, share)
        return by_tokens(lengths, config.batch_tokens, config.shapes, multiple=multiple)
    devices.check_rows(config.batch_size, share, "devices and parts")
    return by_pairs(lengths, config.batch_size, config.shapes)
