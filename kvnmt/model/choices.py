# SPDX-License-Identifier: Apache-2.0
"""Refuses choices of a new model that leave something out by mistake.

A model that was trained with them can still be read.
"""

from kvnmt import target_context as target_contexts
from kvnmt.errors import OptionError
from kvnmt.model.config import ModelConfig


def check_choices(config: ModelConfig) -> None:
    """Refuses a readout that loses an input, and looks at a source that is not there.

    Raises:
        OptionError: Something would be computed that no prediction depends on.
    """
    if config.readout == "none":
        _check_handed_on(config)
    if not config.reads_source:
        _check_looks_at_nothing(config)


def _check_looks_at_nothing(config: ModelConfig) -> None:
    if config.built_attention.context_size(config.sizes):
        raise OptionError(
            "a language model has no source to make a context of; turn {0} off.",
            "attention.projection",
            prefix="model.",
        )
    if config.tie == "all":
        raise OptionError(
            "{0} all shares a table with the source, and a language model reads none; "
            "give {0} output.",
            "tie",
            prefix="model.",
        )
    if config.built_decoder.looks_itself:
        raise OptionError(
            "layers below the last would look at a source, and a language model reads "
            "none; set {0} each.",
            "decoder.attention_in",
            prefix="model.",
        )


def _check_handed_on(config: ModelConfig) -> None:
    sizes = config.sizes
    decoder = config.built_decoder
    before = target_contexts.CATALOGUE.build(config.target_context).widths(sizes)
    names = [name for name, width in before.items() if width]
    lost, remedy = names[1:], "choose another target context, such as state_only"
    if not lost:
        now, remedy = decoder.feature_sizes(sizes), "choose another decoder"
        known = {"context"} if decoder.state_reads else set[str]()
        lost = [name for name, width in now.items() if width and name not in known]
    if names and lost:
        raise OptionError(
            f"{{0}} none hands on '{names[0]}' alone, and '{lost[0]}' would be lost; "
            f"set {{0}} tanh, or {remedy}.",
            "readout",
            prefix="model.",
        )
