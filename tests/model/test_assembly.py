# SPDX-License-Identifier: Apache-2.0
"""What is a model's own; the laws of all systems are in ``laws/``."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import attention as attentions
from kvnmt import decoder as decoders
from kvnmt import encoder as encoders
from kvnmt import readout as readouts
from kvnmt.attention import additive, dot, kv_memory, none
from kvnmt.decoder import mem_dec, transformer
from kvnmt.errors import UserError
from kvnmt.initializers import weights
from kvnmt.layers import LSTM, dropout
from kvnmt.model import assembly
from kvnmt.model.choices import check_choices
from kvnmt.model.config import Dropout, ModelConfig
from kvnmt.systems.named import SYSTEMS, system
from kvnmt.target_context import (
    mean,
    previous_word,
    self_attentive,
    slots,
)
from kvnmt.training.losses import Objective, loss
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET

NO_DROPOUT = Dropout(output=0.0)

# GRUs over source positions, a memory's own, LSTMs, and a unit taken apart.
WITH_UNITS = ["coverage-neural", "memory-rnn", "attn", "past-future", "memdec"]


def logits(rates: Dropout, key: jax.Array | None) -> np.ndarray:
    config = dataclasses.replace(cases.BASE, dropout=rates)
    prediction = cases.forward(config)(cases.params(config), SOURCE, TARGET, key)
    return np.asarray(prediction.logits)


def test_the_same_config_gives_the_same_functions():
    assert cases.build(cases.BASE) is cases.build(dataclasses.replace(cases.BASE))
    assert cases.build(cases.BASE) is not assembly.build(cases.BASE, 8, 9)


def test_dropout_needs_a_key_and_a_rate(key):
    plain = logits(NO_DROPOUT, None)
    np.testing.assert_array_equal(logits(Dropout(0.5, 0.5, 0.5, 0.5), None), plain)
    np.testing.assert_allclose(logits(NO_DROPOUT, key), plain, atol=1e-6)


@pytest.mark.parametrize(
    "place", ["embedding", "annotations", "state", "output", "recurrent", "word"]
)
def test_dropout_in_each_place(place, key):
    rates = dataclasses.replace(NO_DROPOUT, **{place: 0.5})
    dropped = logits(rates, key)
    assert not np.allclose(dropped, logits(NO_DROPOUT, None))
    np.testing.assert_array_equal(logits(rates, key), dropped)
    assert not np.allclose(logits(rates, jax.random.fold_in(key, 1)), dropped)


@pytest.mark.parametrize("place", ["embedding", "recurrent", "word"])
def test_both_sides_have_dropout(place, key):
    rates = dataclasses.replace(NO_DROPOUT, **{place: 0.5})
    config = dataclasses.replace(cases.BASE, dropout=rates)
    encode, params = jax.jit(cases.build(config).encode), cases.params(config)
    plain, dropped = (
        jax.tree.leaves(encode(params, SOURCE, some).decoder) for some in (None, key)
    )
    assert not all(map(np.allclose, dropped, plain))
    deaf = jax.tree.map(jnp.zeros_like, params.encoder)  # all sources are alike to it
    params = dataclasses.replace(params, encoder=deaf)
    plain, dropped = (
        cases.forward(config)(params, SOURCE, TARGET, some).logits
        for some in (None, key)
    )
    assert not np.allclose(dropped, plain)


@pytest.mark.parametrize("place", ["state", "output"])
def test_dropout_after_the_scan_leaves_the_recurrence_alone(place, key):
    rates = dataclasses.replace(NO_DROPOUT, **{place: 0.5})
    config = dataclasses.replace(cases.BASE, dropout=rates)
    forward, params = cases.forward(config), cases.params(config)
    plain = forward(params, SOURCE, TARGET, None).features
    dropped = forward(params, SOURCE, TARGET, key).features
    np.testing.assert_allclose(dropped.context, plain.context, atol=1e-6)
    np.testing.assert_allclose(dropped.alignments[0], plain.alignments[0], atol=1e-6)
    scaled = np.asarray(dropped.state / plain.state)
    if place == "output":
        np.testing.assert_allclose(scaled, np.ones_like(scaled), rtol=1e-4)
    else:
        np.testing.assert_allclose(np.unique(scaled.round(4)), [0, 2])


def test_dropout_between_layers_is_of_what_the_upper_ones_read(key):
    """And the lowest one reads words, which have a rate of their own."""
    rates = dataclasses.replace(NO_DROPOUT, layers=0.5)
    for layers, differs in ((1, False), (3, True)):
        config = dataclasses.replace(cases.BASE, dropout=rates, layers=layers)
        model = cases.build(config)
        encode, params = jax.jit(model.encode), model.init(jax.random.key(2))
        plain, dropped, again = (
            jax.tree.leaves(encode(params, SOURCE, some).decoder)
            for some in (None, key, key)
        )
        assert all(map(np.allclose, plain, dropped)) != differs
        assert all(map(np.array_equal, dropped, again))


def test_layers_that_say_nothing_add_nothing_to_what_they_read():
    config = dataclasses.replace(cases.BASE, layers=2, residual=True)
    model = cases.build(config)
    params = model.init(jax.random.key(2))
    silent = jax.tree.map(jnp.zeros_like, params.encoder.forward[1:])
    stack = (params.encoder.forward[0], *silent)
    backward = (params.encoder.backward[0], *silent)
    changed = dataclasses.replace(params.encoder, forward=stack, backward=backward)
    shallow = dataclasses.replace(
        params.encoder, forward=stack[:1], backward=backward[:1]
    )
    deep, alone = (
        cases.build(some).encode(dataclasses.replace(params, encoder=encoder), SOURCE)
        for some, encoder in ((config, changed), (cases.BASE, shallow))
    )
    for one, other in zip(jax.tree.leaves(deep), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("name", WITH_UNITS)
def test_recurrent_dropout_fits_every_kind_of_unit(name, key):
    rates = dataclasses.replace(NO_DROPOUT, recurrent=0.5)
    config = dataclasses.replace(cases.NAMED[name], dropout=rates)
    forward = cases.build(config).forward
    found = jax.eval_shape(forward, cases.params(config), SOURCE, TARGET, key)
    assert found.heads[0].x.shape[:2] == TARGET.shape


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_transformer_layers_drop_on_their_own(part, key):
    config = dataclasses.replace(cases.CONFIGS["transformer-tied"], dropout=NO_DROPOUT)
    rates = {"encoder": 0.0, "decoder": 0.0} | {part: 0.5}
    config = dataclasses.replace(
        config,
        decoder=dataclasses.replace(config.decoder, dropout=rates["decoder"]),
        blocks=dataclasses.replace(config.blocks, dropout=rates["encoder"]),
    )
    forward, params = cases.forward(config), cases.params(config)
    dropped = forward(params, SOURCE, TARGET, key).logits
    assert not np.allclose(dropped, forward(params, SOURCE, TARGET).logits)


def test_every_part_of_a_transformer_drops(monkeypatch, key):
    """The entry, weights of self-attention, and what each part adds."""
    config = dataclasses.replace(cases.CONFIGS["transformer-tied"], dropout=NO_DROPOUT)
    config = dataclasses.replace(
        config,
        decoder=dataclasses.replace(config.decoder, dropout=0.25),
        blocks=dataclasses.replace(config.blocks, dropout=0.5),
    )
    dropped = []

    def watch(key: Any, rate: float, x: jax.Array) -> jax.Array:
        dropped.append((rate, x.shape))
        return dropout(key, rate, x)

    for place in ("layers", "encoder", "decoder"):
        monkeypatch.setattr(f"kvnmt.{place}.transformer.dropout", watch)
    monkeypatch.setattr("kvnmt.decoder.source_look.dropout", watch)
    forward = cases.build(config).forward
    jax.eval_shape(forward, cases.params(config), SOURCE, TARGET, key)
    (B, S), T, D = SOURCE.shape, TARGET.shape[1], 6
    read, written = [(B, S, D), (B, 2, S, S)], [(B, T, D), (B, 1, T, T)]
    read, written = [*read, *2 * read[:1]], [*written, *3 * written[:1]]
    wanted = [(0.5, shape) for shape in read] + [(0.25, shape) for shape in written]
    assert [each for each in dropped if each[0]] == wanted


def test_attention_after_the_scan_sees_the_dropped_state(key):
    """Mino et al. (2017) drop out the top of each stack."""
    rates = dataclasses.replace(NO_DROPOUT, state=0.5)
    config = dataclasses.replace(cases.NAMED["attn"], dropout=rates)
    forward, params = cases.forward(config), cases.params(config)
    plain = forward(params, SOURCE, TARGET, None).features.alignments[0]
    dropped = forward(params, SOURCE, TARGET, key).features.alignments[0]
    assert not np.allclose(dropped, plain)


def test_auxiliary_predictors_vote_but_in_training(key):
    single = dataclasses.replace(cases.NAMED["past-future-losses"], dropout=NO_DROPOUT)
    together = dataclasses.replace(single, average_auxiliary=True)
    params = cases.params(single)
    alone = cases.forward(single)(params, SOURCE, TARGET)
    voted = cases.forward(together)(params, SOURCE, TARGET)
    votes = [jax.nn.softmax(x) for x in (head.logits for head in alone.heads)]
    got = np.exp(np.asarray(voted.logits))
    np.testing.assert_allclose(got, sum(votes) / 3, rtol=1e-4, atol=1e-6)
    training = cases.forward(together)(params, SOURCE, TARGET, key)
    np.testing.assert_allclose(training.logits, alone.logits, rtol=1e-4, atol=1e-5)


def test_training_draws_the_noise_of_a_memory(key):
    config = dataclasses.replace(cases.NAMED["memdec"], dropout=NO_DROPOUT)
    forward, params = cases.forward(config), cases.params(config)
    plain = forward(params, SOURCE, TARGET).logits
    assert not np.allclose(forward(params, SOURCE, TARGET, key).logits, plain)


@pytest.mark.parametrize(
    "name", ["coverage-neural", "past-future-losses", "attn-concat", "memory-rnn"]
)
def test_every_matrix_takes_the_initialiser(name, key):
    config = dataclasses.replace(cases.NAMED[name], initializer="wide")
    for path, leaf in jax.tree.leaves_with_path(cases.build(config).init(key)):
        where, leaf = jax.tree_util.keystr(path), np.asarray(leaf)
        if where.endswith((".b", ".v", ".v_energy")):
            assert np.any(leaf) != where.endswith(".b"), where
        elif leaf.size >= 12:
            assert 0.02 < leaf.std() < 0.09, where


def test_forget_gates_of_all_lstms_start_as_they_are_told(key):
    """Those of encoder and decoder; nothing else starts otherwise."""
    config = dataclasses.replace(cases.NAMED["attn-concat"], initializer="unit")
    zero, one = (
        cases.build(dataclasses.replace(config, forget_bias=bias)).init(key)
        for bias in (0.0, 1.0)
    )
    is_lstm = lambda part: isinstance(part, LSTM)  # noqa: E731
    pairs = zip(*(jax.tree.leaves(params, is_leaf=is_lstm) for params in (zero, one)))
    units = 0
    for before, after in pairs:
        if is_lstm(before):
            units += 1
            size = len(before.U)
            wanted = np.repeat([0.0, 1.0, 0.0, 0.0], size)
            np.testing.assert_array_equal(after.b - before.b, wanted)
            after = dataclasses.replace(after, b=before.b)
        jax.tree.map(np.testing.assert_array_equal, after, before)
    assert units == 2 * 2 + 2  # two layers, in both directions of the encoder


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"state": 0}, "^state is 0 but must be at least 1"),
        ({"decoder": mem_dec.Options(noise=-1.0)}, "^decoder.noise is -1"),
    ],
    ids=str,
)
def test_numbers_out_of_bounds_are_refused(changes, said):
    with pytest.raises(UserError, match=said):
        cases.build(dataclasses.replace(cases.BASE, **changes))


@pytest.mark.parametrize(
    "changes, said",
    [
        ({}, "^attention is of a source, and with model.merge none there is none"),
        ({"attention": none.Options(), "lexicon": True}, "^model.lexicon is of a sou"),
    ],
)
def test_a_language_model_looks_at_no_source(changes, said):
    with pytest.raises(UserError, match=said):
        cases.build(dataclasses.replace(cases.BASE, merge="none", **changes))


@pytest.mark.parametrize("context", [previous_word, mean, self_attentive, slots])
def test_no_readout_hands_on_one_vector_alone(context):
    config = dataclasses.replace(
        cases.BASE, readout="none", target_context=context.Options()
    )
    with pytest.raises(UserError, match="readout none hands on 'state' alone, and"):
        check_choices(config)


@pytest.mark.parametrize("attention", [dot.Options(), kv_memory.Options()])
def test_a_context_that_no_state_reads_is_not_lost(attention):
    config = system("attn").model(cases.BASE)
    check_choices(config)
    config = dataclasses.replace(config, readout="none", attention=attention)
    with pytest.raises(UserError, match="and 'context' would be lost; set readout t"):
        check_choices(config)
    fed = dataclasses.replace(config.decoder, input_feeding=True)
    check_choices(dataclasses.replace(config, decoder=fed))


def test_what_named_systems_are_leaves_nothing_out():
    for one in SYSTEMS.values():
        check_choices(one.model(cases.BASE))


def test_a_layer_behind_the_readout_starts_as_nothing_else(key):
    widths, scheme = {"state": 4, "word": 4, "context": 4}, weights("glorot")
    readout = readouts.init(
        key, "tanh", widths, 4, low_rank=4, unread=0, weights=scheme
    )
    for W in readout.W.values():
        ratio = W / readout.low_rank
        assert np.ptp(ratio) > 1


def test_no_layer_of_a_language_model_looks_at_a_source(key):
    """With no attention in each layer there is no matrix that does."""
    config = system("lm-lstm").model(cases.BASE)
    config = dataclasses.replace(config, decoder=transformer.Options())
    with pytest.raises(UserError, match=r"set decoder\.attention_in each"):
        check_choices(config)
    each = dataclasses.replace(config.decoder, attention_in="each")
    config = dataclasses.replace(config, decoder=each)
    check_choices(config)
    model = cases.build(config)
    words = jnp.asarray(cases.TARGET)
    gradient = jax.grad(lambda p: model.forward(p, words, words).logits.std())(
        model.init(key)
    )
    matrices = [leaf for leaf in jax.tree.leaves(gradient.decoder) if leaf.ndim > 1]
    assert all(bool(jnp.any(leaf)) for leaf in matrices if leaf.size)


def test_a_language_model_has_nothing_to_project():
    config = dataclasses.replace(cases.BASE, merge="none", attention=none.Options())
    with pytest.raises(UserError, match="to project; turn attention.projection off"):
        check_choices(config)


def test_a_tied_output_layer_reads_the_width_of_the_embedding(key):
    config = dataclasses.replace(cases.BASE, tie="output", readout_size=2)
    assert cases.build(config).init(key).readout.low_rank.shape == (2, 3)
    config = dataclasses.replace(config, low_rank=2)
    with pytest.raises(UserError, match="3, but low_rank is 2; .* tie none"):
        jax.eval_shape(cases.build(config).init, key)


def test_dropout_of_recurrent_states_needs_such_states(key):
    config = system("transformer").model(cases.BASE)
    rates = dataclasses.replace(config.dropout, recurrent=0.2)
    config = dataclasses.replace(config, dropout=rates)
    with pytest.raises(UserError, match="dropout.recurrent is of GRUs and LSTMs"):
        jax.eval_shape(cases.build(config).init, key)
    for part in ({"cell": "gru"}, {"decoder": cases.BASE.decoder}):
        jax.eval_shape(cases.build(dataclasses.replace(config, **part)).init, key)


def test_every_array_has_a_place_of_its_own(key):
    """A step gives the place of each to its successor."""
    config = cases.CONFIGS["normalised-memdec-before"]
    leaves = jax.tree.leaves(cases.build(config).init(key))
    assert len({leaf.unsafe_buffer_pointer() for leaf in leaves}) == len(leaves)


def test_one_table_for_all_words_is_three_that_are_alike(key, x64):
    """It changes by what each of them would change by."""
    base = dataclasses.replace(cases.BASE, tie="all")
    with pytest.raises(UserError, match="^tie all takes .* 7 and 9 words"):
        jax.eval_shape(assembly.build(base, 7, 9).init, key)
    tied = assembly.build(base, 9, 9)
    plain = assembly.build(dataclasses.replace(base, tie="none"), 9, 9)
    normal = np.random.default_rng(2).normal
    one = jax.tree.map(
        lambda x: jnp.asarray(normal(0, 0.6, x.shape)), jax.eval_shape(tied.init, key)
    )
    table = one.target_embedding
    three = one.replace(source_embedding=table, output=one.output_layer)
    counts = [assembly.count_parameters(params) for params in (three, one)]
    assert counts[0] - counts[1] == 2 * table.size

    def gradient(model: assembly.Model, params: assembly.Params):
        def total(params: assembly.Params) -> jax.Array:
            prediction = model.forward(params, SOURCE, TARGET)
            return loss(Objective(), prediction, SOURCE, TARGET).total

        return jax.jit(jax.value_and_grad(total))(params)

    (ours, change), (theirs, changes) = gradient(tied, one), gradient(plain, three)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    parts = changes.source_embedding, changes.target_embedding, changes.output.W[0].T
    np.testing.assert_allclose(change.target_embedding, sum(parts), rtol=1e-9)


@pytest.mark.parametrize("name", ["rnnsearch-star", "transformer"])
@pytest.mark.parametrize("tie", ["none", "output"])
def test_words_enter_with_unit_size_unless_a_table_is_the_output_layer(key, name, tie):
    """Whatever encoder and decoder multiply embedded words by."""
    sizes = ModelConfig(embedding=64, encoder=64, state=64, initializer="unit", tie=tie)
    config = system(name).model(sizes)
    model = assembly.build(config, 100, 100)
    params = model.init(key)
    attend = attentions.CATALOGUE.build(config.attention)
    decoder = decoders.CATALOGUE.build(config.decoder, attend)
    gain = encoders.entry_gain(config.reading, 64), decoder.gain(config.sizes)
    if tie == "output":
        gain = gain[0], 8.0
    for factor, table in zip(gain, (params.source_embedding, params.target_embedding)):
        assert abs(np.std(factor * table) - 1) < 0.05
    if name == "transformer":
        entering = decoder.inputs(params.decoder, params.target_embedding).entering
        assert abs(np.std(entering) - 1) < 0.05
    logits = jax.jit(model.forward)(params, SOURCE, TARGET, None).logits
    assert 0.2 < np.std(logits) < 2


def test_modifying_initial_weights_starts_unread(key):
    params = cases.build(cases.NAMED["modifying-iw"]).init(key)
    context = np.asarray(params.readout.W["context"])
    assert not np.any(context[:2]) and np.all(context[2:] != 0)


def test_parameters_are_single_precision_and_counted():
    params = jax.eval_shape(cases.build(cases.BASE).init, jax.random.key(0))
    leaves = jax.tree.leaves(params)
    assert all(leaf.dtype == jnp.float32 for leaf in leaves)
    sizes = [int(np.prod(leaf.shape)) for leaf in leaves]
    assert assembly.count_parameters(params) == sum(sizes)


def test_alignment_layer_is_as_wide_as_the_state_unless_given():
    assert ModelConfig(state=7).sizes.alignment == 7
    assert ModelConfig(state=7, alignment=3).sizes.alignment == 3


def test_a_system_leaves_sizes_alone():
    base = dataclasses.replace(
        cases.BASE, merge="sum", low_rank=2, initializer="wide", dropout=NO_DROPOUT
    )
    kept = {"embedding", "encoder", "state", "alignment", "low_rank", "initializer"}
    for name, what in SYSTEMS.items():
        config = what.model(base)
        for field in kept | {"dropout", "average_auxiliary"}:
            assert getattr(config, field) == getattr(base, field), (name, field)
        assert config.merge == what.choices.get("merge", "sum")
        assert what.is_language_model == name.startswith("lm-")
        width = base.state if what.is_language_model else base.readout_size
        assert config.readout_size == width
        objective = what.objective(Objective(label_smoothing=0.1, atteos=7.0))
        assert objective.label_smoothing == 0.1
        assert (objective.atteos == 1) == name.endswith("-atteos")
        assert (objective.subtractive == 1) == name.endswith("-losses")


def test_a_system_is_named_by_its_choices_alone():
    star = SYSTEMS["rnnsearch-star"].model(cases.BASE)
    assert star == cases.BASE and isinstance(star.attention, additive.Options)
    other = SYSTEMS["rnnsearch"].model(cases.BASE)
    assert SYSTEMS["rnnsearch-star"].model(other) == star  # none of its mechanisms


def test_an_unknown_system_names_its_neighbour():
    assert system("mematt") is SYSTEMS["mematt"]
    with pytest.raises(UserError, match="did you mean 'mematt'"):
        system("memat")
