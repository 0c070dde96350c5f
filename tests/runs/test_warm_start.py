# SPDX-License-Identifier: Apache-2.0
"""A trained baseline fills what it has a counterpart of, in every round."""

import dataclasses
import functools
import re
import types
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import pytest

from kvnmt import attention as attentions
from kvnmt import decoder as decoders
from kvnmt.attention import additive, kv_memory
from kvnmt.data.vocabularies import digest
from kvnmt.decoder import conditional, single, transformer
from kvnmt.errors import OptionError, UserError
from kvnmt.fields import EXTENDS
from kvnmt.model import assembly
from kvnmt.model.assembly import Params
from kvnmt.model.config import ModelConfig
from kvnmt.runs import train as experiment
from kvnmt.runs.directory import load_run
from kvnmt.runs.warm_start import (
    WarmStart,
    check_computed_alike,
    warm_start,
)
from kvnmt.systems.named import SYSTEMS, system
from kvnmt.target_context import self_attentive, state_only
from kvnmt.trees import by_name
from tests.data.helpers import words_of
from tests.helpers import SIZES, drawn, quiet, tiny, toy_data, trained


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return tmp_path_factory.getbasetemp()


@functools.cache
def params(config: ModelConfig, seed: int) -> Params:
    """Random parameters, biases too: no two arrays are equal by chance."""
    return drawn(assembly.build(config, 10, 11), seed, 1)


def named(tree: Params) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf) for name, leaf in by_name(tree).items()}


def check_names(found: WarmStart) -> None:
    """Every array is either copied or fresh, and says so."""
    assert sorted(found.copied + found.fresh) == sorted(named(found.params))


BASELINE = system("rnnsearch-star").model(SIZES)
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


def test_a_run_starts_from_the_best_parameters_of_another(tmp_path, base, monkeypatch):
    baseline = trained(base)
    old = load_run(baseline)
    started = {}

    def fit(job, draw, *, resume, begin):
        started["params"] = draw()

    monkeypatch.setattr(experiment, "fit", fit)
    exp = tiny(old.experiment.data, "kvmematt-r2-atteos", warm_start=baseline)
    experiment.run(exp, tmp_path / "run", console=quiet())
    found = named(started["params"])
    for path, leaf in named(old.params).items():
        np.testing.assert_array_equal(found[path], leaf)
        if "rounds/0" in path:
            again = found[path.replace("rounds/0", "rounds/1")]
            np.testing.assert_array_equal(again, leaf)


def never_fit(monkeypatch):
    """Ends a training before its first step."""
    monkeypatch.setattr(experiment, "fit", lambda job, draw, **how: draw())


def test_what_a_baseline_gives_two_rounds_is_told(tmp_path, base, monkeypatch):
    never_fit(monkeypatch)
    baseline = trained(base)
    data = load_run(baseline).experiment.data
    exp = tiny(data, "kvmematt-r2-atteos", warm_start=baseline)
    brief, verbose = quiet(), quiet()
    experiment.run(exp, tmp_path / "run", console=brief)
    experiment.run(exp, tmp_path / "other", console=verbose, verbose=True)
    sentence = re.compile(r"(\d+) arrays copied from '(.*)', (\d+) fresh\n")
    for console in (brief, verbose):
        copied, folder, fresh = sentence.search(console.file.getvalue()).groups()
        assert folder == str(baseline)
    lines = verbose.file.getvalue().splitlines()
    assert "  fresh  decoder/rounds/1/attention/write_address/W_query" in lines
    assert sum(line.startswith("  fresh  ") for line in lines) == int(fresh)
    assert sum(line.startswith("  copied  ") for line in lines) == int(copied)
    assert "W_query" not in brief.file.getvalue()


def test_what_has_no_place_in_the_new_model_is_told(tmp_path, base, monkeypatch):
    """Here the word before, which the new readout does not read."""
    never_fit(monkeypatch)
    exp = tiny(load_run(trained(base)).experiment.data, warm_start=trained(base))
    model = dataclasses.replace(exp.model, target_context=state_only.Options())
    exp, console = dataclasses.replace(exp, model=model), quiet()
    experiment.run(exp, tmp_path / "run", console=console, verbose=True)
    told = console.file.getvalue()
    assert "; 1 of its arrays have no place in this model\n" in told
    assert re.findall("  unused  (.*)\n", told) == ["readout/W/word"]


def test_another_vocabulary_is_refused_with_both_digests(tmp_path, base, monkeypatch):
    baseline = trained(base)
    data = toy_data(tmp_path / "text", vocabulary_size=8)
    exp = tiny(data, "kvmematt-r2-atteos", warm_start=baseline)
    with pytest.raises(UserError) as error:
        experiment.run(exp, tmp_path / "run", console=quiet())
    ours = words_of(data.source.read_text().split("\n"), size=8)
    theirs = load_run(baseline).vocabularies.source
    assert len(ours) != len(theirs)
    for part in ("source", *map(digest, (ours, theirs)), str(baseline)):
        assert part in str(error.value)
    assert not (tmp_path / "run").exists()
    never_fit(monkeypatch)
    assert f"with data.vocabularies '{baseline}'" in str(error.value)
    told = dataclasses.replace(data, vocabularies=baseline)  # as the sentence says
    exp = dataclasses.replace(exp, data=told)
    experiment.run(exp, tmp_path / "run", console=quiet())


def test_a_run_of_other_sizes_is_refused(tmp_path, base):
    baseline = trained(base)
    exp = tiny(load_run(baseline).experiment.data, warm_start=baseline)
    wide = dataclasses.replace(exp.model, embedding=9)
    with pytest.raises(UserError, match=r"embedding' has shape \(10, 8\).*\(10, 9\)"):
        experiment.run(
            dataclasses.replace(exp, model=wide), tmp_path / "run", console=quiet()
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"layer_norm": True},
        {"cell": "gru_before"},
        {"merge": "stack"},
        {"readout": "maxout"},
        {"decoder": conditional.Options(reset="before")},
        {"decoder": conditional.Options(initial="last")},
        {"tie": "output"},
        {"tie": "all"},
    ],
    ids=str,
)
def test_arrays_are_not_taken_for_something_else(tmp_path, base, change):
    exp = tiny(load_run(trained(base)).experiment.data, warm_start=trained(base))
    other = dataclasses.replace(exp.model, **change)
    with pytest.raises(UserError, match=f"was trained with {[*change][0]}"):
        experiment.run(
            dataclasses.replace(exp, model=other), tmp_path / "run", console=quiet()
        )
    assert not (tmp_path / "run").exists()


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


def test_a_folder_that_is_no_run_is_refused(tmp_path, base):
    exp = tiny(load_run(trained(base)).experiment.data, warm_start=tmp_path / "no")
    with pytest.raises(UserError, match="no' is no run directory"):
        experiment.run(exp, tmp_path / "run", console=quiet())
    assert not (tmp_path / "run").exists()


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
