# SPDX-License-Identifier: Apache-2.0
"""Mechanisms that ask something of the widths say so before anything is made."""

import jax
import pytest

from kvnmt.attention import (
    CATALOGUE,
    delta_memory,
    dot,
    key_value,
    modifying_iw,
    multi_head,
)
from kvnmt.errors import UserError
from kvnmt.initializers import gaussian
from kvnmt.typing import Sizes

SIZES = Sizes(embedding=3, encoder=4, annotation=8, state=5, alignment=6)


@pytest.mark.parametrize(
    "options, changes, said",
    [
        (dot.Options(), {}, "8 and 5"),
        (key_value.Options(), {"annotation": 7}, "even width, not 7"),
        (key_value.Options(), {"state": 3}, "no half for keys of 4"),
        (modifying_iw.Options(), {"annotation": 7}, "not 7"),
        (modifying_iw.Options(), {"state": 3}, "state of 3"),
        (multi_head.Options(heads=2), {}, "2 heads .* width of 5 .*attention.heads"),
        (delta_memory.Options(heads=4), {}, "keys of width 6 .* 4 heads"),
        (delta_memory.Options(heads=3), {}, "values of width 8 .* 3 heads"),
    ],
    ids=str,
)
def test_widths_that_cannot_be(options, changes, said):
    init = CATALOGUE.build(options).init
    with pytest.raises(UserError, match=said):
        init(jax.random.key(0), SIZES._replace(**changes), gaussian())


@pytest.mark.parametrize(
    "options, changes",
    [
        (dot.Options(), {"state": 8}),
        (dot.Options(score="general"), {}),
        (key_value.Options(), {"state": 4}),
        (key_value.Options(query="projection"), {"state": 3}),
        (modifying_iw.Options(), {"state": 4}),
        (multi_head.Options(heads=2), {"state": 6}),
    ],
    ids=str,
)
def test_widths_that_just_fit(options, changes):
    init = CATALOGUE.build(options).init
    init(jax.random.key(0), SIZES._replace(**changes), gaussian())


def test_half_of_the_context_starts_unread():
    built = {name: CATALOGUE.build(m.Options()) for name, m in CATALOGUE.items()}
    unread = {name: attention.unread(SIZES) for name, attention in built.items()}
    assert unread.pop("modifying_iw") == 4
    assert not any(unread.values())
