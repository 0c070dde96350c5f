# SPDX-License-Identifier: Apache-2.0
"""Arrays of one name that mean two things, and options of one's own."""

import dataclasses
import types
from typing import Annotated, Any

import pytest

from kvnmt import attention as attentions
from kvnmt.attention import additive, kv_memory
from kvnmt.decoder import conditional, single, transformer
from kvnmt.errors import OptionError, UserError
from kvnmt.fields import EXTENDS
from kvnmt.model.config import ModelConfig
from kvnmt.runs.warm_start import check_computed_alike, warm_start
from kvnmt.systems.named import system
from kvnmt.target_context import self_attentive
from tests.helpers import SIZES
from tests.runs.warm import BASELINE, params


def test_other_heads_are_other_arrays(tmp_path):
    config = system("transformer").model(SIZES)
    for part in ("blocks", "attention"):
        halves = dataclasses.replace(getattr(config, part), heads=2)
        other = dataclasses.replace(config, **{part: halves})
        with pytest.raises(UserError, match=f"{part}.heads"):
            check_computed_alike(config, other, tmp_path)
        # As many as there are where none are given.
        usual = dataclasses.replace(getattr(config, part), heads=1)
        same = dataclasses.replace(config, **{part: usual})
        check_computed_alike(config, same, tmp_path)
    check_computed_alike(
        config, system("transformer-kvmematt-r1").model(SIZES), tmp_path
    )


@pytest.mark.parametrize(
    ("part", "before", "now"),
    [
        ("attention", kv_memory.Options(), kv_memory.Options(add="tanh")),
        (
            "target_context",
            self_attentive.Options(),
            self_attentive.Options(null_slot=False),
        ),
        ("decoder", single.Options(), single.Options(readout_state="current")),
    ],
    ids=["attention", "target_context", "decoder"],
)
def test_options_of_a_mechanism_are_alike(tmp_path, part, before, now):
    """But for those by which it has more of something."""
    trained, other = (dataclasses.replace(BASELINE, **{part: x}) for x in (before, now))
    with pytest.raises(UserError, match=f"'{tmp_path}' was trained with {part}\\."):
        check_computed_alike(trained, other, tmp_path)


@pytest.mark.parametrize(
    ("before", "now", "starts"),
    [
        ("past", "past-future", True),
        ("past-future", "past", True),
        ("future", "past-future", False),  # whose GRU3 reads PAST first
        ("past-future", "future", False),
        ("coverage-linguistic", "coverage-subtractive", False),  # which counts down
    ],
)
def test_arrays_of_one_place_that_mean_two_things(tmp_path, before, now, starts):
    trained, config = (system(name).model(SIZES) for name in (before, now))
    if starts:
        check_computed_alike(trained, config, tmp_path)
        return
    with pytest.raises(UserError, match="with which its arrays mean something else"):
        check_computed_alike(trained, config, tmp_path)


def test_what_does_nothing_need_not_be_alike(tmp_path):
    """The unit of a FUTURE layer without one, heads of layers that have none."""
    past, both = (system(name).model(SIZES) for name in ("past", "past-future"))
    gru = dataclasses.replace(both.decoder, cell="gru")
    other = dataclasses.replace(both, decoder=gru)
    check_computed_alike(past, other, tmp_path)
    check_computed_alike(other, past, tmp_path)
    with pytest.raises(UserError, match=r"decoder\.cell"):
        check_computed_alike(both, other, tmp_path)
    wider = dataclasses.replace(BASELINE, encoder=512)
    check_computed_alike(BASELINE, wider, tmp_path)  # shapes tell what differs


def test_a_table_is_read_as_it_was_trained(tmp_path):
    scaled = dataclasses.replace(BASELINE, decoder=transformer.Options())
    for pair in ((BASELINE, scaled), (scaled, BASELINE)):
        with pytest.raises(UserError, match="times; give both the same decoder"):
            check_computed_alike(*pair, tmp_path)
    same = single.Options(reset=BASELINE.decoder.reset, initial="mean")
    other = dataclasses.replace(BASELINE, decoder=same)
    check_computed_alike(BASELINE, other, tmp_path)
    begun = dataclasses.replace(same, initial="backward")
    other = dataclasses.replace(BASELINE, decoder=begun)
    with pytest.raises(UserError, match=r"decoder\.initial mean, .* has backward"):
        check_computed_alike(BASELINE, other, tmp_path)


def test_a_mechanism_may_be_extended(tmp_path):
    fixed = dataclasses.replace(BASELINE, attention=kv_memory.Options())
    rewritten = kv_memory.Options(values="rewritten", write_bias=1.0)
    twice = conditional.Options(rounds=2)
    more = dataclasses.replace(BASELINE, attention=rewritten, decoder=twice)
    check_computed_alike(fixed, more, tmp_path)


def test_the_gru_of_mem_dec_resets_as_it_was_trained(tmp_path):
    start = single.Options(query="tanh", initial="mean", readout_state="current")
    trained = dataclasses.replace(BASELINE, decoder=start)
    memdec = system("memdec").model(SIZES)
    with pytest.raises(UserError, match=r"decoder\.reset before, .* has after"):
        check_computed_alike(trained, memdec, tmp_path)


def test_a_further_layer_does_not_start_as_one_that_reads_words():
    start = system("attn").model(dataclasses.replace(SIZES, embedding=SIZES.state))
    one, two, three = (
        dataclasses.replace(
            start, decoder=dataclasses.replace(start.decoder, layers=n), layers=n
        )
        for n in (1, 2, 3)
    )
    more = warm_start(params(two, 2), params(one, 1))
    assert {path for path in more.fresh if "/1/" in path} == {*more.fresh} != set()
    assert any(path.startswith("encoder/forward/1") for path in more.fresh)
    assert warm_start(params(three, 2), params(two, 1)).fresh == []


def test_normalised_units_are_nothing_to_transformers(tmp_path):
    plain = system("transformer").model(dataclasses.replace(SIZES, layer_norm=False))
    now = system("transformer-kvmematt-r1").model(SIZES)
    now = dataclasses.replace(now, layer_norm=True)
    check_computed_alike(plain, now, tmp_path)
    trained, now = (dataclasses.replace(one, cell="gru") for one in (plain, now))
    with pytest.raises(UserError, match="layer_norm False, and this model has True"):
        check_computed_alike(trained, now, tmp_path)


@dataclasses.dataclass(frozen=True)
class Mine(additive.Options):
    """Options of somebody's own."""

    shade: float = 0.1
    size: Annotated[int, EXTENDS] = 1


@pytest.fixture(name="mine")
def _mine():
    module = types.SimpleNamespace(Options=Mine, build=additive.build)
    attentions.CATALOGUE.add("mine", module)
    yield
    attentions.CATALOGUE.remove("mine")


@pytest.mark.usefixtures("mine")
def test_an_option_of_ones_own_is_the_same_unless_it_extends(tmp_path):
    def config(**options: Any) -> ModelConfig:
        return dataclasses.replace(BASELINE, attention=Mine(**options))

    check_computed_alike(config(), config(size=2), tmp_path)
    with pytest.raises(OptionError, match="was trained with attention.shade 0.1"):
        check_computed_alike(config(), config(shade=0.3), tmp_path)
