# SPDX-License-Identifier: Apache-2.0
"""Tables of likely target tokens: counted, written, read, and searched with."""

import numpy as np
import pytest

from kvnmt.data.batches import pad, with_end
from kvnmt.data.vocabulary import EOS, UNK
from kvnmt.errors import UserError
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.ensemble import ensemble
from kvnmt.inference.program import compiled_search
from kvnmt.inference.shortlist import NO_TOKEN, Lexicon, Shortlist, of_all, size_for
from kvnmt.inference.translate import translate, translate_nbest
from kvnmt.model import assembly
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import system
from tests.helpers import drawn

SIZES = ModelConfig(embedding=6, encoder=5, state=7)
WORDS = 12
GREEDY = SearchConfig(beam=1, batch_size=4)
BEAM = SearchConfig(beam=3, nbest=2, batch_size=4)
DRAWN = SearchConfig(sample=True, nbest=2, batch_size=4)
SEARCHES = {"greedy": GREEDY, "beam": BEAM, "drawn": DRAWN}


def build(name: str, seed: int):
    """A model whose random parameters make it talk, and of different things."""
    model = assembly.build(system(name).model(SIZES), WORDS, WORDS)
    return model, drawn(model, seed)


@pytest.fixture(scope="module", name="talkers")
def _talkers():
    """A system with auxiliary output layers, and it with another."""
    some = [build("past-future-losses", 11), build("rnnsearch", 12)]
    members, params = zip(*some)
    return {"single": some[0], "ensemble": (ensemble(members), params)}


@pytest.fixture(scope="module", name="sentences")
def _sentences() -> list[list[int]]:
    random = np.random.default_rng(4)
    sizes = [3, 7, 1, 5, 2, 7, 4, 6]
    return [random.integers(1, WORDS, n).tolist() for n in sizes]


def shortlist_of(table: dict[int, list[int]], words: int = WORDS) -> Shortlist:
    """Target tokens of source tokens, all as likely."""
    pairs = [(i, j, 1.0) for i, targets in table.items() for j in targets]
    source, target, probability = map(np.array, zip(*pairs))
    return Shortlist(Lexicon(source, target, probability).ranked(), words, words)


NARROW = {i: [i, 13 - i] for i in range(2, WORDS)} | {NO_TOKEN: [5]}


def test_every_word_is_no_shortlist(talkers, sentences):
    """Those of one source token are enough, since every sentence has an end."""
    everything = shortlist_of({EOS: list(range(2, WORDS))})
    for name, talker in talkers.items():
        exact = translate_nbest(*talker, sentences, BEAM)
        again = translate_nbest(*talker, sentences, BEAM, shortlist=everything)
        for ways, same in zip(exact, again, strict=True):
            assert [way.ids for way in ways] == [way.ids for way in same], name
            figures = ([way.score for way in some] for some in (ways, same))
            np.testing.assert_allclose(*figures, rtol=1e-5)


def test_only_candidates_are_written(talkers, sentences):
    shortlist = shortlist_of(NARROW)
    ways = translate_nbest(*talkers["single"], sentences, BEAM, shortlist=shortlist)
    written = set()
    for ids, several in zip(sentences, ways, strict=True):
        allowed = {EOS, UNK, 5}.union(*(NARROW.get(i, ()) for i in ids))
        for way in several:
            assert set(way.ids) <= allowed
            written |= set(way.ids)
    assert len(written) > 5


def test_words_that_are_not_told_apart_are_all_allowed(talkers, sentences):
    model, params = talkers["single"]
    search = compiled_search(model, BEAM)
    source, places = pad([with_end(ids) for ids in sentences[:2]], 2, 16), np.arange(2)
    words = np.array([EOS, UNK, 3, 5, 8])
    every = np.ones((2, len(words)), bool)
    told = search(params, source, places, None, every, words=words)
    found = search(params, source, places, words=words)
    np.testing.assert_array_equal(found.tokens, told.tokens)
    assert set(np.unique(found.tokens)) <= {-1, *words.tolist()}
    with pytest.raises(UserError, match="of some words; pass these, too"):
        search(params, source, places, None, every)


def test_greedy_words_stay_if_they_are_candidates(talkers, sentences):
    """The best of all words is the best of fewer, and more probable among them."""
    model, params = talkers["single"]
    exact = translate(model, params, sentences, GREEDY)
    for ids, best in zip(sentences[:3], exact):
        shortlist = shortlist_of({NO_TOKEN: sorted({5, *best.ids} - {UNK})})
        (same,) = translate(model, params, [ids], GREEDY, shortlist=shortlist)
        assert same.ids == best.ids
        assert same.log_prob > best.log_prob


@pytest.mark.parametrize("search", SEARCHES)
def test_what_else_is_in_the_batch_does_not_show(talkers, sentences, search):
    """Though all share one output layer, an ensemble's members and draws too."""
    shortlist, config = shortlist_of(NARROW), SEARCHES[search]
    talker = talkers["single" if search == "greedy" else "ensemble"]
    whole = translate_nbest(*talker, sentences, config, shortlist=shortlist)
    for n in (0, 2, 5):
        (alone,) = translate_nbest(
            *talker, [sentences[n]], config, shortlist=shortlist, numbers=[n]
        )
        assert [way.ids for way in alone] == [way.ids for way in whole[n]]
        figures = ([way.log_prob for way in ways] for ways in (alone, whole[n]))
        np.testing.assert_allclose(*figures, rtol=1e-5)


def test_a_prefix_is_a_candidate(talkers, sentences):
    shortlist = shortlist_of({NO_TOKEN: [5]})
    prefixes = [[7, 3], [], [9]]
    ways = translate_nbest(
        *talkers["single"],
        sentences[:3],
        BEAM,
        prefixes=prefixes,
        shortlist=shortlist,
    )
    for begun, several in zip(prefixes, ways, strict=True):
        assert several
        for way in several:
            assert way.ids[: len(begun)] == begun
            assert set(way.ids[len(begun) :]) <= {UNK, 5, *begun}


def test_few_sizes_of_output_layers():
    sizes = [size_for(count, 30_000) for count in range(1, 30_001)]
    assert all(count <= size for count, size in enumerate(sizes, start=1))
    assert sizes == sorted(sizes) and len(set(sizes)) < 32
    assert all(size <= 1.5 * count for count, size in enumerate(sizes[2:], start=3))
    assert size_for(500, 600) == 512 and size_for(520, 600) == 600


def test_candidates_of_a_batch():
    shortlist = shortlist_of({NO_TOKEN: [9], 2: [4, 7], 3: [7, 60]}, 100)
    source = np.array([[2, 0, -1], [3, 5, 0], [-1, -1, -1]])
    words, allowed = shortlist.candidates(source)
    assert words.tolist() == [0, 1, 4, 7, 9, 60]
    assert [words[row].tolist() for row in allowed] == [
        [0, 1, 4, 7, 9],
        [0, 1, 7, 9, 60],
        [0, 1, 9],
    ]
    prefix = np.array([[50, -1], [-1, -1], [-1, -1]])
    words, allowed = shortlist.candidates(source, prefix)
    assert words.tolist() == [0, 1, 4, 7, 9, 50, 60, 60]
    assert words[allowed[0]].tolist() == [0, 1, 4, 7, 9, 50]
    assert not allowed[:, 7].any()


def test_all_sentences_may_have_the_same_candidates():
    source = np.array([[5, 3, EOS], [4, EOS, -1]])
    candidates = of_all(6, (9, 40)).candidates(source)
    np.testing.assert_array_equal(candidates.words, np.arange(6))
    assert candidates.allowed.all() and candidates.allowed.shape == (2, 6)
    assert of_all(2, (9, 40)).candidates(source).words.tolist() == [EOS, UNK]


def test_a_shortlist_of_other_words_is_refused(talkers, sentences):
    model, params = next(iter(talkers.values()))
    other = of_all(3, (model.source_words, model.target_words + 1))
    with pytest.raises(UserError, match="shortlist is of .*, the model of"):
        translate_nbest(model, params, sentences, shortlist=other)
    with pytest.raises(UserError, match="a shortlist of type str is none; read its"):
        translate_nbest(model, params, sentences, shortlist="table")
