# SPDX-License-Identifier: Apache-2.0
"""A trained baseline fills what it has a counterpart of, in every round."""

import dataclasses

import jax
import numpy as np
import pytest

from kvnmt import attention as attentions
from kvnmt import decoder as decoders
from kvnmt.decoder import conditional
from kvnmt.errors import UserError
from kvnmt.runs.warm_start import WarmStart, warm_start
from kvnmt.systems.named import SYSTEMS, system
from kvnmt.trees import by_name
from tests.helpers import SIZES
from tests.runs.warm import BASELINE, named, params


def check_names(found: WarmStart) -> None:
    """Every array is either copied or fresh, and says so."""
    assert sorted(found.copied + found.fresh) == sorted(named(found.params))


NEW = ("write_address", "forget", "add")  # what KVMemAtt has and the baseline lacks


FITTING = dataclasses.replace(SIZES, embedding=6, encoder=12, state=12)
OTHERS = ("single", "stacked_lstm", "mem_dec", "transformer")  # without its GRU1
AFRESH = ("delta_memory", "slots")  # attentions without its address
EXTENSIONS = [
    name
    for name, one in SYSTEMS.items()
    if not one.is_language_model
    and decoders.CATALOGUE.name_of(one.model().decoder) not in OTHERS
    and attentions.CATALOGUE.name_of(one.model().attention) not in AFRESH
]
FRESH_READOUT = ("key-value-predict", "n-gram")  # what they read out is no state


@pytest.mark.parametrize("name", EXTENSIONS)
def test_a_baseline_starts_every_system_that_extends_it(name):
    trained = params(system("rnnsearch-star").model(FITTING), 1)
    found = warm_start(params(system(name).model(FITTING), 2), trained)
    check_names(found)
    missing = set(named(trained)) - set(found.copied)
    assert missing == ({"readout/W/state"} if name in FRESH_READOUT else set())
    ours, theirs = named(found.params), named(trained)
    for path in set(theirs) - missing:
        np.testing.assert_array_equal(ours[path], theirs[path])


def test_a_transformer_starts_one_with_a_key_memory():
    trained = params(system("transformer").model(FITTING), 1)
    found = warm_start(
        params(system("transformer-kvmematt-r2").model(FITTING), 2), trained
    )
    check_names(found)
    last = (
        "decoder/layers/1/rounds/0/attention",
        "decoder/layers/1/rounds/1/attention",
    )
    # Behind another attention it multiplies something else.
    behind = {f"decoder/layers/1/rounds/{n}/W_context" for n in (0, 1)}
    assert behind <= {*found.fresh}
    others = {*found.fresh} - behind
    assert others and all(path.startswith(last) for path in others)


def test_a_transformer_starts_one_whose_annotations_are_wider():
    wide = dataclasses.replace(FITTING, encoder=2 * FITTING.encoder)
    trained = params(system("transformer").model(wide), 1)
    other = system("transformer-kvmematt-r1").model(wide)
    found = warm_start(params(other, 2), trained)
    check_names(found)
    assert "encoder" in {path.split("/")[0] for path in found.copied}


@pytest.mark.parametrize(
    ("before", "now", "part"),
    [
        ("self-attentive-residual", "n-gram", "target_context"),
        ("self-attentive-rnn", "self-attentive-residual", "target_context"),
        ("delta-residual", "slot-residual", "target_context"),
        ("delta-memory", "slots", "attention"),
    ],
)
def test_of_another_mechanism_nothing_is_taken_by_its_name(before, now, part):
    trained = params(system(before).model(FITTING), 1)
    found = warm_start(params(system(now).model(FITTING), 2), trained)
    check_names(found)
    own = {path for path in named(found.params) if part in path.split("/")}
    assert own and own <= {*found.fresh}
    assert "source_embedding" in found.copied


def test_its_tanh_form_starts_mem_dec():
    trained = params(system("rnnsearch-star-tanh").model(FITTING), 1)
    found = warm_start(params(system("memdec").model(FITTING), 2), trained)
    assert set(named(trained)) <= set(found.copied)
    assert all(path.startswith("decoder/memory/") for path in found.fresh)


def test_a_gru_with_further_inputs_takes_the_context_alone():
    """GRU2 reads the context, RNNsearch's GRU the word too: never one for the other."""
    sizes = dataclasses.replace(SIZES, merge="sum")  # all widths equal
    trained = params(system("rnnsearch-star").model(sizes), 1)
    found = warm_start(params(system("rnnsearch-star-tanh").model(sizes), 2), trained)
    ours, theirs = named(found.params), named(trained)
    context = "decoder/rounds/0/advance/W/0"
    np.testing.assert_array_equal(ours[context], theirs[context])
    assert "decoder/rounds/0/advance/W/1" in found.fresh


def test_auxiliary_predictors_start_as_the_output_layer():
    trained = params(system("rnnsearch-star").model(FITTING), 1)
    new = params(system("past-future-losses").model(FITTING), 2)
    for head in warm_start(new, trained).params.auxiliary:
        np.testing.assert_array_equal(head.W[0], trained.output.W[0])
        np.testing.assert_array_equal(head.b, trained.output.b)


def test_they_start_so_from_a_tied_output_layer_too():
    tied = dataclasses.replace(system("rnnsearch-star").model(FITTING), tie="output")
    trained = params(tied, 1)
    new = params(system("past-future-losses").model(FITTING), 2)
    for head in warm_start(new, trained).params.auxiliary:
        np.testing.assert_array_equal(head.W[0], trained.target_embedding.T)
        np.testing.assert_array_equal(head.b, trained.output.b)


def test_a_layer_that_reads_another_width_starts_fresh():
    """Predictors read the state; a tied table is as wide as the embedding."""
    wide = dataclasses.replace(FITTING, readout_size=FITTING.embedding + 2)
    plain = system("rnnsearch-star").model(wide)
    new = params(system("past-future-losses").model(wide), 2)
    fresh = warm_start(new, params(plain, 1)).fresh
    assert {"auxiliary/0/W/0", "auxiliary/1/W/0"} < {*fresh}
    tied = params(dataclasses.replace(plain, tie="output"), 1)
    assert "output/W/0" in warm_start(params(plain, 2), tied).fresh


@pytest.mark.parametrize("name", ["rnnsearch-star", "past-future-losses"])
def test_a_layer_of_its_own_predicts_as_the_tied_one_did(name):
    plain = system("rnnsearch-star").model(FITTING)
    trained = params(dataclasses.replace(plain, tie="output"), 1)
    found = warm_start(params(system(name).model(FITTING), 2), trained)
    assert "output/W/0" in found.copied
    for layer in (found.params.output, *found.params.auxiliary):
        np.testing.assert_array_equal(layer.W[0], trained.target_embedding.T)
        np.testing.assert_array_equal(layer.b, trained.output.b)


@pytest.mark.parametrize(
    ("name", "rounds"),
    [("mematt", 1), ("kvmematt-r1", 1), ("kvmematt-r2", 2), ("kvmematt-r3", 3)],
)
def test_a_baseline_fills_every_round(name, rounds):
    trained, fresh = params(BASELINE, 1), params(system(name).model(SIZES), 2)
    found = warm_start(fresh, trained)
    check_names(found)
    assert len(found.params.decoder.rounds) == rounds
    old, new, started = named(trained), named(fresh), named(found.params)
    for path, leaf in started.items():
        parts = path.split("/")
        if set(parts) & set(NEW):
            np.testing.assert_array_equal(leaf, new[path])
            assert path in found.fresh
        else:
            if "rounds" in parts:
                parts[parts.index("rounds") + 1] = "0"
            np.testing.assert_array_equal(leaf, old["/".join(parts)])
            assert path in found.copied
    of_a_round = [path for path in found.copied if "rounds" in path]
    assert len(of_a_round) == rounds * len([p for p in old if "rounds" in p])
    assert {path.split("/")[4] for path in found.fresh} == set(NEW)


def test_shared_rounds_start_as_the_one_round():
    config = system("kvmematt-r2").model(SIZES)
    shared = conditional.Options(rounds=2, share_rounds=True)
    fresh = params(dataclasses.replace(config, decoder=shared), 2)
    trained = params(BASELINE, 1)
    (only,) = warm_start(fresh, trained).params.decoder.rounds
    jax.tree.map(
        np.testing.assert_array_equal, only.advance, trained.decoder.rounds[0].advance
    )


def test_a_further_round_starts_as_the_last_one():
    two, three = (system(f"kvmematt-r{n}").model(SIZES) for n in (2, 3))
    trained = params(two, 1)
    found = warm_start(params(three, 2), trained)
    check_names(found)
    assert found.fresh == []
    first, second = trained.decoder.rounds
    for ours, theirs in zip(found.params.decoder.rounds, (first, second, second)):
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize(("before", "now"), [(0, 1), (1, 2), (2, 3)])
def test_a_further_transition_starts_fresh(before, now):
    """And those before it as they were."""
    some, more = (
        dataclasses.replace(SIZES, decoder=conditional.Options(transitions=count))
        for count in (before, now)
    )
    trained, fresh = params(some, 1), params(more, 2)
    found = warm_start(fresh, trained)
    (ours,), (theirs,), (new,) = (
        each.decoder.rounds for each in (found.params, trained, fresh)
    )
    kept = ours.replace(transitions=ours.transitions[:before])
    jax.tree.map(np.testing.assert_array_equal, kept, theirs)
    jax.tree.map(
        np.testing.assert_array_equal, ours.transitions[-1], new.transitions[-1]
    )


def test_the_same_system_is_taken_whole():
    config = system("kvmematt-r2").model(SIZES)
    found = warm_start(params(config, 2), params(config, 1))
    jax.tree.map(np.testing.assert_array_equal, found.params, params(config, 1))


@pytest.mark.parametrize("name", ["memdec", "rnnsearch-star-tanh", "kvmematt-r2"])
def test_arrays_of_numpy_start_the_same(name):
    trained = params(BASELINE, 1)
    new = params(system(name).model(SIZES), 2)
    want = warm_start(new, trained)
    got = warm_start(new, jax.tree.map(np.asarray, trained))
    assert got.copied == want.copied and got.fresh == want.fresh
    jax.tree.map(np.testing.assert_array_equal, got.params, want.params)


def test_models_that_share_little_start_each_other_with_that():
    """A Transformer's parts have other forms than a recurrent model's."""
    sizes = dataclasses.replace(FITTING, embedding=12)
    pair = [params(system(n).model(sizes), 1) for n in ("transformer", "attn")]
    for new, other in (pair, pair[::-1]):
        assert "target_embedding" in warm_start(new, other).copied


def test_nothing_is_shared_with_the_trained_model():
    """A training step consumes its arrays, each of which it takes once."""
    trained = params(BASELINE, 3)
    found = warm_start(params(system("kvmematt-r2").model(SIZES), 2), trained)
    leaves = by_name(found.params)
    copied = [leaves[name] for name in found.copied]
    assert len({leaf.unsafe_buffer_pointer() for leaf in copied}) == len(copied)
    for leaf in copied:
        leaf.delete()
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(trained))


def test_other_sizes_are_refused_with_both_shapes():
    wide = dataclasses.replace(BASELINE, state=9, alignment=8)
    with pytest.raises(UserError) as error:
        warm_start(params(wide, 2), params(BASELINE, 1))
    for part in ("decoder/initial/", "(16, 8)", "(16, 9)"):
        assert part in str(error.value)
