# SPDX-License-Identifier: Apache-2.0
"""The laws of every decoder of the catalogue."""

from functools import cache

import pytest

from kvnmt import decoder
from kvnmt.attention import Attention, additive, kv_memory
from kvnmt.decoder import conditional, memory_rnn, stacked_lstm, transformer
from kvnmt.laws.decoder import LAWS
from kvnmt.laws.decoder_trial import Trial, heeding, make_trial

LAW = {law.name: law for law in LAWS}
READS = additive.build(additive.Options())
# Without writes, all rounds but one are idle.
WRITES = heeding(kv_memory.build(kv_memory.Options()))
CASES: dict[str, tuple[decoder.Options, Attention]] = {
    name: (member.Options(), WRITES) for name, member in decoder.CATALOGUE.items()
} | {
    "rounds": (conditional.Options(rounds=2), WRITES),
    "rounds-of-memory-rnn": (memory_rnn.Options(rounds=2), WRITES),
    "after-the-scan": (stacked_lstm.Options(), READS),
    "at-once": (transformer.Options(), READS),
}
# Of those that are not as they come: where their paths part.
FORMS = {"widths", "padding", "steps", "reach"}


@cache
def trial_of(name: str) -> Trial:
    options, attention = CASES[name]
    return make_trial(decoder.CATALOGUE.build(options, attention))


@pytest.mark.parametrize(
    "name, law",
    [(n, law) for n in CASES for law in LAW if n in decoder.CATALOGUE or law in FORMS],
)
def test_a_law_holds(name, law):
    assert list(LAW[law].violations(trial_of(name))) == []
