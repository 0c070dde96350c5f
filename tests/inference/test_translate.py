# SPDX-License-Identifier: Apache-2.0
"""Corpora are translated in order, and how they are batched does not show."""

import dataclasses
import gc
import math
import weakref
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.data import buckets
from kvnmt.data.batches import pad, with_end
from kvnmt.data.vocabularies import Vocabularies
from kvnmt.data.vocabulary import EOS, Words
from kvnmt.errors import OptionError, UserError
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.ensemble import ensemble
from kvnmt.inference.nearest import Nearest
from kvnmt.inference.program import compiled_search, program
from kvnmt.inference.score import compiled_score, score, score_lines
from kvnmt.inference.trained import KEPT
from kvnmt.inference.translate import (
    Translation,
    translate,
    translate_lines,
    translate_nbest,
)
from kvnmt.model import assembly
from kvnmt.model.assembly import Model, Params
from kvnmt.model.config import ModelConfig
from kvnmt.search import length_divisors
from kvnmt.systems.named import system
from tests.helpers import DEVICES, drawn

SIZES = ModelConfig(embedding=6, encoder=5, state=7)
WORDS = 12
GREEDY = SearchConfig(beam=1, batch_size=4)
BEAM = SearchConfig(beam=3, batch_size=4)


def build(name: str) -> tuple[Model, Params]:
    """A model whose random parameters make it talk, and of different things."""
    model = assembly.build(system(name).model(SIZES), WORDS, WORDS)
    return model, want_to_end(drawn(model), -2.0)


def want_to_end(params: Params, bias: float) -> Params:
    b = params.output.b.at[EOS].set(bias)
    return params.replace(output=params.output.replace(b=b))


@pytest.fixture(scope="module")
def talker() -> tuple[Model, Params]:
    """The system with most to carry; others differ in nothing that shows here."""
    return build("kvmematt-r2")


def test_a_model_without_a_number_writes_nothing(talker):
    """Such as one whose training has blown up."""
    model, params = talker
    lost = jax.tree.map(lambda leaf: leaf * np.nan, params)
    for config in (GREEDY, BEAM):
        (translation,) = translate(model, lost, [[3, 4]], config)
        assert translation.ids == []


@pytest.fixture(scope="module")
def sentences() -> list[list[int]]:
    random = np.random.default_rng(4)
    sizes = [3, 7, 1, 5, 2, 7, 4, 6, 1, 3]
    return [random.integers(1, WORDS, n).tolist() for n in sizes]


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


def traced(model: Model) -> tuple[Model, list[tuple[int, ...]]]:
    """The same model, and the shapes of sources that programs are compiled for."""
    shapes = []

    def encode(params: Params, source: jax.Array, *more: Any, **options: Any):
        shapes.append(source.shape)
        return model.encode(params, source, *more, **options)

    return model._replace(encode=partial(encode)), shapes


def test_nothing_is_translated_without_compiling(talker):
    model, shapes = traced(talker[0])
    config = SearchConfig(beam=2)
    assert translate(model, talker[1], [], config) == []
    empty = [Translation([], 0.0, 0.0)] * 2
    assert translate(model, talker[1], [[], []], config) == empty
    assert shapes == []
    translate(model, talker[1], [[3]], config)
    assert shapes


def test_a_program_is_compiled_per_shape(talker, monkeypatch):
    monkeypatch.setattr(buckets, "PROGRAM", -1)  # no shape is left out
    config = SearchConfig(beam=1, batch_size=2, length_ratio=0.1, length_extra=2)
    random = np.random.default_rng(0)
    corpus = [random.integers(1, WORDS, n).tolist() for n in [*range(1, 15)] * 3]
    model, shapes = traced(talker[0])
    translate(model, talker[1], corpus, config)
    assert sorted(width for _, width in shapes) == [8, 12, 16]
    shuffled = random.permutation(np.array(corpus, object)).tolist()
    translate(model, talker[1], shuffled, config)
    translate(model, talker[1], corpus * 2, config)
    assert len(shapes) == 3


BASE = SearchConfig(beam=2, length_ratio=0.1, length_extra=2)
STATIC: dict[str, Any] = {
    "beam": 3,
    "sample": True,
    "top_k": 2,
    "length_ratio": 0.2,
    "length_extra": 3,
    "max_length": 1,
    "unknown": False,
    "no_repeat_ngram_size": 2,
    "nbest": 2,
}
SWITCHES = {"top_p": (0.5, 0.9), "coverage": (0.1, 0.2), "diversity": (0.1, 0.2)}
RUNNING: dict[str, Any] = {
    "temperature": 0.5,
    "seed": 7,
    "normalization": "length",
    "alpha": 0.3,
    "min_length": 1,
}
OUTSIDE = {"batch_size": 3, "batch_tokens": 99, "mbr": 0.5}  # of any program


def test_every_field_is_in_one_place():
    fields = sorted(field.name for field in dataclasses.fields(SearchConfig))
    assert sorted([*STATIC, *SWITCHES, *RUNNING, *OUTSIDE]) == fields


@pytest.mark.parametrize("name", STATIC | SWITCHES)
def test_what_is_static_is_another_program(talker, name):
    value = STATIC[name] if name in STATIC else SWITCHES[name][0]
    other = dataclasses.replace(BASE, **{name: value})
    assert program(talker[0], other) is not program(talker[0], BASE)


@pytest.mark.parametrize("sample", [False, True])
def test_what_is_a_number_compiles_nothing(talker, sample):
    """One program for all of them, where draws are cut and coverage is scored."""
    model, shapes = traced(talker[0])
    switched: dict[str, Any] = {name: some for name, (some, _) in SWITCHES.items()}
    first = dataclasses.replace(BASE, sample=sample, **switched)
    rows = np.array([[3, 0]]), np.zeros(1, np.int32)
    compiled_search(model, first)(talker[1], *rows)
    assert len(shapes) == 1
    first = dataclasses.replace(first, alpha=1, coverage=1)  # as a notebook may say
    changes = RUNNING | {name: other for name, (_, other) in SWITCHES.items()}
    for name, value in (changes | OUTSIDE).items():
        config = dataclasses.replace(first, **{name: value})
        compiled_search(model, config)(talker[1], *rows)
        assert len(shapes) == 1, name


def test_programs_that_nobody_uses_are_freed(talker, few_objects):
    """Also those that ran, with their models, without any cache being cleared."""

    def use() -> list[weakref.ref]:
        model, _ = traced(talker[0])
        translate(model, talker[1], [[3]], BASE)
        score(model, talker[1], [[3]], [[4]])
        joined = ensemble((model,))
        params: Any = (talker[1],)
        translate(joined, params, [[3]], BASE)
        return [weakref.ref(one) for one in (model.encode, joined.encode)]

    uses = use()
    gc.collect()
    assert all(ref() is not None for ref in uses)  # they are kept for the next call
    for _ in range(KEPT):
        model, _ = traced(talker[0])
        program(model, BASE)
        compiled_score(model, True)
        ensemble((model,))
    gc.collect()
    assert [ref() for ref in uses] == [None, None]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"beam": 0}, "beam is 0 but must be at least 1 and"),
        ({"alpha": -1.0}, "alpha is -1 but must be at least 0 and"),
        ({"alpha": 8.0}, "alpha is 8 but must be at least 0 and at most 7"),
        ({"top_p": 1.5}, "top_p is 1.5 but must be at least 0.001 and at most 1."),
        ({"temperature": math.nan}, "temperature is nan but must be a finite number"),
        ({"max_length": 0}, "max_length is 0 but must be at least 1 and"),
        (
            {"nbest": 3},
            "nbest is 3 but a beam of 2 holds no more than that; widen beam or "
            "lower nbest.",
        ),
    ],
)
def test_what_cannot_be_searched_for_is_refused_everywhere(talker, changes, said):
    """By the names of fields, which the command line turns into those of flags."""
    model, params = talker
    config = dataclasses.replace(BASE, **changes)
    everywhere = [
        lambda: translate(model, params, [[3]], config),
        lambda: translate_nbest(model, params, [[3]], config),
        lambda: compiled_search(model, config),
        lambda: compiled_search(ensemble((model, model)), config),
        lambda: program(model, config),
    ]
    for search in everywhere:
        with pytest.raises(OptionError) as error:
            search()
        assert str(error.value).startswith(said)
        for name in (*changes, "beam") if "beam." in said else changes:
            said_of_flag = f"--search.{name.replace('_', '-')}"
            assert said_of_flag in error.value.by_flag


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([3, WORDS], f"holds the id {WORDS}; the vocabulary has ids up to {WORDS - 1}"),
        ([-1, 3], "holds the id -1;"),
        ([3, EOS, 4], "holds the id 0; that is the end of sentence"),
        ("a b", "is a list of ids; encode text"),
        ([2.7], "is a list of ids; encode text"),
        ([10**30], "is a list of ids; encode text"),
    ],
)
def test_ids_that_are_no_words_are_refused_everywhere(talker, ids, said):
    """An array would be indexed with them, and something would come out."""
    model, params = talker
    good, bad = [[3], [4, 5]], [[3], ids]
    two: Any = (params, params)
    for what, work in {
        "source sentence": lambda: translate(model, params, bad, GREEDY),
        "source sentence ": lambda: translate(ensemble((model, model)), two, bad),
        "prefix": lambda: translate(model, params, good, GREEDY, prefixes=bad),
        "source sentence  ": lambda: score(model, params, bad, good),
        "target sentence": lambda: score(model, params, good, bad),
    }.items():
        with pytest.raises(UserError, match=f"{what.strip()}.* {said}"):
            work()


def test_lists_that_belong_together_are_as_long(talker):
    with pytest.raises(UserError, match="^there are 2 sentences but 1 prefixes"):
        translate(*talker, [[3], [4]], GREEDY, prefixes=[[]])
    with pytest.raises(UserError, match="^there are 1 source sentences but 2 target"):
        score(*talker, [[3]], [[3], [4]])


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


def test_alignments_are_those_of_the_pair_alone(talker, sentences):
    model, params = talker
    targets = [ids[::-1] * 2 for ids in sentences]
    scored = score(model, params, sentences, targets, limits=(4, 4096))
    found = [pair.alignments for pair in scored]
    forward = jax.jit(model.forward)
    for place in (0, 3):
        source = pad([with_end(sentences[place])], 1, len(sentences[place]) + 1)
        target = pad([with_end(targets[place])], 1, len(targets[place]) + 1)
        alone = forward(params, source, target).features.alignments
        for ours, theirs in zip(found[place], alone, strict=True):
            np.testing.assert_allclose(ours, theirs[0], rtol=1e-4, atol=1e-5)
    assert not np.allclose(found[0][0], found[0][1], atol=1e-3)


def test_empty_sides_have_an_alignment_of_their_ends(talker):
    scored = score(*talker, [[], [2, 3], []], [[4], [], []])
    shapes = [[matrix.shape for matrix in pair.alignments] for pair in scored]
    rounds = len(talker[1].decoder.rounds)
    assert shapes == [[(2, 1)] * rounds, [(1, 3)] * rounds, [(1, 1)] * rounds]


def test_one_alignment_program_serves_a_corpus(talker, sentences):
    shapes = []

    def forward(params: Params, source: jax.Array, target: jax.Array):
        shapes.append(source.shape)
        return talker[0].forward(params, source, target)

    model = talker[0]._replace(forward=partial(forward))
    score(model, talker[1], sentences, sentences, limits=(4, 4096))
    assert len(shapes) == len(set(shapes)) == 1
    score(model, talker[1], sentences[::-1], sentences[::-1], limits=(4, 4096))
    assert len(shapes) == 1


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
