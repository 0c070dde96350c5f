# SPDX-License-Identifier: Apache-2.0
"""Systems of one's own in a notebook: built, trained, saved, listed, refused."""

import dataclasses
from types import SimpleNamespace
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kvnmt
from kvnmt.attention import CATALOGUE, additive
from kvnmt.runs import notebook
from kvnmt.runs.directory import load_run
from kvnmt.runs.idle import check_experiment
from kvnmt.systems import named
from kvnmt.training.checkpoints.writer import Checkpoints
from tests.helpers import SIZES, trained, untrained

DATA = kvnmt.DataConfig()


def test_a_system_of_one_s_own_has_a_name(monkeypatch):
    monkeypatch.setattr(kvnmt.SYSTEMS, "data", named.SYSTEMS)
    kvnmt.SYSTEMS["mine"] = kvnmt.SYSTEMS["kvmematt-r2"]
    try:
        kvnmt.build("mine", 9, 9, SIZES)
    finally:
        del kvnmt.SYSTEMS["mine"]
    with pytest.raises(kvnmt.UserError, match="no system 'mine'"):
        kvnmt.build("mine", 9, 9, SIZES)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: kvnmt.load(["a", "b"]),
            "folder is of type list but",
        ),
        (lambda: kvnmt.build("None", 9, 9), "there is no system 'None'"),
        (lambda: kvnmt.build(["rnnsearch"], 9, 9), "system is of type list"),
        (lambda: kvnmt.experiment(None, DATA), "system is of type NoneType"),
        (lambda: kvnmt.train(kvnmt.Experiment(), None), "folder is of type NoneType"),
        (
            lambda: kvnmt.build("rnnsearch", 9, 9, kvnmt.ModelConfig(merge="none")),
            "each system has its own merge; leave",
        ),
        (lambda: kvnmt.build("attn", 9, 9, {}), "sizes is of type dict"),
        (lambda: kvnmt.experiment("attn", None), "data is of type NoneType"),
        (lambda: kvnmt.train({}, "runs"), "experiment is of type dict but must be E"),
        (lambda: kvnmt.train(badly(), "runs"), "model.initializer is 'xavier' but"),
    ],
)
def test_other_things_are_refused_in_a_sentence(call, sentence):
    with pytest.raises(kvnmt.UserError, match=sentence):
        call()


def badly() -> kvnmt.Experiment:
    return kvnmt.Experiment(kvnmt.ModelConfig(initializer="xavier"))


@pytest.mark.parametrize("name", [*kvnmt.SYSTEMS])
def test_every_system_may_be_trained_as_it_is(name):
    """Nothing that nobody chose is refused for doing nothing."""
    experiment = kvnmt.experiment(name, DATA)
    check_experiment(experiment, *notebook._starts(experiment))


def test_a_mechanism_that_is_listed_anew_is_built_anew():
    """Also where its Options are the same: the cell below them was run again."""

    @dataclasses.dataclass(frozen=True)
    class Options(additive.Options):
        pass

    def build(scale: float):
        def changed(options: Options):
            sound = additive.build(options)

            def read(*arguments):
                look = sound.read(*arguments)
                return look.replace(context=scale * look.context)

            return sound._replace(read=read)

        return SimpleNamespace(Options=Options, build=changed)

    config = dataclasses.replace(SIZES, attention=Options())
    sums = []
    for scale in (1.0, 2.0):
        CATALOGUE.add("mine", build(scale))
        try:
            model = kvnmt.build(config, 9, 9)
            assert kvnmt.build(config, 9, 9) is model
        finally:
            CATALOGUE.remove("mine")
        words = jnp.array([[3, 4, 0]])
        params = model.init(jax.random.key(0))
        sums.append(float(jnp.sum(model.forward(params, words, words).logits)))
    assert sums[0] != sums[1]
    with pytest.raises(kvnmt.UserError, match="is the Options of no attention"):
        kvnmt.build(config, 9, 9)


def test_what_one_trained_oneself_is_saved(
    run, tmp_path, tmp_path_factory, monkeypatch
):
    """Whole or not at all; it is translated with like any other run."""
    changed = run._replace(params=jax.tree.map(lambda leaf: leaf / 2, run.params))
    kvnmt.save(changed, tmp_path / "mine")
    again = kvnmt.load(tmp_path / "mine")
    jax.tree.map(np.testing.assert_array_equal, again.params, changed.params)
    assert again.experiment == run.experiment
    lines = ["a b c", "d"]
    assert again.translate(lines) == changed.translate(lines)
    with pytest.raises(kvnmt.UserError, match="mine' exists already"):
        kvnmt.save(changed, tmp_path / "mine")
    with pytest.raises(kvnmt.UserError, match="cannot be made: File name too long"):
        kvnmt.save(changed, tmp_path / ("long" * 99))
    both = kvnmt.load(trained(tmp_path_factory.getbasetemp()), tmp_path / "mine")
    other = load_run(untrained(tmp_path_factory.getbasetemp(), "kvmematt-r2"))
    endless = jax.tree.map(lambda leaf: leaf * np.nan, run.params)
    for wrong, said in (
        (both, "parameters of one model: of an ensemble save each"),
        (run._replace(params=other.params), "not those of the model that"),
        (run._replace(params=endless), "not finite"),
    ):
        with pytest.raises(kvnmt.UserError, match=said):
            kvnmt.save(wrong, tmp_path / "wrong")
        assert not (tmp_path / "wrong").exists()
    host = run._replace(params=jax.device_get(run.params))
    monkeypatch.setattr(
        Checkpoints, "save_params", Mock(side_effect=OSError(28, "full"))
    )
    with pytest.raises(kvnmt.UserError, match="wrong' cannot be written"):
        kvnmt.save(host, tmp_path / "wrong")
    monkeypatch.undo()
    kvnmt.save(host, tmp_path / "wrong")
    assert kvnmt.load(tmp_path / "wrong").translate(lines) == run.translate(lines)


def test_keys_of_the_older_kind_are_keys(run):
    source, target = jnp.array([[5, 6, 0]]), jnp.array([[5, 0]])
    new, old = (
        run.model.forward(run.params, source, target, key).logits
        for key in (jax.random.key(3), jax.random.PRNGKey(3))
    )
    np.testing.assert_array_equal(new, old)


def test_what_is_no_system_is_refused():
    with pytest.raises(kvnmt.UserError, match="must be NamedSystem"):
        kvnmt.SYSTEMS["mine"] = kvnmt.ModelConfig()


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"atention": additive.Options()}, "'atention'; did you mean 'attention'"),
        ({"decoder": additive.Options()}, "decoder is of type .* must be a kvnmt"),
        ({"layers": 0}, "layers is 0 but must be at least 1"),
    ],
)
def test_a_system_of_what_no_model_has_is_refused(choices, said):
    with pytest.raises(kvnmt.UserError, match=said):
        kvnmt.SYSTEMS["mine"] = named.NamedSystem("mine", choices)
    assert "mine" not in kvnmt.SYSTEMS


def test_systems_are_shown_as_a_table():
    assert len(repr(kvnmt.SYSTEMS).splitlines()) == len(kvnmt.SYSTEMS)
    page = kvnmt.SYSTEMS._repr_html_()
    assert all(f"<code>{name}</code>" in page for name in kvnmt.SYSTEMS)


def test_a_system_that_is_not_there_tells_the_nearest():
    with pytest.raises(kvnmt.UserError, match="'kvmematt-r2'"):
        kvnmt.SYSTEMS["kvmemat-r2"]
    assert kvnmt.SYSTEMS.get("kvmemat-r2") is None
