# SPDX-License-Identifier: Apache-2.0
"""Trees as text: plain brackets and those of the Penn Treebank."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.errors import UserError
from kvnmt.metrics.brackets import _most_are_labelled, parse_brackets, read_brackets
from kvnmt.metrics.trees import Tree, right_branching
from tests.metrics.bracketing import format_tree

words = st.text("abC()-字\u3000\x85", min_size=1, max_size=4)
CAT = "(S (NP (DT the) (NN dog)) (VP (VBD chased) (NP (DT the) (NN cat))))"
PLAIN_CAT = "((the dog) (chased (the cat)))"


def parse(line: str) -> Tree:
    """Reads a line as a file of nothing else would be read."""
    return parse_brackets(line, labelled=_most_are_labelled([line]))


@st.composite
def trees(draw, most=4):
    """Trees whose phrases have two parts, or up to `most`."""
    length = draw(st.integers(1, 7))
    spans, todo = set(), [(0, length)]
    while todo:
        start, end = todo.pop()
        if end - start < 2:
            continue
        spans.add((start, end))
        inner = st.integers(start + 1, end - 1)
        size = draw(st.integers(1, min(most - 1, end - start - 1)))
        cuts = sorted(draw(st.sets(inner, min_size=size, max_size=size)))
        todo += zip([start, *cuts], [*cuts, end])
    chosen = draw(st.lists(words, min_size=length, max_size=length))
    return Tree(tuple(chosen), frozenset(spans))


@given(trees())
def test_parse_and_format_are_inverse(tree):
    assert parse_brackets(format_tree(tree), labelled=False) == tree


@given(trees(most=2))
def test_binary_trees_are_never_taken_for_labelled(tree):
    assert parse(format_tree(tree)) == tree


def _labelled(tree, start=0, end=None, chain=""):
    """The tree as the Penn Treebank has it; every phrase has a chain above it."""
    end = len(tree.words) if end is None else end
    if end - start == 1:
        word = tree.words[start].replace("(", "-LRB-").replace(")", "-RRB-")
        inside = f"NN {word}"
    else:
        parts, place = [], start
        while place < end:  # the longest phrase that starts here is the next part
            ends = [b for a, b in tree.phrases if a == place and (a, b) != (start, end)]
            last = max([b for b in ends if b <= end], default=place + 1)
            parts.append(_labelled(tree, place, last, chain))
            place = last
        inside = " ".join(["NP", *parts])
    return f"({chain}{inside})" + ")" * chain.count("(")


@given(trees(), st.sampled_from(["", "X (", "X (Y ("]), st.sampled_from(["", "( "]))
def test_labels_and_chains_are_dropped(tree, chain, outer):
    text = outer + _labelled(tree, chain=chain) + ")" * len(outer.strip())
    assert parse_brackets(text, labelled=True) == tree
    if len(tree.words) > 1:
        assert parse(text) == tree


def test_formats_by_hand():
    tree = Tree(("the", "dog", "(", "f(x)"), frozenset({(0, 2), (2, 4), (0, 4)}))
    assert format_tree(tree) == "((the dog) (-LRB- f-LRB-x-RRB-))"
    assert format_tree(right_branching(["dog"])) == "(dog)"
    assert format_tree(Tree(("a", "b", "c"), frozenset({(0, 3)}))) == "(a b c)"


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        (CAT, PLAIN_CAT),
        (f"( {CAT})", PLAIN_CAT),
        (f" (ROOT\t{CAT} )\r", PLAIN_CAT),
        (PLAIN_CAT, PLAIN_CAT),
        ("(((the) dog))", "(the dog)"),
        # A trace is no word, nor is the phrase that holds nothing else.
        ("(S (NP (-NONE- *)) (VP (VB Go) (RB on)))", "(Go on)"),
        ("(S (-LRB- -LRB-) (NN x) (-RRB- -RRB-))", "(-LRB- x -RRB-)"),
        # Read as labelled these would be of one word.
        ("(a (b c))", "(a (b c))"),
        ("(a b)", "(a b)"),
    ],
)
def test_lines_by_hand(line, plain):
    assert format_tree(parse(line)) == plain


def test_escaped_brackets_are_words():
    assert parse("(-LRB- (x -RRB-))").words == ("(", "x", ")")


def test_one_labelled_word():
    assert parse_brackets("(ROOT (NN dog))", labelled=True).words == ("dog",)
    assert parse_brackets("(ROOT (NN dog))", labelled=False).words == (
        "ROOT",
        "NN",
        "dog",
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "is empty"),
        (" \t", "is empty"),
        ("dog", "begins with '\\(', not with 'dog'"),
        (")", "begins with '\\(', not with '\\)'"),
        ("(a b", "1 '\\(' without '\\)'"),
        ("((a b) (c", "2 '\\(' without"),
        ("(a b))", "'\\)' follows the end"),
        ("(a b) c", "'c' follows the end"),
        ("(a b) (c d)", "'\\(' follows the end"),
        ("(a ())", "holds nothing"),
    ],
)
def test_lines_that_are_no_tree(tmp_path, line, message):
    path = tmp_path / "gold.trees"
    path.write_bytes(f"(a (B c))\n{line}\n".encode())
    with pytest.raises(UserError, match=rf"gold\.trees, line 2: .*{message}.*\.$"):
        read_brackets(path)


@pytest.mark.parametrize(
    "line", ["(a b c)", "((A b) (C d))", "(S (A b) c)", "((S (A b)) (C d))", "(S)"]
)
def test_lines_without_labels(line):
    with pytest.raises(ValueError, match="its own label"):
        parse_brackets(line, labelled=True)
    with pytest.raises(ValueError, match="needs a word"):
        parse_brackets("(S (-NONE- *))", labelled=True)


def test_most_lines_of_a_file_say_whether_it_has_labels(tmp_path):
    path = tmp_path / "gold.trees"
    path.write_bytes(f"(ROOT (NN dog))\n{CAT}\n".encode())
    assert [len(tree.words) for tree in read_brackets(path)] == [1, 5]
    # Neither line is surely labelled: the first is right-branching.
    path.write_bytes(f"(ROOT (NN dog))\n{PLAIN_CAT}\n".encode())
    assert [len(tree.words) for tree in read_brackets(path)] == [3, 5]
    # The first line could be labelled, but most could not.
    path.write_bytes(f"(a (b c) (d e))\n{PLAIN_CAT}\n(a b c)".encode())
    assert [len(tree.words) for tree in read_brackets(path)] == [5, 5, 3]
    path.write_bytes(f"{CAT}\n{CAT}\n(S (NN dog) cat)\n".encode())
    with pytest.raises(UserError, match=r"gold\.trees, line 3: in a labelled tree"):
        read_brackets(path)


def test_unreadable_files(tmp_path):
    path = tmp_path / "gold.trees"
    with pytest.raises(UserError, match="no file .*gold.trees'; check the path"):
        read_brackets(path)
    path.write_bytes(b"(a b)\n(\xff c)\n")
    with pytest.raises(
        UserError, match="gold.trees, line 2: byte 2 .0xff. is not UTF-8"
    ):
        read_brackets(path)
    path.write_bytes(b"")
    assert read_brackets(path) == []
    path.write_bytes("(a\u2028b c)\n(d\x0be f)".encode())
    assert [len(tree.words) for tree in read_brackets(path)] == [2, 2]
    path.write_bytes(gzip.compress(b"(a b)\r\n(c (d e))\n"))
    assert [tree.words for tree in read_brackets(path)] == [("a", "b"), ("c", "d", "e")]
