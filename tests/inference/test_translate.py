# SPDX-License-Identifier: Apache-2.0
"""Corpora are translated in order, and how they are batched does not show."""

import dataclasses
import math
from types import SimpleNamespace
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.data.batches import pad, with_end
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.data.vocabulary import EOS, Words
from kvnmt.inference import translate as translating
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.nearest import Nearest
from kvnmt.inference.program import compiled_search
from kvnmt.inference.score import score_lines
from kvnmt.inference.translate import (
    Translation,
    translate,
    translate_lines,
    translate_nbest,
)
from kvnmt.model.assembly import Model, Params
from kvnmt.search import length_divisors
from tests.helpers import DEVICES
from tests.inference.translating import GREEDY, WORDS, build, want_to_end

BEAM = SearchConfig(beam=3, batch_size=4)


def test_a_model_without_a_number_writes_nothing(talker):
    """Such as one whose training has blown up."""
    model, params = talker
    lost = jax.tree.map(lambda leaf: leaf * np.nan, params)
    for config in (GREEDY, BEAM):
        (translation,) = translate(model, lost, [[3, 4]], config)
        assert translation.ids == []


def check_same(ours: list[Translation], theirs: list[Translation]) -> None:
    assert [one.ids for one in ours] == [one.ids for one in theirs]
    for figure in ("log_prob", "score"):
        figures = ([getattr(one, figure) for one in both] for both in (ours, theirs))
        np.testing.assert_allclose(*figures, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("config", [GREEDY, BEAM])
def test_translations_come_in_the_order_of_the_sentences(talker, sentences, config):
    found = translate(*talker, sentences, config)
    assert len({tuple(one.ids) for one in found}) > 5  # they can be told apart
    check_same(translate(*talker, sentences[::-1], config)[::-1], found)


@pytest.mark.parametrize("config", [GREEDY, BEAM])
def test_wider_padding_changes_nothing(talker, sentences, config):
    model, params = talker
    run = compiled_search(model, config)
    sources = [with_end(ids) for ids in sentences[:4]]
    places = np.arange(4)
    some, more = (run(params, pad(sources, 4, width), places) for width in (8, 13))
    width = some.tokens.shape[2]
    np.testing.assert_array_equal(some.tokens, more.tokens[..., :width])
    np.testing.assert_allclose(some.log_probs, more.log_probs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(some.scores, more.scores, rtol=1e-5, atol=1e-5)


LENGTH = dataclasses.replace(BEAM, normalization="length", alpha=0.7)


@pytest.mark.parametrize("config", [GREEDY, BEAM, LENGTH])
@pytest.mark.parametrize("name", ["rnnsearch-star", "kvmematt-r2"])
def test_the_score_is_that_of_forced_decoding(name, sentences, config):
    model, params = build(name)
    found = translate(model, params, sentences, config)
    targets = pad([with_end(one.ids) for one in found], len(found), 24)
    sources = pad([with_end(ids) for ids in sentences], len(found), 8)
    logits = jax.jit(model.forward)(params, sources, targets).logits
    gains = jnp.take_along_axis(
        jax.nn.log_softmax(logits), jnp.maximum(targets, 0)[..., None], axis=-1
    )
    sums = jnp.sum(jnp.where(targets >= 0, gains[..., 0], 0), axis=1)
    ours = [one.log_prob for one in found]
    np.testing.assert_allclose(ours, sums, rtol=1e-5, atol=1e-5)
    lengths = np.array([len(one.ids) + 1 for one in found])
    offset = 0.0 if config == LENGTH else 5.0
    scores = sums / length_divisors(50, config.alpha, offset)[lengths]
    np.testing.assert_allclose(
        [one.score for one in found], scores, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    "narrow", [{"top_k": 1}, {"top_p": 1e-3}, {"temperature": 1e-3}], ids=str
)
def test_who_draws_among_the_first_alone_is_greedy(talker, sentences, narrow):
    config = SearchConfig(sample=True, batch_size=4, **narrow)
    found, plain = (translate(*talker, sentences, c) for c in (config, GREEDY))
    assert [one.ids for one in found] == [one.ids for one in plain]
    free = translate(*talker, sentences, SearchConfig(sample=True, batch_size=4))
    assert [one.ids for one in free] != [one.ids for one in plain]


def test_diversity_makes_lists_differ_more(talker, sentences):
    several = dataclasses.replace(BEAM, nbest=3)
    apart = dataclasses.replace(several, diversity=5.0)
    lists = [translate_nbest(*talker, sentences, c) for c in (several, apart)]
    firsts = [
        sum(len({way.ids[0] for way in ways if way.ids}) for ways in found)
        for found in lists
    ]
    assert firsts[1] > firsts[0]


def test_a_beam_finds_what_greedy_misses(talker, sentences):
    """No law for a single sentence, where a beam can lose the greedy words."""
    config = SearchConfig(beam=3, alpha=0.0, batch_size=4)
    found, plain = (translate(*talker, sentences, c) for c in (config, GREEDY))
    gains = [ours.log_prob - theirs.log_prob for ours, theirs in zip(found, plain)]
    assert np.sum(gains) > 0.1
    assert np.mean(np.array(gains) > -1e-5) > 0.8


def test_others_that_nobody_sees_are_not_waited_for(talker, sentences, monkeypatch):
    """But for a choice among them."""
    seen = Mock(wraps=translating.translate_nbest)
    monkeypatch.setattr(translating, "translate_nbest", seen)
    several = dataclasses.replace(BEAM, nbest=3)
    for config, asked in ((several, 1), (dataclasses.replace(several, mbr=0.0), 3)):
        translate(*talker, sentences[:1], config)
        assert seen.call_args.args[3].nbest == asked


@pytest.mark.parametrize("config", [GREEDY, BEAM])
def test_empty_sentences_stay_empty(talker, sentences, config):
    gaps = [[], *sentences[:3], [], *sentences[3:], []]
    found = translate(*talker, gaps, config)
    empty = Translation([], 0.0, 0.0)
    assert (found[0], found[4], found[-1]) == (empty, empty, empty)
    full = [one for ids, one in zip(gaps, found) if ids]
    check_same(full, translate(*talker, sentences, config))


def ngrams(words: list[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def literal_beam(
    model: Model,
    params: Params,
    ids: list[int],
    prefix: list[int],
    config: SearchConfig,
) -> tuple[float, list[int]]:
    """The best ended hypothesis of a beam that is led through a prefix, and log P."""
    beam, n = config.beam, config.no_repeat_ngram_size
    source = pad([with_end(ids)] * beam, beam, 8)
    constants = model.encode(params, source)
    state, step = model.initial_state(params, constants, 24), jax.jit(model.step)
    live, texts = np.full(beam, -math.inf), [list[int]() for _ in range(beam)]
    live[0], last = 0.0, np.full(beam, -1, np.int32)
    best: tuple[float, list[int]] = (-math.inf, [])
    for t in range(int(1.5 * len(ids)) + 10):
        state, prediction = step(params, constants, state, last)
        total = live[:, None] + np.array(jax.nn.log_softmax(prediction.logits))
        if t < len(prefix):
            total[:, np.arange(WORDS) != prefix[t]] = -math.inf
        else:
            for k, text in enumerate(texts if n else []):
                for word in range(WORDS):
                    added = ngrams([*text, word], n)[-1:]
                    if added and added[0] in ngrams(text, n):
                        total[k, word] = -math.inf
            best = max(best, max(zip(total[:, EOS].tolist(), texts)))
        total[:, EOS] = -math.inf
        order = np.argsort(-total, axis=None, kind="stable")[:beam]
        parents, last = order // WORDS, (order % WORDS).astype(np.int32)
        live = total[parents, last]
        texts = [[*texts[k], int(word)] for k, word in zip(parents, last)]
        state = jax.tree.map(lambda leaf, k=parents: leaf[k], state)
    return best


def test_a_search_goes_on_from_the_words_that_are_forced(talker, sentences):
    """They stay, likely or not; the rest is what a beam finds that was led there."""
    config = dataclasses.replace(BEAM, normalization="none")
    chosen = sentences[:4]
    prefixes = [[7, 3, 3], [9], [], [5, 5]]
    found = translate(*talker, chosen, config, prefixes=prefixes)
    for ids, prefix, one in zip(chosen, prefixes, found, strict=True):
        log_prob, words = literal_beam(*talker, ids, prefix, config)
        assert one.ids == words and words[: len(prefix)] == prefix
        assert one.log_prob == pytest.approx(log_prob, abs=1e-4)
    free = translate(*talker, chosen, config)
    assert [one.ids for one in free] != [one.ids for one in found]
    assert free[2].ids == found[2].ids


@pytest.mark.parametrize("n", [1, 3])
def test_no_ngram_is_said_twice_but_where_words_are_forced(talker, sentences, n):
    config = dataclasses.replace(BEAM, normalization="none", min_length=6)
    chosen, prefixes = sentences[:4], [[7, 3, 3, 3, 3], [9], [], [5, 5]]
    free = translate(*talker, chosen, config, prefixes=prefixes)
    config = dataclasses.replace(config, min_length=0, no_repeat_ngram_size=n)
    found = translate(*talker, chosen, config, prefixes=prefixes)
    for ids, prefix, one in zip(chosen, prefixes, found, strict=True):
        log_prob, words = literal_beam(*talker, ids, prefix, config)
        assert one.ids == words and words[: len(prefix)] == prefix
        assert one.log_prob == pytest.approx(log_prob, abs=1e-4)
    assert any(len({*ngrams(one.ids, n)}) < len(ngrams(one.ids, n)) for one in free[1:])
    for strategy in ({"beam": 1}, {"sample": True, "nbest": 3, "temperature": 0.5}):
        config = dataclasses.replace(config, min_length=5, **strategy)
        for ways in translate_nbest(*talker, sentences, config):
            for said in (ngrams(way.ids, n) for way in ways):
                assert len({*said}) == len(said)


def test_draws_belong_to_places_of_the_corpus(talker, sentences):
    """Neither the batch nor its size matters; another seed, or place, draws others."""
    config = SearchConfig(sample=True, nbest=2, batch_size=4)

    def drawn(corpus: list[list[int]], **changes: int) -> list[list[list[int]]]:
        asked = dataclasses.replace(config, **changes)
        found = translate_nbest(*talker, corpus, asked)
        for ways in found:
            assert len(ways) == 1 or ways[0].score >= ways[1].score
        return [[way.ids for way in ways] for ways in found]

    found = drawn(sentences)
    assert found == drawn(sentences, batch_size=1)
    assert found != drawn(sentences, seed=2)
    first, *others = drawn([sentences[3]] * 4)
    assert any(other != first for other in others)


@pytest.mark.parametrize("beam", [1, 3])
def test_sentences_end_at_their_limit(talker, sentences, beam):
    model, params = talker
    config = SearchConfig(beam=beam, length_ratio=1.5, length_extra=3, batch_size=4)
    found = translate(model, want_to_end(params, -1000.0), sentences, config)
    limits = [int(1.5 * len(ids)) + 3 - 1 for ids in sentences]  # one for EOS
    assert [len(one.ids) for one in found] == limits


def test_every_sentence_is_told_once(talker, sentences):
    told: list[int] = []
    two = dataclasses.replace(GREEDY, batch_size=2)
    translate(*talker, [*sentences, []], two, told.append)
    assert sum(told) == len(sentences)
    assert max(told) == DEVICES  # a row for each


def test_lines_become_lines(talker):
    names = tuple("abcdefghij")
    words = Vocabularies(Words(names), Words(tuple(name.upper() for name in names)))
    lines = ["a b", "", "zebra c", "   ", "a\u2028b d"]
    run = SimpleNamespace(vocabularies=words, model=talker[0], params=talker[1])
    found = translate_lines(run, lines, BEAM)
    assert found[1] == found[3] == ""
    ids = [words.source.encode(line) for line in lines]
    expected = translate(*talker, ids, BEAM)
    assert found == [words.target.decode(one.ids) for one in expected]
    assert set("".join(found).replace("<unk>", "")) <= {*"ABCDEFGHIJ "}
    several = dataclasses.replace(BEAM, nbest=3)
    alike = dataclasses.replace(several, mbr=0.0)
    assert translate_lines(run, lines, alike) != found
    nearest = Nearest([None] * len(lines))  # the best of each
    assert translate_lines(run, lines, alike, nearest=nearest) == found
    (pair,) = score_lines(run, ["a b"], ["A B C"])
    assert pair.alignments[-1].shape == (4, 3)
