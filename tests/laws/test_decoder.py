# SPDX-License-Identifier: Apache-2.0
"""The laws of every decoder of the catalogue."""

from functools import cache

import pytest

from kvnmt import decoder
from kvnmt.attention import additive
from kvnmt.laws.decoder import LAWS
from kvnmt.laws.decoder_trial import Trial, make_trial

LAW = {law.name: law for law in LAWS}


@cache
def trial_of(name: str) -> Trial:
    attention = additive.build(additive.Options())
    member = decoder.CATALOGUE[name]
    return make_trial(member.build(member.Options(), attention))


@pytest.mark.parametrize("law", LAW)
@pytest.mark.parametrize("name", decoder.CATALOGUE)
def test_a_law_holds(name, law):
    assert list(LAW[law].violations(trial_of(name))) == []
