# SPDX-License-Identifier: Apache-2.0
"""Algorithm 1 against its literal recursion, and ParsEval."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.metrics.brackets import parse_brackets
from kvnmt.metrics.trees import ParsEval, Tree, parseval, right_branching, sentence_tree
from tests.metrics.bracketing import format_tree

WORDS = [f"w{i}" for i in range(9)]
FOCUS = [None, 0, 0, 2, 2, 0, 4]


@st.composite
def focuses(draw, least=1):
    length = draw(st.integers(least, 9))
    return [None, *(draw(st.integers(0, t - 1)) for t in range(1, length))]


def _split(words, focus):
    """SPLIT as it is written, on nested lists; every word knows its place."""
    for k in range(1, len(words)):
        place = words[k]
        if place < 2:  # the first word has no focus to differ from
            continue
        if focus[place] != focus[place - 1]:
            return [_phrase(words[:k]), _split(words[k:], focus)]
    return _phrase(words)


def _phrase(words):
    return words[0] if len(words) == 1 else [words[0], _phrase(words[1:])]


def _spans(node):
    """The words of a nested list and its spans."""
    if isinstance(node, int):
        return [node], set()
    parts = [_spans(child) for child in node]
    words = [word for part, _ in parts for word in part]
    return words, set().union({(words[0], words[-1] + 1)}, *(s for _, s in parts))


def test_algorithm_1_by_hand():
    # The focus changes at w3 (0 to 2), w5 (2 to 0) and w6 (0 to 4):
    # SPLIT(w0 ... w6): w3 changes; child w0 w1 w2, then
    #   SPLIT(w3 ... w6): w4 does not change, w5 does; child w3 w4, then
    #     SPLIT(w5 w6): w6 changes; child w5, then SPLIT(w6): child w6.
    tree = sentence_tree(WORDS[: len(FOCUS)], FOCUS)
    assert format_tree(tree) == "((w0 (w1 w2)) ((w3 w4) (w5 w6)))"


@given(focuses())
def test_algorithm_1_as_it_is_written(focus):
    words, spans = _spans(_split(list(range(len(focus))), focus))
    tree = sentence_tree(WORDS[: len(focus)], focus)
    assert tree.words == tuple(WORDS[word] for word in words)
    assert tree.phrases == {(a, b) for a, b in spans if b - a > 1}


@given(focuses(), st.data())
def test_where_the_focus_is_on_no_word_it_stays(focus, data):
    for t in range(2, len(focus)):
        if data.draw(st.booleans()):
            focus[t] = focus[t - 1]
    words = WORDS[: len(focus)]
    same = [None if t == 1 or w == focus[t - 1] else w for t, w in enumerate(focus)]
    assert sentence_tree(words, same) == sentence_tree(words, focus)


@given(focuses())
def test_trees_cover_all_words_once_in_order(focus):
    tree = sentence_tree(WORDS[: len(focus)], focus)
    text = format_tree(tree)
    assert text.replace("(", "").replace(")", "").split() == WORDS[: len(focus)]
    assert text.count("(") == text.count(")") == max(1, len(tree.phrases))
    assert len(tree.phrases) == len(focus) - 1
    for (a, b), (c, d) in itertools.combinations(tree.phrases, 2):
        assert b <= c or d <= a or a <= c < d <= b or c <= a < b <= d


@pytest.mark.parametrize("length", range(1, 9))
def test_focus_that_never_changes_is_right_branching(length):
    focus, words = [None, *[0] * (length - 1)], WORDS[:length]
    assert sentence_tree(words, focus) == right_branching(words)


@pytest.mark.parametrize("length", range(3, 9))
def test_focus_that_always_changes_branches_right_behind_two_words(length):
    # Comparing starts at the third word, so that the first two are never parted.
    focus, words = [None, *range(length - 1)], WORDS[:length]  # always the word before
    expected = right_branching(words).phrases - {(1, length)} | {(0, 2)}
    assert sentence_tree(words, focus).phrases == expected


def test_right_branching():
    assert format_tree(right_branching("a b c d".split())) == "(a (b (c d)))"
    assert right_branching(["a"]) == Tree(("a",), frozenset())
    # Deeper than Python recurses.
    assert len(right_branching(["a"] * 5000).phrases) == 4999


def test_a_tree_needs_a_word():
    with pytest.raises(ValueError, match="needs a word"):
        sentence_tree([], [])


def _trees(*lines):
    return [parse_brackets(line, labelled=False) for line in lines]


def test_parseval_by_hand():
    # Sentence 1: G = {0-5, 0-2, 2-5, 3-5}, H = {0-5, 1-5, 2-5, 3-5}: three in common.
    # Sentence 2: G = {0-3}, H = {0-3, 1-3}: one.
    # Corpus: 4 right of 6 proposed and 5 wanted; F1 = 2 * 4 / (6 + 5).
    # (The mean of the sentences' precisions would be (3/4 + 1/2) / 2 = 5/8.)
    gold = _trees("((the dog) (chased (the cat)))", "(a b c)")
    hypotheses = _trees("(the (dog (chased (the cat))))", "(a (b c))")
    score = parseval(hypotheses, gold)
    assert score == ParsEval(pytest.approx(4 / 6), 4 / 5, pytest.approx(8 / 11), 2)


def test_trees_of_other_sentences():
    with pytest.raises(ValueError, match="of sentences of other lengths"):
        parseval([right_branching(["a"])], [right_branching(["a", "b"])])


@given(st.lists(focuses(), max_size=4))
def test_parseval_laws(drawn):
    trees = [sentence_tree(WORDS[: len(focus)], focus) for focus in drawn]
    assert parseval(trees, trees) == ParsEval(1, 1, 1, len(trees))
    others = [right_branching(tree.words) for tree in trees]
    one, other = parseval(trees, others), parseval(others, trees)
    assert (one.precision, one.recall) == (other.recall, other.precision)
    # Binary trees have as many spans as their gold trees if these are binary.
    assert one.precision == one.recall == pytest.approx(one.f1)


def test_nothing_proposed_or_wanted():
    word = [right_branching(["a"])]
    assert parseval(word, word) == ParsEval(1, 1, 1, 1)
