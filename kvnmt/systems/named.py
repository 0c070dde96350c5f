# SPDX-License-Identifier: Apache-2.0
"""The named systems of the papers: which mechanisms, which objective.

A system chooses mechanisms and leaves sizes alone, so that any two can be compared
at the same sizes. Any other combination is a matter of configuration.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvnmt.attention import (
    delta_memory,
    distortion,
    dot,
    key_value,
    kv_memory,
    linguistic_coverage,
    modifying_iw,
    multi_head,
    neural_coverage,
    none,
    slots,
)
from kvnmt.decoder import (
    conditional,
    mem_dec,
    memory_rnn,
    past_future,
    single,
    stacked_lstm,
    transformer,
)
from kvnmt.errors import OptionError, unknown_name
from kvnmt.model.config import ModelConfig
from kvnmt.target_context import delta_memory as target_delta_memory
from kvnmt.target_context import (
    key_value_predict,
    mean,
    n_gram,
    self_attentive,
    self_attentive_rnn,
    state_only,
)
from kvnmt.target_context import slots as target_slots
from kvnmt.training.losses import Objective

# What a system that does not say otherwise is made of: RNNsearch*.
MECHANISMS = ("attention", "decoder", "target_context", "cell", "layers", "readout")
DEFAULT = ModelConfig()


@dataclass(frozen=True)
class NamedSystem:
    """One row of a paper's table."""

    paper: str
    choices: Mapping[str, Any] = field(default_factory=dict)  # fields of ModelConfig
    atteos: float = 0.0
    subtractive: float = 0.0

    def model(self, base: ModelConfig = DEFAULT) -> ModelConfig:
        """The system at the sizes of ``base``.

        Mechanisms that the system does not name are those of RNNsearch*. Sizes, dropout
        and initialisers are those of ``base``; so is the encoder's merge, unless this
        system has its own, or that of ``base`` belongs to another system. The readout
        of a language model is as wide as the state, as the papers count.
        """
        default = {name: getattr(DEFAULT, name) for name in MECHANISMS}
        if base.merge in OWN_MERGES:
            default["merge"] = DEFAULT.merge
        chosen = default | dict(self.choices)
        if self.is_language_model:
            chosen["readout_size"] = base.state
        elif not base.reads_source:  # what a language model has instead of a source
            chosen = {"readout_size": DEFAULT.readout_size} | chosen
        return dataclasses.replace(base, **chosen)

    def objective(self, base: Objective = Objective()) -> Objective:
        """The system's objective, otherwise that of ``base``."""
        weights = {"atteos": self.atteos, "subtractive": self.subtractive}
        return dataclasses.replace(base, **weights)

    @property
    def is_language_model(self) -> bool:
        """Whether the system reads no source."""
        return self.choices.get("merge") == "none"


BAHDANAU = "Bahdanau et al. 2015"
MINO = "Mino et al. 2017"
TU = "Tu et al. 2016, section 3"
MENG = "Meng et al. 2018"
ZHANG = "Zhang et al. 2017"
ZHENG = "Zheng et al. 2018"
MICULICICH = "Miculicich et al. 2018"
VASWANI = "Vaswani et al. 2017"
BOTH = f"{VASWANI} with {MENG}, section 3"


def _single(**changes: Any) -> dict[str, Any]:
    chosen = {"decoder": single.Options(**changes), "cell": "gru_before"}
    return chosen | {"readout": "maxout"}


def _lstm(attention: Any, merge: str = "project", **changes: Any) -> dict[str, Any]:
    return {
        "attention": attention,
        "decoder": stacked_lstm.Options(**changes),
        "target_context": state_only.Options(),
        "merge": merge,
        "cell": "lstm",
        "layers": 2,
    }


def _coverage(attention: Any) -> NamedSystem:
    return NamedSystem(TU, {"attention": attention})


def _distortion(context: Any) -> NamedSystem:
    return NamedSystem(ZHANG, {"attention": distortion.Options(context=context)})


def _kvmematt(rounds: int, atteos: float = 0.0) -> NamedSystem:
    decoder = conditional.Options(rounds=rounds)
    choices = {"attention": kv_memory.Options(), "decoder": decoder}
    return NamedSystem(f"{MENG}, section 3", choices, atteos)


def _past_future(subtractive: float = 0.0, **options: Any) -> NamedSystem:
    decoder = past_future.Options(subtractive=subtractive > 0, **options)
    return NamedSystem(ZHENG, {"decoder": decoder}, subtractive=subtractive)


def _transformer(paper: str, attention: Any, rounds: int = 1) -> NamedSystem:
    choices = {
        "attention": attention,
        "decoder": transformer.Options(rounds=rounds),
        "target_context": state_only.Options(),
        "readout": "none",
        "merge": "forward",
        "cell": "transformer",
        "layers": 2,
    }
    return NamedSystem(paper, choices)


def _residual(section: str, context: Any) -> NamedSystem:
    return NamedSystem(f"{MICULICICH}, section {section}", {"target_context": context})


def _language_model(context: Any, readout: str) -> NamedSystem:
    choices = {
        "attention": none.Options(projection=False),
        "decoder": stacked_lstm.Options(layers=1, initial="zero"),
        "target_context": context,
        "merge": "none",
        "readout": readout,
    }
    return NamedSystem(f"{MICULICICH}, table 6", choices)


def _window(form: Any) -> key_value_predict.Options:
    return key_value_predict.Options(form=form, window=15, word=False)


TANH_QUERY = single.Options(
    initial="mean", query="tanh", reset="after", readout_state="current"
)

SYSTEMS: dict[str, NamedSystem] = {
    "rnnencdec": NamedSystem(
        f"{BAHDANAU}, after Cho et al. 2014",
        _single(initial="read") | {"attention": none.Options(), "merge": "forward"},
    ),
    "rnnsearch": NamedSystem(BAHDANAU, _single()),
    "rnnsearch-star": NamedSystem(f"{MENG}, section 2"),
    "rnnsearch-star-tanh": NamedSystem(
        "Wang et al. 2016, section 2.1", {"decoder": TANH_QUERY}
    ),
    "rnnsearch-star-atteos": NamedSystem(f"{MENG}, section 2 with 3.2", atteos=1.0),
    "attn": NamedSystem(f"{MINO}, section 3.1", _lstm(dot.Options())),
    "attn-general": NamedSystem(
        "Luong et al. 2015", _lstm(dot.Options(score="general"))
    ),
    "attn-concat": NamedSystem("Luong et al. 2015", _lstm(dot.Options(score="concat"))),
    "attn-input-feeding": NamedSystem(
        "Luong et al. 2015",
        _lstm(dot.Options(score="general"), input_feeding=True) | {"readout": "none"},
    ),
    "key-value": NamedSystem(
        f"{MINO}, section 3.2", _lstm(key_value.Options(), "halves")
    ),
    "modifying-iw": NamedSystem(f"{MINO}, section 3.3", _lstm(modifying_iw.Options())),
    "coverage-linguistic": _coverage(linguistic_coverage.Options()),
    "coverage-fertility": _coverage(linguistic_coverage.Options(max_fertility=2.0)),
    "coverage-subtractive": _coverage(linguistic_coverage.Options(subtractive=True)),
    "coverage-neural": _coverage(neural_coverage.Options()),
    "coverage-neural-10": _coverage(neural_coverage.Options(size=10)),
    "coverage-neural-ungated": _coverage(neural_coverage.Options(cell="tanh")),
    "interactive": NamedSystem(
        "Meng et al. 2016",
        {"attention": kv_memory.Options(values="rewritten", share_addresses=True)},
    ),
    "mematt": NamedSystem(
        f"Meng et al. 2016; {MENG}, section 2",
        {"attention": kv_memory.Options(values="rewritten")},
    ),
    "memdec": NamedSystem(
        "Wang et al. 2016, section 3", {"decoder": mem_dec.Options()}
    ),
    "kvmematt-r1": _kvmematt(1),
    "kvmematt-r1-atteos": _kvmematt(1, 1.0),
    "kvmematt-r2": _kvmematt(2),
    "kvmematt-r2-atteos": _kvmematt(2, 1.0),
    "kvmematt-r3": _kvmematt(3),
    "delta-memory": NamedSystem(
        "Yang et al. 2024", {"attention": delta_memory.Options(heads=4)}
    ),
    "gated-delta-memory": NamedSystem(
        "Yang et al. 2025",
        {
            "attention": delta_memory.Options(
                update="gated_delta", heads=4, write="decoder"
            )
        },
    ),
    "slots": NamedSystem("Zhang et al. 2024", {"attention": slots.Options()}),
    "distortion-s": _distortion("source"),
    "distortion-t": _distortion("target"),
    "distortion-h": _distortion("hidden"),
    "past": _past_future(future=False),
    "future": _past_future(past=False),
    "past-future": _past_future(),
    "past-future-losses": _past_future(1.0),
    "mean-residual": _residual("4.1", mean.Options()),
    "self-attentive-residual": _residual("4.2", self_attentive.Options()),
    "self-attentive-residual-scope": _residual(
        "4.2", self_attentive.Options(scope=True)
    ),
    "memory-rnn": NamedSystem(
        f"{MICULICICH}, section 5.1", {"decoder": memory_rnn.Options()}
    ),
    "self-attentive-rnn": _residual("5.2", self_attentive_rnn.Options()),
    "key-value-predict": NamedSystem(
        "Daniluk et al. 2017", {"target_context": key_value_predict.Options()}
    ),
    "n-gram": NamedSystem("Daniluk et al. 2017", {"target_context": n_gram.Options()}),
    "delta-residual": NamedSystem(
        "Kimi Team 2025",
        {"target_context": target_delta_memory.Options(update="kda", heads=4)},
    ),
    "slot-residual": NamedSystem(
        "Zhang et al. 2024", {"target_context": target_slots.Options()}
    ),
    "transformer": _transformer(VASWANI, multi_head.Options()),
    "transformer-kvmematt-r1": _transformer(BOTH, kv_memory.Options()),
    "transformer-kvmematt-r2": _transformer(BOTH, kv_memory.Options(), 2),
    "lm-lstm": _language_model(state_only.Options(), "none"),
    "lm-attention": _language_model(_window("plain"), "none"),
    "lm-key-value": _language_model(_window("kv"), "none"),
    "lm-key-value-predict": _language_model(_window("kvp"), "none"),
    "lm-4-gram": _language_model(n_gram.Options(word=False), "none"),
    "lm-mean-residual": _language_model(mean.Options(), "tanh"),
    "lm-self-attentive-residual": _language_model(self_attentive.Options(), "tanh"),
}


# Others go with all systems.
OWN_MERGES = {one.choices.get("merge") for one in SYSTEMS.values()} - {"concat", "sum"}


def system(name: str) -> NamedSystem:
    """Looks a system up by its name.

    Raises:
        UserError: There is none of that name; the nearest is suggested.
    """
    if name not in SYSTEMS:
        raise unknown_name("system", name, SYSTEMS)
    return SYSTEMS[name]


def check_no_mechanism(sizes: ModelConfig, remedy: str) -> None:
    """Refuses sizes that name what each system has of its own.

    Args:
        sizes: What systems are to be built at.
        remedy: What one does to get it.

    Raises:
        UserError: A mechanism is not `DEFAULT`'s, or the merge is a system's own.
    """
    own = [x for x in MECHANISMS if getattr(sizes, x) != getattr(DEFAULT, x)]
    if own := own + ["merge"] * (sizes.merge in OWN_MERGES):
        sentence = f"each system has its own {{0}}; leave it out, or {remedy}."
        raise OptionError(sentence, own[0], prefix="model.")
