# SPDX-License-Identifier: Apache-2.0
"""Laws of every source mechanism under its contract."""

from functools import cache

import numpy as np
import pytest

from kvnmt.attention import (
    CATALOGUE,
    Options,
    delta_memory,
    distortion,
    dot,
    key_value,
    kv_memory,
    linguistic_coverage,
    multi_head,
    neural_coverage,
    none,
    slots,
)
from kvnmt.laws.attention import LAWS
from kvnmt.laws.trial import SIZES, Trial, make_trial

OPTIONS: dict[str, Options] = {
    name: member.Options() for name, member in CATALOGUE.items()
} | {
    "annotation": none.Options(projection=False),
    "general": dot.Options(score="general"),
    "concat": dot.Options(score="concat"),
    "projection": key_value.Options(query="projection"),
    "fertility": linguistic_coverage.Options(max_fertility=2.0),
    "subtractive": linguistic_coverage.Options(subtractive=True),
    "ungated": neural_coverage.Options(cell="tanh", size=2),
    "before": neural_coverage.Options(cell="gru_before", size=2),
    "distortion-source": distortion.Options(context="source", window=6),
    "distortion-target": distortion.Options(context="target", renormalise="distortion"),
    "distortion-final": distortion.Options(renormalise="final"),
    "rewritten": kv_memory.Options(values="rewritten"),
    "shared-tanh": kv_memory.Options(share_addresses=True, add="tanh"),
    "heads": multi_head.Options(heads=7),
    "kda": delta_memory.Options(update="kda"),
    "delta-sum": delta_memory.Options(update="sum"),
    "delta-sum-writes": delta_memory.Options(update="sum", write="decoder"),
    "delta-writes-both": delta_memory.Options(
        update="gated_delta_2", heads=2, direction="both", write="decoder"
    ),
    "abc-writes": slots.Options(gate="abc", write="decoder"),
}
LAW = {law.name: law for law in LAWS}
EXCUSED: dict[type[Options], set[str]] = {
    none.Options: {"order"},
    distortion.Options: {"order", "sum"},  # mass is lost over the edges
    neural_coverage.Options: {"kept"},  # coverage of padding drifts; nothing reads it
    delta_memory.Options: {"order"},  # what comes later erases, or the earlier fades
    slots.Options: {"order"},
}
ORDERLESS = {
    "delta-sum",
    "delta-sum-writes",
    "abc-writes",
}  # of these, sums and softmaxes alone


def excused(name: str) -> set[str]:
    return set() if name in ORDERLESS else EXCUSED.get(type(OPTIONS[name]), set())


# Other programs, or one operation at a time: of every mechanism as it comes, and of
# memories that carry something if the decoder writes to them, only.
WRITTEN = {"delta-writes-both", "abc-writes"}
COSTLY = {"compiled", "wider", "gradient", "scanned", "init", "rows", "hypotheses"}
CASES = [
    (name, law)
    for name in OPTIONS
    for law in LAW.keys() - excused(name)
    if name in CATALOGUE or name in WRITTEN or law not in COSTLY
]


@cache
def trial_of(name: str) -> Trial:
    options = OPTIONS[name]
    # A product of query and annotation needs them equally wide.
    alike = SIZES._replace(state=SIZES.annotation)
    sizes = alike if options == dot.Options() else SIZES
    return make_trial(CATALOGUE.build(options), sizes)


@pytest.mark.parametrize("name, law", sorted(CASES))
def test_a_law_holds(name, law):
    assert list(LAW[law].violations(trial_of(name))) == []


@pytest.mark.parametrize("name", OPTIONS)
def test_every_mechanism_but_none_aligns(name):
    looks = trial_of(name).course().looks
    aligns = type(OPTIONS[name]) is not none.Options
    assert [look.alignment is not None for look in looks] == [aligns] * 3


@pytest.mark.parametrize("name", OPTIONS)
def test_a_mechanism_knows_the_order_of_the_source_or_not(name):
    knows = "order" in excused(name)
    assert bool(list(LAW["order"].violations(trial_of(name)))) == knows


@pytest.mark.parametrize("name", [n for n in OPTIONS if "distortion" in n])
def test_distortion_loses_mass_and_makes_none(name):
    options = OPTIONS[name]
    assert isinstance(options, distortion.Options)
    for t, look in enumerate(trial_of(name).course().looks):
        total = np.asarray(look.alignment).sum(axis=1)
        assert total[2] == 0 and (total < 1 + 1e-6).all()
        if not t or options.renormalise == "final":
            np.testing.assert_allclose(total[:2], 1, atol=1e-6)
