# SPDX-License-Identifier: Apache-2.0
"""How a run is trained: lengths, batches, validation, checkpoints."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from kvnmt import devices
from kvnmt.data.plan import Plan, by_pairs, by_tokens
from kvnmt.errors import OptionError
from kvnmt.fields import at_least, between, idle_while
from kvnmt.inference.config import Width
from kvnmt.training.step import StepOptions


@dataclass(frozen=True)
class TrainingConfig(StepOptions):
    """How long a run trains, on how much at a time, and when it stops."""

    epochs: Annotated[int, between(1, 10**6)] = 20  # most epochs
    steps: Annotated[int | None, at_least(1)] = None  # most steps, within the epochs
    batch_size: Annotated[int, between(1, 2**20)] = 80  # pairs per batch, all devices
    # instead of pairs, most tokens of the longer side on all devices, padding included
    batch_tokens: Annotated[int | None, between(1, 2**30)] = None
    shapes: Annotated[int, between(1, 255)] = 12  # most shapes of padded batches
    workers: Annotated[int, at_least(0)] = 0  # processes that make batches; 0: a thread
    # over how many devices embeddings and output layers are split; all else takes so
    # many times the memory
    model_axis: Annotated[int, at_least(1)] = 1
    # seed of everything random except BPE-dropout, which depends only on the line
    seed: Annotated[int, between(0, 2**32 - 1)] = 1
    # steps from one validation to the next; 0: after every epoch
    validate_every: Annotated[int, at_least(0)] = 0
    metric: Literal["bleu", "chrf", "loss"] = "bleu"  # chooses the best checkpoint
    # sacreBLEU's tokenizer in validation; none: for text that is tokenised
    bleu_tokenize: str = "13a"
    valid_beam: Width = 1  # hypotheses of the search for BLEU in validation; 1: greedy
    # steps between lines of steps.jsonl, in addition to metrics.jsonl; 0: none
    log_every: Annotated[int, at_least(0)] = 100
    # steps that JAX's profiler traces, once twenty are made; 0: none
    profile: Annotated[int, at_least(0)] = 0
    # validations without a better score before training stops early
    patience: Annotated[int, at_least(1)] = 5
    min_epochs: Annotated[int, at_least(0)] = 0  # epochs before an early stop
    # steps in a row with numbers that are not finite, before training stops
    skip_at_most: Annotated[int, at_least(1)] = 10
    # steps between saves, in addition to the save at every validation; 0: none
    save_every: Annotated[int, at_least(0)] = 0
    # save after so many minutes without a save; 0: never
    save_minutes: Annotated[float, between(0, 1e6)] = 30.0
    # newest checkpoints kept, and as many of the newest that were validated
    keep_last: Annotated[int, at_least(1)] = 2
    keep_best: Annotated[int, at_least(1)] = 1  # best checkpoints kept
    # the first checkpoint at or after each multiple of this is kept for good; 0: none
    keep_every: Annotated[int, at_least(0)] = 0
    warm_start: Path | None = None  # run directory of a trained model to start from
    # the trained model may have other words; words that both have keep their rows
    new_words: Annotated[bool, idle_while(warm_start=None)] = False
    # text file of word vectors (word2vec, GloVe, fastText) that embeddings start from
    source_vectors: Path | None = None
    target_vectors: Path | None = None


def plan_batches(
    config: TrainingConfig, lengths: NDArray[np.integer], mesh: Mesh
) -> Plan:
    """Plans batches that the devices, and the parts of a batch, can share.

    Raises:
        UserError: So many pairs cannot be shared.
    """
    share = devices.rows(mesh) * config.accumulate
    # The same batches on any number of devices that divides eight.
    multiple = math.lcm(8 * config.accumulate, share)
    if config.batch_tokens:
        return by_tokens(lengths, config.batch_tokens, config.shapes, multiple=multiple)
    if config.batch_size % share:
        raise OptionError(
            f"{{0}} {config.batch_size} cannot be split evenly over {share} devices "
            f"and parts ({{1}}); choose a multiple of {share}.",
            *("training.batch_size", "training.accumulate"),
        )
    return by_pairs(lengths, config.batch_size, config.shapes, multiple=multiple)
