# SPDX-License-Identifier: Apache-2.0
"""Algorithm 1 against its literal recursion, and ParsEval."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.errors import UserError
from kvnmt.metrics.brackets import parse_brackets
from kvnmt.metrics.self_attention import focus as focus_of
from kvnmt.metrics.trees import ParsEval, Tree, parseval, right_branching, sentence_tree
from tests.metrics.bracketing import format_tree

WORDS = [f"w{i}" for i in range(7)]
FOCUS = [None, 0, 0, 2, 2, 0, 4]


@st.composite
def focuses(draw, least=1):
    length = draw(st.integers(least, 9))
    return [None, *(draw(st.integers(0, t - 1)) for t in range(1, length))]


def _split(words, focus, new_only, binary):
    """SPLIT as it is written, on nested lists; every word knows its place."""
    for k in range(1, len(words)):
        place = words[k]
        if place < 2:  # the first word has no focus to differ from
            continue
        changed = focus[place] != focus[place - 1]
        if changed and not (new_only and focus[place] in focus[:place]):
            rest = _split(words[k:], focus, new_only, binary)
            return [_phrase(words[:k], binary), rest]
    return _phrase(words, binary)


def _phrase(words, binary):
    if len(words) == 1:
        return words[0]
    return [words[0], _phrase(words[1:], binary)] if binary else list(words)


def _spans(node):
    """The words of a nested list and its spans."""
    if isinstance(node, int):
        return [node], set()
    parts = [_spans(child) for child in node]
    words = [word for part, _ in parts for word in part]
    return words, set().union({(words[0], words[-1] + 1)}, *(s for _, s in parts))


@pytest.mark.parametrize(
    ("options", "tree"),
    [
        # The focus changes at w3 (0 to 2), w5 (2 to 0) and w6 (0 to 4):
        # SPLIT(w0 ... w6): w3 changes; child w0 w1 w2, then
        #   SPLIT(w3 ... w6): w4 does not change, w5 does; child w3 w4, then
        #     SPLIT(w5 w6): w6 changes; child w5, then SPLIT(w6): child w6.
        ({}, "((w0 (w1 w2)) ((w3 w4) (w5 w6)))"),
        ({"binary": False}, "((w0 w1 w2) ((w3 w4) (w5 w6)))"),
        # w0, the focus of w5, was one before: no change; 2 and 4 are new.
        ({"new_only": True}, "((w0 (w1 w2)) ((w3 (w4 w5)) w6))"),
        ({"new_only": True, "binary": False}, "((w0 w1 w2) ((w3 w4 w5) w6))"),
    ],
)
def test_algorithm_1_by_hand(options, tree):
    assert format_tree(sentence_tree(WORDS, FOCUS, **options)) == tree


@given(focuses(), st.booleans(), st.booleans())
def test_algorithm_1_as_it_is_written(focus, new_only, binary):
    words, spans = _spans(_split(list(range(len(focus))), focus, new_only, binary))
    tree = sentence_tree(len(focus), focus, new_only=new_only, binary=binary)
    assert tree.words == tuple(map(str, words))
    assert tree.spans() == spans


@given(focuses(), st.booleans(), st.booleans())
def test_trees_cover_all_words_once_in_order(focus, new_only, binary):
    tree = sentence_tree(len(focus), focus, new_only=new_only, binary=binary)
    text = format_tree(tree)
    assert text.replace("(", "").replace(")", "").split() == [
        *map(str, range(len(focus)))
    ]
    assert text.count("(") == text.count(")") == max(1, len(tree.spans()))
    assert len(tree.spans()) == len(focus) - 1 or not binary
    for (a, b), (c, d) in itertools.combinations(tree.spans(), 2):
        assert b <= c or d <= a or a <= c < d <= b or c <= a < b <= d


@given(focuses(least=2))
def test_flat_phrases_are_spans_of_the_binary_tree(focus):
    flat = sentence_tree(len(focus), focus, binary=False)
    assert flat.spans() <= sentence_tree(len(focus), focus).spans()


@pytest.mark.parametrize("length", range(1, 9))
def test_focus_that_never_changes_is_right_branching(length):
    focus = [None, *[0] * (length - 1)]
    assert sentence_tree(length, focus) == right_branching(length)


@pytest.mark.parametrize("length", range(3, 9))
@pytest.mark.parametrize("new_only", [False, True])
def test_focus_that_always_changes_branches_right_behind_two_words(length, new_only):
    # Comparing starts at the third word, so that the first two are never parted.
    focus = [None, *range(length - 1)]  # always the previous word
    expected = right_branching(length).spans() - {(1, length)} | {(0, 2)}
    assert sentence_tree(length, focus, new_only=new_only).spans() == expected


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=9))
def test_new_only_is_idle_for_a_content_score(energies):
    e = np.exp(energies)
    focus = focus_of(np.tril(np.tile(e, (len(e), 1))))
    tree = sentence_tree(len(e), focus)
    assert tree == sentence_tree(len(e), focus, new_only=True)


def test_right_branching():
    assert format_tree(right_branching("a b c d".split())) == "(a (b (c d)))"
    assert right_branching(3).words == ("0", "1", "2")
    assert right_branching(1) == Tree(("0",), frozenset())
    # Deeper than Python recurses.
    assert len(right_branching(5000).spans()) == 4999


@pytest.mark.parametrize(
    ("words", "focus", "message"),
    [
        (3, [None, 0], "focus of 2 words for a sentence of 3"),
        (2, [None, 1], "focus of word 1 is 1"),
        (3, [None, 0, -1], "focus of word 2 is -1"),
        (3, [None, 0, None], "focus of word 2 is None"),
        (1, [0], "focus of word 0 is 0"),
        (0, [], "needs a word"),
    ],
)
def test_focus_of_another_sentence(words, focus, message):
    with pytest.raises(ValueError, match=message):
        sentence_tree(words, focus)


@pytest.mark.parametrize(
    "spans",
    [
        {(0, 2), (1, 3)},  # cross; and the sentence is missing
        {(0, 3), (0, 2), (1, 3)},
        {(0, 3), (1, 2)},  # one word
        {(0, 3), (1, 4)},
        {(0, 3), (3, 5)},
        {(0, 3), (-1, 2)},
        {(0, 2)},
        set(),
    ],
)
def test_spans_that_are_no_tree(spans):
    with pytest.raises(ValueError, match="phrase"):
        Tree(("a", "b", "c"), frozenset(spans))


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
    # Without the sentences: 2 and 0 right, 3 and 1 proposed, 3 and 0 wanted.
    score = parseval(hypotheses, gold, root=False)
    assert score == ParsEval(2 / 4, pytest.approx(2 / 3), pytest.approx(4 / 7), 2)


@given(st.lists(focuses(), max_size=4), st.booleans())
def test_parseval_laws(drawn, root):
    trees = [sentence_tree(len(focus), focus) for focus in drawn]
    assert parseval(trees, trees, root=root) == ParsEval(1, 1, 1, len(trees))
    others = [right_branching(len(focus)) for focus in drawn]
    one, other = (
        parseval(a, b, root=root) for a, b in [(trees, others), (others, trees)]
    )
    assert (one.precision, one.recall) == (other.recall, other.precision)
    # Binary trees have as many spans as their gold trees if these are binary.
    assert one.precision == one.recall == pytest.approx(one.f1)
    assert parseval(trees, others).precision >= one.precision


def test_nothing_proposed_or_wanted():
    flat, binary = _trees("(a b c)"), _trees("(a (b c))")
    assert parseval(flat, binary, root=False) == ParsEval(1, 0, 0, 1)
    assert parseval(binary, flat, root=False) == ParsEval(0, 1, 0, 1)
    assert parseval([right_branching(1)], [right_branching(1)]).f1 == 1


def test_sentences_must_agree():
    trees = [right_branching(2), right_branching(3)]
    with pytest.raises(UserError, match="2 trees but 1 gold trees"):
        parseval(trees, trees[:1])
    with pytest.raises(UserError, match="line 2: the tree has 3 words but .* 4;"):
        parseval(trees, [right_branching(2), right_branching(4)])
