# SPDX-License-Identifier: Apache-2.0
"""Over- and under-translation: by hand, and on the language whose gold is known."""

import random

import numpy as np
import pytest

from kvnmt.data.synthetic import make_corpus
from kvnmt.metrics.adequacy import (
    Coverage,
    coverage_by_attention,
    coverage_by_gold,
    repeated_ngrams,
)
from kvnmt.metrics.links import parse_pharaoh

REFERENCE = "DOG wa LAMP ro na PICK po".split()
# Of "the dog will not pick the lamp up". the dog: DOG; will pick .. up: PICK; not: na
# po; lamp: LAMP; the second "the" has no link.
LINKS = parse_pharaoh("1-0 2-5 4-5 7-5 3-4 3-6 6-2").sure


def look(hypothesis: str) -> Coverage:
    return coverage_by_gold(REFERENCE, LINKS, hypothesis.split())


@pytest.mark.parametrize(
    ("hypothesis", "dropped", "repeated", "invented"),
    [
        ("DOG wa LAMP ro na PICK po", 0, 0, 0),
        ("po PICK na ro LAMP wa DOG", 0, 0, 0),  # order is not adequacy
        ("DOG wa LAMP ro na po", 3, 0, 0),  # will, pick and up
        ("DOG wa ro na PICK", 1, 0, 0),  # lamp; of "na po" one word is there
        ("DOG wa LAMP ro PICK", 1, 0, 0),  # not
        ("DOG DOG DOG wa LAMP ro na PICK po", 0, 1, 0),  # dog, however often
        ("DOG wa LAMP ro na PICK po po", 0, 1, 0),  # not, by one of its words
        ("DOG wa CAT ro na PICK po CAT", 1, 0, 2),
        ("", 6, 0, 0),
    ],
)
def test_words_that_the_source_asks_for(hypothesis, dropped, repeated, invented):
    count = len(hypothesis.split())
    assert look(hypothesis) == Coverage(6, dropped, repeated, invented, count)


def test_alike_words_are_counted_not_looked_for():
    """Of two houses one is missing, or a third too many."""
    reference = ["HOUSE", "te", "HOUSE"]
    links = parse_pharaoh("0-0 1-1 2-2").sure

    def count(text: str) -> tuple[int, int]:
        found = coverage_by_gold(reference, links, text.split())
        return found.dropped, found.repeated

    assert count("HOUSE te HOUSE") == (0, 0)
    assert count("HOUSE te") == (1, 0)
    assert count("te") == (2, 0)
    assert count("HOUSE te HOUSE HOUSE") == (0, 1)


def test_inflection_does_not_hide_a_word():
    given = ["HUNDE"], parse_pharaoh("0-0").sure, ["HUND"]
    assert coverage_by_gold(*given).dropped == 1
    assert coverage_by_gold(*given, stem=lambda word: word[:4]).dropped == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_taken_from_a_translation_is_what_is_missing(seed):
    """On the made-up language, where stems of four letters tell words apart."""
    rng = random.Random(seed)
    for pair in make_corpus(seed, 60, 1, 1).train:
        given = pair.target, pair.links
        stems = [word[:4] for word in pair.target]
        whole = coverage_by_gold(*given, pair.target, lambda word: word[:4])
        assert (whole.dropped, whole.repeated, whole.invented) == (0, 0, 0)
        assert whole.words == len({i for i, _ in pair.links})
        alone = [  # target words of a unit that has no other
            j
            for j in {j for _, j in pair.links}
            if all(b == j for a, b in pair.links if (a, j) in pair.links)
        ]
        j = rng.choice(alone or [None])
        if j is None:
            continue
        size = sum(b == j for _, b in pair.links)
        less = [word for n, word in enumerate(pair.target) if n != j]
        more = [*pair.target, pair.target[j]]
        found = coverage_by_gold(*given, less, lambda word: word[:4])
        if stems.count(stems[j]) == 1:
            assert (found.dropped, found.repeated) == (size, 0)
        found = coverage_by_gold(*given, more, lambda word: word[:4])
        assert found.dropped == 0
        assert found.repeated >= 1


def test_coverage_by_attention_by_hand():
    # Columns receive 1.7, 0.1, 0.9 and 0.15; word 0 has three links, 2 and 3 one each.
    # Of the words with less than 0.2 only 1 has no link.
    alignment = np.array(
        [[0.6, 0.1, 0.0, 0.05], [0.5, 0.0, 0.3, 0.0], [0.1, 0.0, 0.6, 0.0]]
        + [[0.5, 0.0, 0.0, 0.1]]
    )
    links = parse_pharaoh("0-0 0-1 2-2 0-3 3-3").sure
    assert coverage_by_attention(alignment, links) == Coverage(4, 1, 0, 0, 4)
    less = links - {(3, 3)}
    assert coverage_by_attention(alignment, less).dropped == 2
    more = links | {(0, 2)}  # a fourth link for word 0
    assert coverage_by_attention(alignment, more).repeated == 1
    gold = parse_pharaoh(
        "0-0 0?1 2-2 3-3"
    )  # one more than two is allowed, not two more
    assert coverage_by_attention(alignment, more, gold).repeated == 1
    assert coverage_by_attention(alignment, links, gold).repeated == 0
    gold = parse_pharaoh("0-0 2-2 3-3")
    assert coverage_by_attention(alignment, links, gold).repeated == 1
    # What the vocabulary has no piece of cannot be read, nor left unread.
    readable = coverage_by_attention(alignment, less, readable={0, 2, 3})
    assert readable == Coverage(3, 1, 0, 0, 4)


def test_repeated_ngrams_by_hand():
    # "a b a b a": of 5 words 3 stood before, of 4 bigrams (ab ba ab ba) 2, of 3
    # trigrams (aba bab aba) 1. "c": one word, no bigram.
    sentences = ["a b a b a".split(), ["c"]]
    found = [repeated_ngrams(sentences, n) for n in (1, 2, 3, 6)]
    assert found == pytest.approx([3 / 6, 2 / 4, 1 / 3, 0])


def test_shares_of_nothing_are_0():
    nothing, total = Coverage(), Coverage(4, 1, 2, 1, 5) + Coverage(4, 1)
    assert (nothing.under, nothing.over, nothing.invention) == (0, 0, 0)
    assert (total.under, total.over, total.invention) == (2 / 8, 2 / 8, 1 / 5)
    assert coverage_by_attention(np.zeros((0, 3)), frozenset()) == Coverage(
        3, 3, 0, 0, 0
    )
