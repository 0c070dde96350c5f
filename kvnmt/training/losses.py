# SPDX-License-Identifier: Apache-2.0
"""What training minimises: sums over the batch, with the count to divide by.

Every term is a sum in nats (or in the unit of its weight) over real target tokens;
the trainer divides the weighted total once, by the number of target tokens or, as the
papers' codes do, of sentences. The auxiliary terms keep the scale of the papers, whose
losses sum over time.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import jax.numpy as jnp
from flax import struct

from kvnmt.errors import OptionError, UserError
from kvnmt.fields import at_least, between, check_fields, idle_while
from kvnmt.layers import precise
from kvnmt.model.assembly import Model, Prediction
from kvnmt.training.cross_entropy import cross_entropy
from kvnmt.typing import Array, Bool, Float, Int, typed


@dataclass(frozen=True)
class Objective:
    """Weights of the loss terms; if all are 0, plain likelihood."""

    # share of each word that is spread over the vocabulary
    label_smoothing: Annotated[float, between(0, 0.99)] = 0.0
    # weight of ATTEOS: lambda of Meng et al. (2018), equation 19; theirs is 1
    atteos: Annotated[float, at_least(0)] = 0.0
    # the rounds whose alignment ATTEOS reads
    atteos_rounds: Annotated[Literal["last", "mean"], idle_while(atteos=0)] = "last"
    # weight of each auxiliary predictor's loss; Zheng et al. (2018): 1
    subtractive: Annotated[float, at_least(0)] = 0.0
    # weight of the distance between the attention and the links of --data.links; Chen
    # et al. (2016)
    guided: Annotated[float, at_least(0)] = 0.0
    # weight of the risk: mean 1 - BLEU of translations that the model draws; Shen et
    # al. (2016)
    risk: Annotated[float, at_least(0)] = 0.0
    # translations drawn for the risk, per source; Shen et al. have 100
    risk_samples: Annotated[int, between(1, 1000), idle_while(risk=0)] = 10
    # the loss is divided by the number of target tokens or, as in the papers' codes, of
    # sentences. With sentences, gradients are longer, by the number of tokens in a
    # sentence: that matters for clipping, sgd and adadelta.
    normalization: Literal["tokens", "sentences"] = "tokens"


# Beside the likelihood, by their weights.
TERMS = ("atteos", "subtractive", "guided", "risk")


def with_terms(run: Objective, other: Objective) -> Objective:
    """The objective of a run, and the terms of another that it has not."""
    more = {name: getattr(other, name) for name in TERMS if not getattr(run, name)}
    return replace(run, **more)


@struct.dataclass
class Loss:
    """Sums over a batch."""

    total: Float[Array, ""]  # what is minimised, before division
    # negative log-likelihood; with label smoothing it has no gradient: minimise total
    nats: Float[Array, ""]
    atteos: Float[Array, ""]
    subtractive: Float[Array, ""]  # nats of all auxiliary predictors
    tokens: Int[Array, ""]  # real target tokens, EOS included
    guided: Float[Array, ""]  # nats between attention and links
    risk: Float[Array, ""]  # what drawn translations lack of BLEU 1, times words


def check_risk(objective: Objective, model: Model) -> None:
    """Refuses risk where nothing is translated.

    Raises:
        OptionError: The model is a language model.
    """
    if objective.risk and not model.reads_source:
        raise OptionError(
            "{0} is of translations, and a language model makes none; leave it out.",
            "objective.risk",
        )


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


@typed
def guided(
    alignment: Float[Array, "B T S"], links: Bool[Array, "B T S"]
) -> Float[Array, " B"]:
    """The cross-entropy between given links and the attention, per sentence.

    The sum over t and s of ``-A_ts log a_ts``, where A shares the mass of a target
    token evenly among the source tokens that it is linked to (Chen et al. 2016, "Guided
    Alignment Training for Topic-Aware Neural Machine Translation"; Liu et al. 2016,
    "Neural Machine Translation with Supervised Attention"). A token without a link,
    such as EOS, adds nothing.
    """
    shares = links.astype(alignment.dtype)
    shares = shares / jnp.maximum(jnp.sum(shares, axis=2, keepdims=True), 1)
    least = jnp.finfo(alignment.dtype).tiny
    return jnp.sum(shares * -jnp.log(jnp.maximum(alignment, least)), axis=(1, 2))


def loss(
    objective: Objective,
    prediction: Prediction,
    source: Int[Array, "B S"],
    target: Int[Array, "B T"],
    links: Bool[Array, "B T S"] | None = None,
    risks: Float[Array, " B"] | None = None,
) -> Loss:
    """Returns the sums of a batch under an objective.

    Label smoothing takes ``label_smoothing`` of the mass of the true word and spreads
    it evenly over the vocabulary. ATTEOS is laid on the alignment that feeds the
    prediction, that of the last round (equation 18 names none), or on the mean of all
    rounds. Links, which a guide needs, are laid on that of the last round. A
    subtractive loss is the negative log-likelihood of each auxiliary predictor (PAST
    and FUTURE layers). Risks are those of `kvnmt.training.risk`.

    Raises:
        UserError: ATTEOS or a guide is asked of a system without an alignment, or a
            subtractive loss of one without auxiliary predictors, links or risks are
            missing, several models predict together, or a weight is out of bounds.
    """
    check_fields(objective)
    if not prediction.heads:
        raise UserError("an ensemble is trained model by model; it has no loss.")
    total, nats = cross_entropy(prediction.heads[0], target, objective.label_smoothing)
    sums = {name: jnp.zeros((), nats.dtype) for name in TERMS}
    if objective.atteos:
        sums["atteos"] = _atteos(objective, prediction, source, target)
    if objective.subtractive:
        sums["subtractive"] = _subtractive(prediction, target)
    if objective.guided:
        sums["guided"] = _guided(prediction, links)
    if objective.risk:
        if risks is None:
            raise UserError("the objective has a risk; give that of each sentence.")
        sums["risk"] = jnp.sum(risks).astype(nats.dtype)
    for name, term in sums.items():
        weight = getattr(objective, name)
        total = total + weight * term if weight else total
    return Loss(total, nats, tokens=jnp.sum(target >= 0), **sums)


def _atteos(
    objective: Objective, prediction: Prediction, source: Array, target: Array
) -> Array:
    rounds = _alignments(prediction, "ATTEOS", "objective.atteos")
    reading = precise(rounds[-1])
    if objective.atteos_rounds == "mean":
        reading = jnp.mean(precise(jnp.stack(rounds)), axis=0)
    return jnp.sum(atteos(reading, source >= 0, target >= 0))


def _subtractive(prediction: Prediction, target: Array) -> Array:
    heads = prediction.heads[1:]
    if not heads:
        raise OptionError(
            "the objective has a subtractive loss, which needs a decoder with "
            "auxiliary predictors (past_future has an option for them); set {0} to 0.",
            "objective.subtractive",
        )
    return sum((cross_entropy(head, target)[0] for head in heads), start=jnp.zeros(()))


def _guided(prediction: Prediction, links: Array | None) -> Array:
    rounds = _alignments(prediction, "a guide for the attention", "objective.guided")
    if links is None:
        raise UserError(
            "the objective has a guide, which takes links between words; give these "
            "too."
        )
    return jnp.sum(guided(precise(rounds[-1]), links))


def _alignments(prediction: Prediction, what: str, option: str) -> tuple[Array, ...]:
    rounds = prediction.features.alignments
    if not rounds:
        raise OptionError(
            f"the objective has {what}, which needs a system with an alignment; set "
            "{0} to 0 or choose another attention.",
            option,
        )
    return rounds


def _count(mask: Bool[Array, "B T"]) -> Int[Array, "B 1"]:
    return jnp.sum(mask, axis=1, keepdims=True)
