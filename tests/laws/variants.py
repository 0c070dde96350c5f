# SPDX-License-Identifier: Apache-2.0
"""Configs of every mechanism with its options, that tests of all models go through."""

import dataclasses
from typing import Any

from kvnmt import attention as attentions
from kvnmt import decoder as decoders
from kvnmt import target_context as target_contexts
from kvnmt.catalogue import Catalogue
from kvnmt.layers import Blocks
from kvnmt.model.config import ModelConfig

# All widths differ, so that a transposed or swapped matrix cannot fit.
BASE = ModelConfig(embedding=3, encoder=4, state=5, alignment=6)

CATALOGUES: dict[str, Catalogue] = {
    "attention": attentions.CATALOGUE,
    "decoder": decoders.CATALOGUE,
    "target_context": target_contexts.CATALOGUE,
}
Choice = str | tuple[str, dict[str, Any]]  # the name of a file, and its options


def chosen(config: ModelConfig) -> dict[str, tuple[str, dict[str, Any]]]:
    """Each of the three choices by the field that holds it, as name and options."""
    choices = {}
    for field, catalogue in CATALOGUES.items():
        options = getattr(config, field)
        choices[field] = catalogue.name_of(options), dataclasses.asdict(options)
    return choices


def fitting(config: ModelConfig) -> dict[str, Any]:
    """What the mechanisms of a config ask of its sizes."""
    (attention, looks), _, (target_context, reads) = chosen(config).values()
    if attention == "modifying_iw" or looks.get("score") == "dot":
        return {"state": config.sizes.annotation}  # a product of query and annotation
    if target_context == "key_value_predict":
        return {"state": 5 * {"plain": 1, "kv": 2, "kvp": 3}[reads["form"]]}
    if target_context == "n_gram":
        return {"state": 5 * reads["parts"]}
    if attention == "delta_memory" and looks["heads"] == 4:
        return {"alignment": 4}
    if target_context == "delta_memory" and reads["heads"] == 4:
        return {"alignment": 4, "state": 8}
    return {"merge": "halves"} if attention == "key_value" else {}


def case(**changes: Any) -> ModelConfig:
    """A config that differs from `BASE` in what is named, of sizes that fit."""
    for field in CATALOGUES.keys() & changes.keys():
        given: Choice = changes[field]
        name, options = (given, {}) if isinstance(given, str) else given
        changes[field] = CATALOGUES[field][name].Options(**options)
    config = dataclasses.replace(BASE, **changes)
    return dataclasses.replace(config, **fitting(config))


def rounds(count: int, **more: Any) -> Choice:
    """The conditional decoder with several rounds."""
    return "conditional", {"rounds": count} | more


def linguistic(**options: Any) -> Choice:
    return "linguistic_coverage", options


def neural(**options: Any) -> Choice:
    return "neural_coverage", options


def distortion(**options: Any) -> Choice:
    return "distortion", options


def memory(**options: Any) -> Choice:
    return "kv_memory", options


def delta(**options: Any) -> Choice:
    return "delta_memory", options


def slots(**options: Any) -> Choice:
    return "slots", options


def lstm(**options: Any) -> Choice:
    return "stacked_lstm", options


def past_future(**options: Any) -> Choice:
    return "past_future", options


ATTENTIONS = {
    "fixed-sum": case(attention=("none", {"projection": False}), merge="sum"),
    "concat-fed": case(
        attention=("dot", {"score": "concat"}),
        decoder=lstm(input_feeding=True, layers=3, initial="read"),
    ),
    "halves-projection-r2": case(
        attention=("key_value", {"query": "projection"}),
        decoder=rounds(2, initial="read"),
    ),
    "fertility-previous": case(
        attention=linguistic(max_fertility=3.0),
        decoder=lstm(score_state="previous", initial="backward"),
    ),
    "subtractive-r2": case(
        attention=linguistic(max_fertility=2.0, subtractive=True),
        decoder=rounds(2),
    ),
    "ungated-r2": case(attention=neural(cell="tanh", size=2), decoder=rounds(2)),
    "coverage-before-single-r2": case(
        attention=neural(cell="gru_before", size=2),
        decoder=("single", {"rounds": 2, "share_rounds": True}),
    ),
    "distortion-source-r2": case(
        attention=distortion(context="source", window=1, renormalise="distortion"),
        decoder=rounds(2),
    ),
    "distortion-target": case(
        attention=distortion(
            context="target", window=6, weight=0.3, renormalise="final"
        ),
        decoder=rounds(1, initial="read"),
    ),
    "additive-r2": case(decoder=rounds(2)),
    "rewritten-r2": case(attention=memory(values="rewritten"), decoder=rounds(2)),
    "share-addresses": case(attention=memory(share_addresses=True), decoder=rounds(2)),
    "share-rounds": case(attention=memory(), decoder=rounds(2, share_rounds=True)),
    "tanh": case(attention=memory(add="tanh"), decoder=rounds(2)),
}
MEMORIES = {  # linear memories and slots, of the source and of the translation
    "delta-sum-both": case(
        attention=delta(update="sum", heads=2, direction="both"),
        target_context=delta(update="sum"),
    ),
    "delta-decay-writes-r2": case(
        attention=delta(update="decay", write="decoder"),
        decoder=rounds(2, share_rounds=True),
        target_context=delta(update="decay"),
    ),
    "delta-gated": case(
        state=6,
        attention=delta(update="gated", key_size=4),
        target_context=delta(update="gated", heads=2, key_size=4),
    ),
    "delta-lstm-both": case(
        attention=delta(direction="both"),
        decoder=lstm(initial="read"),
        target_context=delta(update="kda"),
    ),
    "delta-kda-writes-both": case(
        attention=delta(update="kda", heads=2, direction="both", write="decoder"),
        target_context=slots(gate="abc", slots=3, key_size=2),
    ),
    "delta-channels-writes-r2": case(
        attention=delta(update="gated_delta_2", write="decoder"),
        decoder=rounds(2),
        target_context=delta(update="gated_delta_2"),
    ),
    "slots-abc": case(
        attention=slots(gate="abc", slots=3, key_size=4, write="decoder"),
        target_context=delta(update="gated_delta"),
    ),
    "slots-abc-r2": case(
        attention=slots(gate="abc", slots=3, key_size=4, write="decoder"),
        decoder=rounds(2),
    ),
    "slots-fading-r2": case(
        attention=slots(tau=1.0, write="decoder"),
        decoder=rounds(2),
        target_context=slots(tau=2.0),
    ),
}
DECODERS = {
    "start-backward": case(decoder=rounds(1, initial="backward"), cell="lstm"),
    "start-last": case(decoder=rounds(1, initial="last"), cell="gru_before"),
    "bias-in-reset-r2": case(decoder=rounds(2, reset="after_bias")),
    "start-zero": case(decoder=rounds(1, initial="zero"), merge="forward"),
    "transitions-memory-r2": case(
        attention="kv_memory", decoder=rounds(2, transitions=2), layer_norm=True
    ),
    "transitions-single": case(decoder=("single", {"transitions": 1})),
    "transitions-memdec": case(
        decoder=("mem_dec", {"transitions": 1, "rounds": 2, "share_rounds": True})
    ),
    "transitions-past-future": case(decoder=past_future(transitions=1)),
    "transitions-memory-rnn": case(decoder=("memory_rnn", {"transitions": 3})),
    "single-memory-r2": case(
        attention="kv_memory",
        decoder=("single", {"rounds": 2, "query": "tanh", "reset": "after_bias"}),
        target_context="key_value_predict",
    ),
    "lstm-coverage-fed": case(
        attention="neural_coverage",
        decoder=lstm(input_feeding=True, score_state="previous", initial="mean"),
    ),
    "lstm-memory": case(
        attention="kv_memory",
        decoder=lstm(layers=1, initial="zero"),
        target_context=("self_attentive", {"scope": True, "null_slot": False}),
    ),
    "no-null-slot": case(target_context=("self_attentive", {"null_slot": False})),
    "memdec-linear": case(
        attention="neural_coverage",
        decoder=(
            "mem_dec",
            {
                "initial": "last",
                "score": "linear",
                "weights": "recomputed",
                "slots": 3,
                "noise": 0.5,
            },
        ),
        merge="sum",
    ),
    "memdec-distortion-r2": case(
        attention="distortion",
        decoder=(
            "mem_dec",
            {"rounds": 2, "seat": "state_and_read", "weights": "reused"},
        ),
        target_context="state_only",
    ),
    "past-memory-r2": case(
        attention="kv_memory",
        decoder=past_future(rounds=2, initial="read", future=False),
    ),
    "future-outside": case(
        decoder=past_future(
            past=False, cell="outside", initial="backward", reset="after_bias"
        )
    ),
    "past-future-gru": case(
        decoder=past_future(cell="gru", subtractive=False),
        target_context="self_attentive_rnn",
    ),
    "past-future-average": case(
        attention="neural_coverage", decoder="past_future", average_auxiliary=True
    ),
    "memory-rnn-r2": case(
        attention="neural_coverage",
        decoder=(
            "memory_rnn",
            {"rounds": 2, "share_rounds": True, "initial": "last", "reset": "before"},
        ),
        target_context="self_attentive_rnn",
    ),
}
TARGET_CONTEXTS = {
    "plain": case(target_context=("key_value_predict", {"form": "plain", "window": 1})),
    "kv": case(
        decoder="mem_dec",
        target_context=(
            "key_value_predict",
            {"form": "kv", "window": 2, "word": False},
        ),
    ),
    "two-gram": case(
        tie="all",
        decoder="memory_rnn",
        target_context=("n_gram", {"parts": 2, "word": False}),
    ),
    "memory-self-attentive-r2": case(
        attention="kv_memory", decoder=rounds(2), target_context="self_attentive"
    ),
}
OUTSIDE = {  # encoder, readout, and no recurrence
    "sum": case(attention="kv_memory", decoder=rounds(2), merge="sum"),
    "stack": case(attention="kv_memory", decoder=rounds(2), merge="stack"),
    "project": case(attention="kv_memory", decoder=rounds(2), merge="project"),
    "deep-tied": case(  # by a layer between
        layers=2, decoder="single", readout="maxout", readout_size=7, tie="output"
    ),
    "deep-stack": case(
        layers=2,
        merge="stack",
        cell="gru_before",
        decoder=rounds(1, initial="backward"),
        low_rank=2,
    ),
    "deep-halves": case(attention="key_value", layers=2, cell="lstm", decoder=lstm()),
    "deeper": case(layers=3, residual=True, decoder=rounds(1)),
    "language-model": case(
        merge="none",
        attention=("none", {"projection": False}),
        decoder=("single", {"initial": "zero"}),
        target_context="mean",
    ),
    "maxout-low-rank": case(
        readout="maxout",
        low_rank=2,
        decoder=past_future(future=False),
        average_auxiliary=True,
    ),
    "no-readout-low-rank": case(
        readout="none",
        target_context=("key_value_predict", {"word": False}),
        low_rank=2,
    ),
    "transformer-each-r2": case(  # which attention knows s_{t-1}, and writes
        attention=neural(size=2),
        decoder=("transformer", {"rounds": 2, "heads": 3, "attention_in": "each"}),
        state=6,
    ),
    "transformer-distortion": case(  # whose attention knows the word before
        attention=distortion(context="target", window=6), decoder="transformer", state=6
    ),
    "transformer-tied": case(  # one width, as the paper has it
        attention=("multi_head", {"heads": 3}),
        decoder=("transformer", {"layers": 1, "feed_forward": 7, "dropout": 0.1}),
        target_context="state_only",
        blocks=Blocks(heads=2, feed_forward=5),
        **{"readout": "none", "tie": "output", "merge": "forward"},
        **{"cell": "transformer", "embedding": 6, "encoder": 6, "state": 6},
    ),
}
NORMALISED = {  # the products of recurrent units
    "normalised-coverage": case(
        layer_norm=True,
        attention=neural(size=2),
        decoder=rounds(1, reset="after_bias"),
    ),
    "normalised-lstm-fed": case(
        layer_norm=True, cell="lstm", decoder=lstm(input_feeding=True)
    ),
    "normalised-memdec-before": case(
        layer_norm=True,
        cell="gru_before",
        decoder=("mem_dec", {"seat": "state_and_read"}),
    ),
    "normalised-past-future": case(layer_norm=True, decoder="past_future"),
}
LEXICA = {  # what source words add to the readout
    "lexicon-memory-r2": case(
        lexicon=True, attention=memory(), decoder=rounds(2), low_rank=2
    ),
    "lexicon-tied-linear-memory": case(
        lexicon=True,
        tie="all",
        attention=delta(update="delta", write="decoder"),
        decoder=lstm(),
    ),
    "lexicon-transformer": case(lexicon=True, decoder="transformer"),
}
VARIANTS = ATTENTIONS | MEMORIES | DECODERS | TARGET_CONTEXTS | OUTSIDE
VARIANTS |= NORMALISED | LEXICA
