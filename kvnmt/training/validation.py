# SPDX-License-Identifier: Apache-2.0
"""What a training run measures on its validation text."""

import jax
import numpy as np
from jax.sharding import Mesh

from kvnmt import devices
from kvnmt.data import batches
from kvnmt.data.batches import EncodedCorpus
from kvnmt.data.buckets import edge
from kvnmt.data.corpus import Corpora
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.translate import translate
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.models import Model, Params
from kvnmt.training.config import TrainingConfig


def figures(
    model: Model,
    eval_step: jax.stages.Wrapped,
    params: Params,
    corpora: Corpora,
    config: TrainingConfig,
    mesh: Mesh,
) -> dict[str, float]:
    """The loss and, of a model that reads a source, BLEU on the validation text."""
    loss = validation_loss(eval_step, params, corpora.valid, config.batch_size, mesh)
    if not model.reads_source:
        return {"valid_loss": loss}
    whole = devices.gather(params, mesh)
    bleu = validation_bleu(model, whole, corpora, config.bleu_tokenize)
    return {"valid_loss": loss, "valid_bleu": bleu}


def score(metric: str, figures: dict[str, float]) -> float:
    """What the best checkpoint has most of."""
    if metric == "bleu" and "valid_bleu" in figures:
        return figures["valid_bleu"]
    return -figures["valid_loss"]  # a language model has no other


def validation_loss(
    eval_step: jax.stages.Wrapped,
    params: Params,
    valid: EncodedCorpus,
    rows: int,
    mesh: Mesh,
) -> float:
    """Nats per target token, EOS included; batches of ``rows``, sorted by length.

    Where the devices cannot share as many rows, there are a few more.
    """
    index, count = devices.part()
    shares = devices.rows(mesh)
    rows_here = -(-rows // shares) * shares // count  # of this process
    rows = rows_here * count
    longer = valid.lengths.max(axis=1)
    order = np.argsort(longer, kind="stable")
    nats = tokens = 0.0
    for start in range(0, len(order), rows):
        lines = order[start : start + rows]
        longest = edge(int(longer[lines].max()))
        lines = lines[index * rows_here : (index + 1) * rows_here]
        batch = batches.make_batch(valid, lines, rows_here, (longest, longest))
        arrays = devices.split_rows(batch, mesh)
        sums = jax.device_get(eval_step(params, *arrays))
        nats, tokens = nats + float(sums.nats), tokens + int(sums.tokens)
    return nats / max(tokens, 1)


def validation_bleu(
    model: Model, params: Params, corpora: Corpora, tokenize: str
) -> float:
    """BLEU of the greedy translations."""
    translations = translate(
        model,
        devices.own(params),
        [ids[:-1].tolist() for ids in corpora.valid.source],
        SearchConfig(beam=1),
    )
    lines = [corpora.vocabularies.target.decode(t.ids) for t in translations]
    return corpus_bleu(lines, corpora.references, tokenize=tokenize).score
