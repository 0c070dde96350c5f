# SPDX-License-Identifier: Apache-2.0
"""What training minimises: sums over the batch, with the count to divide by.

Every term is a sum in nats (or in the unit of its weight) over real target tokens;
the trainer divides the weighted total by the number of target tokens, once. The
auxiliary terms thus keep the scale of the papers, whose losses sum over time.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import jax.numpy as jnp
from flax import struct

from kvnmt.errors import OptionError
from kvnmt.fields import at_least, between
from kvnmt.layers import precise
from kvnmt.model.assembly import Prediction
from kvnmt.training.cross_entropy import cross_entropy
from kvnmt.typing import Array, Bool, Float, Int, typed


@dataclass(frozen=True)
class Objective:
    """Weights of the terms; where all are 0, plain likelihood."""

    label_smoothing: Annotated[float, between(0, 0.99)] = 0.0
    # lambda of Meng et al. (2018), equation 18; theirs is 1
    atteos: Annotated[float, at_least(0)] = 0.0
    atteos_rounds: Literal["last", "mean"] = "last"  # whose alignment it is laid on
    # of each auxiliary predictor; Zheng et al. (2018): 1
    subtractive: Annotated[float, at_least(0)] = 0.0


@struct.dataclass
class Loss:
    """Sums over a batch."""

    total: Float[Array, ""]  # what is minimised, before division by tokens
    nats: Float[Array, ""]  # negative log-likelihood
    atteos: Float[Array, ""]
    subtractive: Float[Array, ""]  # nats of all auxiliary predictors
    tokens: Int[Array, ""]  # real target tokens, EOS included


@typed
def atteos(
    alignment: Float[Array, "B T S"],
    source_mask: Bool[Array, "B S"],
    target_mask: Bool[Array, "B T"],
) -> Float[Array, " B"]:
    """The EOS-attention objective of Meng et al. (2018), equation 17, per sentence.

    Attention to the source's end of sentence (index n) is discouraged for every word
    and encouraged for the target's end of sentence (index m)::

        sum_{t<m} a_{t,n} + (1 - a_{m,n})

    It lies between 0 and m. A row without target words gives 0.
    """
    last = jnp.maximum(jnp.sum(source_mask, axis=1) - 1, 0)  # n
    on_end = jnp.take_along_axis(alignment, last[:, None, None], axis=2)[..., 0]
    ends = target_mask & (jnp.cumsum(target_mask, axis=1) == _count(target_mask))
    terms = jnp.where(ends, 1 - on_end, on_end)  # [B, T]
    return jnp.sum(jnp.where(target_mask, terms, 0), axis=1)


def loss(
    objective: Objective,
    prediction: Prediction,
    source: Int[Array, "B S"],
    target: Int[Array, "B T"],
) -> Loss:
    """Returns the sums of a batch under an objective.

    Label smoothing takes ``label_smoothing`` of the mass of the true word and spreads
    it evenly over the vocabulary. ATTEOS is laid on the alignment that feeds the
    prediction, that of the last round (equation 18 names none), or on the mean of all
    rounds. A subtractive loss is the negative log-likelihood of each auxiliary
    predictor (PAST and FUTURE layers).

    Raises:
        UserError: ATTEOS is asked of a system without an alignment, or a subtractive
            loss of one without auxiliary predictors.
    """
    mask = target >= 0
    word, others = prediction.heads[0], prediction.heads[1:]
    total, nats = cross_entropy(word, target, objective.label_smoothing)
    attention = jnp.zeros((), nats.dtype)
    if objective.atteos:
        if not prediction.features.alignments:
            raise OptionError(
                "the objective has ATTEOS, which needs a system with an alignment; set "
                "{0} to 0 or choose another attention.",
                "objective.atteos",
            )
        rounds = prediction.features.alignments
        reading = precise(rounds[-1])
        if objective.atteos_rounds == "mean":
            reading = jnp.mean(precise(jnp.stack(rounds)), axis=0)
        attention = jnp.sum(atteos(reading, source >= 0, mask))
        total = total + objective.atteos * attention
    auxiliary = jnp.zeros((), nats.dtype)
    if objective.subtractive:
        if not others:
            raise OptionError(
                "the objective has a subtractive loss, which needs the past_future "
                "decoder with its predictors; set {0} to 0.",
                "objective.subtractive",
            )
        for head in others:
            auxiliary += cross_entropy(head, target)[0]
        total = total + objective.subtractive * auxiliary
    return Loss(total, nats, attention, auxiliary, jnp.sum(mask))


def _count(mask: Bool[Array, "B T"]) -> Int[Array, "B 1"]:
    return jnp.sum(mask, axis=1, keepdims=True)
