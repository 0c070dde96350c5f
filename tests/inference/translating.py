# SPDX-License-Identifier: Apache-2.0
"""A model that was not trained, and sentences for it."""

from kvnmt.data.vocabulary import EOS
from kvnmt.inference.config import SearchConfig
from kvnmt.model import assembly
from kvnmt.model.assembly import Model, Params
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import system
from tests.helpers import drawn

SIZES = ModelConfig(embedding=6, encoder=5, state=7)
WORDS = 12
GREEDY = SearchConfig(beam=1, batch_size=4)
BASE = SearchConfig(beam=2, length_ratio=0.1, length_extra=2)


def build(name: str) -> tuple[Model, Params]:
    """A model whose random parameters make it talk, and of different things."""
    model = assembly.build(system(name).model(SIZES), WORDS, WORDS)
    return model, want_to_end(drawn(model), -2.0)


def want_to_end(params: Params, bias: float) -> Params:
    b = params.output.b.at[EOS].set(bias)
    return params.replace(output=params.output.replace(b=b))
