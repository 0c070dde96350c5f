# SPDX-License-Identifier: Apache-2.0
"""What a training run measures on its validation text.

A batch is no larger than a part of a batch of training (`--training.accumulate`), in
pairs or in tokens, of the loss and of the search for BLEU alike. The logits of the loss
stand for a part of the words at a time; a search has those of one step, and so needs
less (with a beam there are fewer sentences). There is no gradient: nothing is kept for
one, whatever `--training.remat` says.
"""

from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from kvnmt import devices
from kvnmt.data.batches import EncodedCorpus, pad
from kvnmt.data.corpus import Corpora
from kvnmt.data.plan import Plan
from kvnmt.data.stream import BatchAt
from kvnmt.data.vocabulary import EOS
from kvnmt.inference.config import GREATEST, MOST_TOKENS, SearchConfig
from kvnmt.inference.program import search_rows
from kvnmt.inference.translate import translate
from kvnmt.metrics.bleu import corpus_bleu, corpus_chrf
from kvnmt.model.assembly import Model, Params
from kvnmt.model.contract import negative_log_likelihood
from kvnmt.training.config import TrainingConfig, plan_batches
from kvnmt.training.cross_entropy import cross_entropy
from kvnmt.training.losses import TERMS, Loss
from kvnmt.training.sharding import over_rows
from kvnmt.training.step import KEPT
from kvnmt.typing import Array

SHAPES = 4  # that are compiled, at most: each runs a few times only


class Validation(NamedTuple):
    """What was measured, and the translations; a language model has none."""

    figures: dict[str, float]
    translations: list[str]


def measure(
    model: Model,
    eval_step: jax.stages.Wrapped,
    params: Params,
    plan: Plan,
    corpora: Corpora,
    config: TrainingConfig,
    search: SearchConfig,
    mesh: Mesh,
) -> Validation:
    """The loss and, of a model that reads a source, the scores of its translations.

    They are BLEU and the metric that chooses the best checkpoint.
    """
    figures = {
        "valid_loss": validation_loss(eval_step, params, plan, corpora.valid, mesh)
    }
    if not model.reads_source:
        return Validation(figures, [])
    whole = devices.gather(params, mesh)
    lines = _translations(model, whole, corpora, config, search)
    references = corpora.references
    bleu = corpus_bleu(lines, references, tokenize=config.bleu_tokenize)
    figures["valid_bleu"] = bleu.score
    if config.metric == "chrf":
        figures["valid_chrf"] = corpus_chrf(lines, references).score
    return Validation(figures, lines)


def trace_search(model: Model) -> None:
    """Traces greedy search, so that what cannot be searched is never trained."""
    word = jnp.zeros((1, 1), jnp.int32)
    search = partial(search_rows, model, searching(TrainingConfig()))
    jax.eval_shape(search, model.param_shapes, word, jnp.zeros(1, jnp.int32))


def plan_validation(config: TrainingConfig, valid: EncodedCorpus, mesh: Mesh) -> Plan:
    """Plans batches that need no more memory than a part of one in training.

    Each validation has the same batches, so that all shapes are there from the start.

    Raises:
        UserError: So many pairs cannot be shared.
    """
    few = replace(_of_a_part(config), shapes=min(config.shapes, SHAPES))
    return plan_batches(few, valid.lengths, mesh).with_all_shapes()


def searching(
    config: TrainingConfig,
    search: SearchConfig = SearchConfig(),
    local: int = 1,
    processes: int = 1,
) -> SearchConfig:
    """The search for BLEU, in batches no larger than a part of one in training.

    It is the run's search, greedy or with another beam, and without penalties for
    coverage or likeness. Its limits on the length and the words of translations stay,
    since they decide what is measured.

    Args:
        config: Has the beam, and the batches of training, of all processes together.
        search: The run's; each device has as much at a time as it says.
        local: Devices of this process, which share a batch.
        processes: How many search at once.
    """
    beam = config.valid_beam
    one = {"nbest": 1, "sample": False, "diversity": 0.0, "coverage": 0.0}
    usual = replace(search, **one, beam=beam, top_k=None, top_p=1.0)
    few = _of_a_part(config)
    rows, tokens = search.batch_size * local, search.batch_tokens * local
    if few.batch_tokens:
        tokens = min(max(few.batch_tokens // processes // beam, 1), tokens)
    else:
        rows = min(max(few.batch_size // processes // beam, 1), rows)
    rows, tokens = min(rows, GREATEST), min(tokens, MOST_TOKENS)
    return replace(usual, batch_size=rows, batch_tokens=tokens)


@lru_cache(maxsize=KEPT)
def make_eval_step(model: Model, mesh: Mesh | None = None) -> jax.stages.Wrapped:
    """Returns the jitted ``(params, source, target) -> Loss``: plain likelihood.

    It is that of the distribution that translates: of a mean of predictors, if the
    model takes one.

    Args:
        model: The functions.
        mesh: Whose data axis the rows are split over; None: all on one device.
    """

    def sums_of(params: Params, source: Array, target: Array) -> tuple[Loss, tuple]:
        prediction = model.forward(params, source, target)
        if prediction.mean is None:
            nats = cross_entropy(prediction.heads[0], target)[1]
        else:
            nats = jnp.sum(negative_log_likelihood(prediction.mean, target))
        zero = jnp.zeros_like(nats)
        rest = dict.fromkeys(TERMS, zero)
        return Loss(nats, nats, tokens=jnp.sum(target >= 0), **rest), ()

    sums = sums_of
    if mesh is not None and mesh.shape["data"] > 1:
        sums = over_rows(sums_of, mesh)

    def step(params: Params, source: Array, target: Array) -> Loss:
        return sums(params, source, target)[0]

    return jax.jit(step)


def validation_loss(
    eval_step: jax.stages.Wrapped,
    params: Params,
    plan: Plan,
    valid: EncodedCorpus,
    mesh: Mesh,
) -> float:
    """Nats per target token, EOS included."""
    batch_at = BatchAt(valid, plan, 0, devices.part())
    batches = map(batch_at, range(plan.per_epoch))
    steps = [eval_step(params, *devices.split_rows(x, mesh)) for x in batches]
    sums = jax.device_get(steps)  # no step waits for another to be fetched
    tokens = sum(int(one.tokens) for one in sums)
    return sum(float(one.nats) for one in sums) / max(tokens, 1)


def _translations(
    model: Model,
    params: Params,
    corpora: Corpora,
    config: TrainingConfig,
    search: SearchConfig,
) -> list[str]:
    """Translations of the whole text; several processes take its lines in turn."""
    number, count = devices.part()
    source = [ids[:-1].tolist() for ids in corpora.valid.source]
    few = searching(config, search, jax.local_device_count(), count)
    translations = translate(model, devices.own(params), source[number::count], few)
    ids = _together([t.ids for t in translations], len(source))
    return [corpora.vocabularies.target.decode(words) for words in ids]


def _together(own: list[list[int]], total: int) -> list[list[int]]:
    """The ids that all processes have found, in the order of the text."""
    number, count = devices.part()
    if count == 1:
        return own
    # Each with its place before it, whatever the order in which they are gathered.
    told = [np.array([number + n * count, *ids]) for n, ids in enumerate(own)]
    longest = np.int32(max(map(len, told), default=1))
    width = int(np.max(multihost_utils.process_allgather(longest)))
    block = pad(told, -(-total // count), width)
    every = np.asarray(multihost_utils.process_allgather(block)).reshape(-1, width)
    found = {int(row[0]): row[1:] for row in every}
    return [found[n][found[n] > EOS].tolist() for n in range(total)]


def _of_a_part(config: TrainingConfig) -> TrainingConfig:
    """The batches of a part as batches of their own."""
    parts = config.accumulate
    few = replace(config, accumulate=1)
    if config.batch_tokens:
        return replace(few, batch_tokens=max(config.batch_tokens // parts, 1))
    return replace(few, batch_size=max(config.batch_size // parts, 1))
