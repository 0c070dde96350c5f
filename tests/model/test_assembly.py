# SPDX-License-Identifier: Apache-2.0
"""What is a model's own; the laws of all systems are in ``laws/``."""

import dataclasses

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
from kvnmt.layers import LSTM
from kvnmt.model import assembly
from kvnmt.model.choices import check_choices
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import SYSTEMS, system
from kvnmt.target_context import mean, previous_word, self_attentive, slots
from kvnmt.training.losses import Objective, loss
from tests.laws import cases
from tests.laws.cases import SOURCE, TARGET
from tests.model.small import NO_DROPOUT


def test_the_same_config_gives_the_same_functions():
    assert cases.build(cases.BASE) is cases.build(dataclasses.replace(cases.BASE))
    assert cases.build(cases.BASE) is not assembly.build(cases.BASE, 8, 9)


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
    with pytest.raises(UserError, match="context of; turn attention.projection off"):
        check_choices(config)


def test_a_tied_output_layer_reads_the_width_of_the_embedding(key):
    config = dataclasses.replace(cases.BASE, tie="output", readout_size=2)
    assert cases.build(config).init(key).readout.low_rank.shape == (2, 3)
    config = dataclasses.replace(config, low_rank=2)
    with pytest.raises(UserError, match="3, but low_rank is 2; .* tie none"):
        jax.eval_shape(cases.build(config).init, key)


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
