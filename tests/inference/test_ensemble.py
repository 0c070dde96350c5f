# SPDX-License-Identifier: Apache-2.0
"""An ensemble is the mean of its members, and whatever takes a model takes it."""

import io
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import cli, load
from kvnmt.errors import UserError
from kvnmt.inference.ensemble import Joined, ensemble
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.score import score
from kvnmt.inference.translate import translate
from kvnmt.layers import Scanning
from kvnmt.model import assembly
from kvnmt.model.config import ModelConfig
from kvnmt.runs.directory import load_ensemble, load_run
from kvnmt.systems.named import system
from tests.helpers import drawn, trained, untrained

SIZES = ModelConfig(embedding=5, encoder=6, state=6, merge="sum")
NAMES = ("kvmematt-r2", "rnnencdec", "self-attentive-rnn")  # as unlike as can be
SOURCE = [[3, 5, 2], [4], [6, 2, 2, 3]]


def member(name: str, seed: int):
    model = assembly.build(system(name).model(SIZES), 8, 9)
    return model, drawn(model, seed, 0.6)


@pytest.fixture(scope="module", name="some")
def _some():
    return tuple(zip(*(member(name, n) for n, name in enumerate(NAMES))))


@pytest.mark.parametrize("weights", [(), (1.0, 2.0, 5.0)])
@pytest.mark.parametrize("kind", ["arithmetic", "geometric"])
def test_members_may_have_weights_and_another_mean(some, weights, kind):
    members, params = some
    source, target = jnp.asarray([[3, 5, 0, -1]]), jnp.asarray([[4, 2, 7, 0]])
    model = ensemble(members, Joined(weights, kind))
    found = jax.jit(model.forward)(params, source, target)
    each = [jax.jit(m.forward)(p, source, target) for m, p in zip(members, params)]
    logs = np.stack([jax.nn.log_softmax(one.logits) for one in each]).astype(float)
    shares = np.array(weights or (1, 1, 1)) / sum(weights or (1, 1, 1))
    mean = np.average(np.exp(logs), axis=0, weights=shares)
    if kind == "geometric":
        mean = np.exp(np.average(logs, axis=0, weights=shares))
        mean /= mean.sum(-1, keepdims=True)
    np.testing.assert_allclose(jax.nn.softmax(found.logits), mean, rtol=1e-4)
    np.testing.assert_allclose(jnp.exp(found.logits).sum(-1), 1, rtol=1e-5)
    reading = [one.features.alignments[-1] for one in each if one.features.alignments]
    assert len(reading) == 2  # one of them has none
    aligned = [n for n, one in enumerate(each) if one.features.alignments]
    np.testing.assert_allclose(
        found.features.alignments[0],
        np.average(reading, axis=0, weights=shares[aligned]),
        rtol=1e-4,
    )
    if weights and kind == "geometric":
        translate(model, params, SOURCE, SearchConfig(beam=2))


def test_how_members_are_joined_is_checked(kvnmt, some, tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    first, second = trained(base), untrained(base, "mematt")
    for joined, said in (
        (Joined((1.0,)), "1 weights for the 3 runs"),
        (Joined((1.0, 0.0, 1.0)), "a positive number"),
        (Joined(mean="harmonic"), "no mean 'harmonic'"),  # pyright: ignore
    ):
        with pytest.raises(UserError, match=said):
            ensemble(some[0], joined)
    both = "--ensemble", second
    for flags, said in (
        (("--weights", 1), "--weights is of an ensemble; give --ensemble too"),
        (("--mean", "geometric"), "--mean is of an ensemble"),
        ((*both, "--weights", 1), "1 weights for the 2 runs of an ensemble"),
        ((*both, "--weights", 1, -1), "a positive number"),
    ):
        got = kvnmt("translate", first, *flags, given=b"a b\n")
        assert got.status == 2 and said in got.err
    lines = b"a b c\nd\n"
    plain = kvnmt("translate", first, *both, "--json", given=lines).out
    weights, mean = ("--weights", 1, 9), ("--mean", "geometric")
    ways = weights, mean, (*weights, *mean)
    outs = [
        kvnmt("translate", first, *both, *w, "--json", given=lines).out for w in ways
    ]
    assert len({plain, *outs}) == 4
    with pytest.raises(UserError, match="are of an ensemble; name several"):
        load(first, mean="geometric")
    with pytest.raises(UserError, match="next to nothing"):
        ensemble(some[0], Joined((1e300, 1.0, 1e-300)))
    assert ensemble(some[0], Joined((1e308, 1e308, 1e308))).reads_source
    run = load(first, second, weights=[1, 9], mean="geometric")
    assert (
        run.model is load_ensemble([first, second], Joined((1, 9), "geometric")).model
    )


def test_it_tells_of_all_members(some):
    members, params = some
    source, target = jnp.asarray([[3, 5, 0, -1]]), jnp.asarray([[4, 2, 7, 0]])
    forward = jax.jit(ensemble(members).forward, static_argnums=(3, 4))
    whole = forward(params, source, target, None, Scanning())
    chunked = forward(params, source, target, None, Scanning(chunk=2))
    np.testing.assert_allclose(chunked.logits, whole.logits, rtol=1e-4, atol=1e-5)
    each = [jax.jit(m.forward)(p, source, target) for m, p in zip(members, params)]
    want = [look for one in each for look in one.self_attention]
    assert len(whole.self_attention) == len(want) == 1  # of self-attentive-rnn
    np.testing.assert_allclose(whole.self_attention[0], want[0], rtol=1e-5)
    states = [one.features.state for one in each]
    states = np.concatenate(states, axis=-1)
    np.testing.assert_allclose(whole.features.state, states, rtol=1e-5, atol=1e-7)
    assert ensemble(members).reads_source


@pytest.mark.parametrize("beam", [1, 3])
def test_it_is_searched_scored_and_aligned(some, beam):
    members, params = some
    model = ensemble(members)
    assert ensemble(members) is model  # so that it is compiled once
    found = translate(model, params, SOURCE, SearchConfig(beam=beam))
    again = score(model, params, SOURCE, [one.ids for one in found])
    for one, other in zip(found, again):
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
    assert [len(pair.alignments) for pair in again] == [1, 1, 1]


def test_twice_the_same_is_the_same():
    model, params = member("rnnsearch-star", 3)
    config = SearchConfig(beam=3)
    one = translate(model, params, SOURCE, config)
    two = translate(ensemble((model, model)), (params, params), SOURCE, config)
    assert [a.ids for a in one] == [b.ids for b in two]
    for a, b in zip(one, two):
        assert a.score == pytest.approx(b.score, abs=1e-4)


def test_runs_make_one(tmp_path_factory, monkeypatch, capfdbinary):
    base = tmp_path_factory.getbasetemp()
    first, second = trained(base), untrained(base, "mematt")
    run = load_ensemble([first, second])
    lines = [run.vocabularies.source.encode(line) for line in ("a b c", "d")]
    found = translate(run.model, run.params, lines, SearchConfig(beam=2))
    want = [run.vocabularies.target.decode(one.ids) for one in found]
    alone = translate(*load_run(first)[2:], lines, SearchConfig(beam=2))
    assert [one.ids for one in alone] != [one.ids for one in found]
    stdin = SimpleNamespace(buffer=io.BytesIO(b"a b c\nd\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    both = ("--ensemble", str(second), "--search.beam", "2")
    cli.main(["translate", str(first), *both])
    assert capfdbinary.readouterr().out.decode().splitlines() == want
    assert load_ensemble([first]).model is load_run(first).model
    other = untrained(base, "rnnsearch-star", vocabulary_size=6)
    with pytest.raises(UserError, match="source vocabulary of .*vocabulary_size"):
        load_ensemble([first, other])
    with pytest.raises(UserError, match="no run directory"):
        load_ensemble([first, Path("nowhere")])
