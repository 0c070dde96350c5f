# SPDX-License-Identifier: Apache-2.0
"""The named systems of the papers: which mechanisms, which objective.

A system chooses mechanisms and leaves sizes alone, so that any two can be compared
at the same sizes. Any other combination is a matter of configuration.
"""

import dataclasses
from dataclasses import dataclass, field

from kvnmt import attention as attentions
from kvnmt import decoder as decoders
from kvnmt.attention import additive, kv_memory
from kvnmt.decoder import conditional
from kvnmt.errors import unknown_name
from kvnmt.losses import Objective
from kvnmt.models import ModelConfig


@dataclass(frozen=True)
class System:
    """One row of a paper's table."""

    paper: str
    attention: attentions.Options = field(default_factory=additive.Options)
    decoder: decoders.Options = field(default_factory=conditional.Options)
    atteos: float = 0.0

    def model(self, base: ModelConfig = ModelConfig()) -> ModelConfig:
        """The system at the sizes of ``base``."""
        return dataclasses.replace(base, attention=self.attention, decoder=self.decoder)

    def objective(self, base: Objective = Objective()) -> Objective:
        """The system's objective, otherwise that of ``base``."""
        return dataclasses.replace(base, atteos=self.atteos)


def _kvmematt(rounds: int, atteos: float = 0.0) -> System:
    paper = "Meng et al. 2018, section 3"
    return System(
        paper, kv_memory.Options(), conditional.Options(rounds=rounds), atteos
    )


SYSTEMS: dict[str, System] = {
    "rnnsearch-star": System("Meng et al. 2018, section 2"),
    "rnnsearch-star-atteos": System("Meng et al. 2018, section 2 with 3.3", atteos=1.0),
    "mematt": System(
        "Meng et al. 2016; 2018, section 2", kv_memory.Options(values="rewritten")
    ),
    "kvmematt-r1": _kvmematt(1),
    "kvmematt-r1-atteos": _kvmematt(1, 1.0),
    "kvmematt-r2": _kvmematt(2),
    "kvmematt-r2-atteos": _kvmematt(2, 1.0),
    "kvmematt-r3": _kvmematt(3),
}


def system(name: str) -> System:
    """Looks a system up by its name.

    Raises:
        UserError: There is none of that name; the nearest is suggested.
    """
    if name not in SYSTEMS:
        raise unknown_name("system", name, SYSTEMS)
    return SYSTEMS[name]
