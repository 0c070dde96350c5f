# SPDX-License-Identifier: Apache-2.0
"""What a recipe is made of: each ingredient left out, and systems composed of several.

Each is a change of an `Experiment` to another. What was tried and is not in the recipe
stands in experiments/findings/best_captions.md, "Tried and not kept": look there first.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kvnmt.data.config import DataConfig
from kvnmt.errors import unknown_name
from kvnmt.runs.config import Experiment
from kvnmt.target_context import self_attentive
from kvnmt.training.losses import Objective

Change = Callable[[Experiment], Experiment]


def with_part(
    part: str, changes: dict[str, object], experiment: Experiment
) -> Experiment:
    """With other fields of a part: of the model, the data or another."""
    changed = replace(getattr(experiment, part), **changes)
    return replace(experiment, **{part: changed})


def with_dropout(changes: dict[str, float], experiment: Experiment) -> Experiment:
    """With other rates."""
    rates = replace(experiment.model.dropout, **changes)
    return with_part("model", {"dropout": rates}, experiment)


def warmed(experiment: Experiment) -> Experiment:
    """As a Transformer learns: a rising rate at first, and dropout in its layers."""
    model = experiment.model
    parts = {"blocks": model.blocks, "decoder": model.decoder}
    drops = {name: replace(part, dropout=0.1) for name, part in parts.items()}
    experiment = with_part("model", drops, experiment)
    return with_part("optimizer", {"warmup": 1000}, experiment)


def with_words(experiment: Experiment) -> Experiment:
    """With words that were seen at least twice."""
    return replace(experiment, data=DataConfig(min_count=2))


def widths(units: int) -> dict[str, object]:
    """One width for embeddings, each direction of the encoder, and the state."""
    return {"embedding": units, "encoder": units, "state": units}


WITHOUT: dict[str, Change] = {
    "joint pieces": with_words,
    "trimming them": partial(with_part, "data", {"trimmed": False}),
    "label smoothing": lambda e: replace(e, objective=Objective()),
    "dropout of embeddings": partial(with_dropout, {"embedding": 0.0}),
    "dropout of annotations": partial(with_dropout, {"annotations": 0.0}),
    "dropout of the readout": partial(with_dropout, {"output": 0.0}),
    "averaging": lambda e: replace(e, training=replace(e.training, ema=0.0)),
    "a steady rate": partial(with_part, "optimizer", {"decay": 0.8}),
    "a high rate": partial(with_part, "optimizer", {"learning_rate": None}),
    "layer normalisation": partial(with_part, "model", {"layer_norm": False}),
    "a tied output layer": partial(with_part, "model", {"tie": "none"}),
    "small arrays at first": partial(with_part, "model", {"initializer": "unit"}),
}
# Systems composed of what several papers have: from which, and how.
COMPOSED: dict[str, tuple[str, Change]] = {
    "residual-memory": (
        "kvmematt-r2-atteos",
        partial(with_part, "model", {"target_context": self_attentive.Options()}),
    ),
    "rnnsearch-star-lexicon": (
        "rnnsearch-star",
        partial(with_part, "model", {"lexicon": True}),
    ),
    # Annotations summed, so that keys have the width that the paper's counts imply.
    "kvmematt-r2-lexicon": (
        "kvmematt-r2",
        partial(with_part, "model", {"lexicon": True, "merge": "sum"}),
    ),
    "rnnsearch-star-lexicon-384": (
        "rnnsearch-star",
        partial(with_part, "model", {"lexicon": True} | widths(384)),
    ),
    **{
        f"transformer{memory}": (f"transformer{memory}", warmed)
        for memory in ("", "-kvmematt-r1", "-kvmematt-r2")
    },
}


def leave_out(name: str, recipe: Experiment) -> Experiment:
    """A recipe without an ingredient; with no name, as it is.

    Raises:
        UserError: There is no such ingredient.
    """
    if not name:
        return recipe
    if name not in WITHOUT:
        raise unknown_name("ingredient", name, WITHOUT)
    return WITHOUT[name](recipe)
