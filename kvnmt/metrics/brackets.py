# SPDX-License-Identifier: Apache-2.0
"""Trees as text, one a line: plain brackets, or those of the Penn Treebank.

    ((the dog) barks)     (S (NP (DT the) (NN dog)) (VBZ barks))

Round brackets in words are written ``-LRB-`` and ``-RRB-``.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from kvnmt.data.text import read_lines
from kvnmt.errors import UserError
from kvnmt.metrics.trees import Tree

_TOKEN = re.compile(r"[()]|[^ \t\r\n()]+")
_LABELLED = re.compile(r"\(w(w|t+)\)")  # label and word, or label and trees
_TRACE = "-NONE-"  # the label of what stands for no word in the Penn Treebank


def parse_brackets(line: str, *, labelled: bool) -> Tree:
    """Reads one tree.

    Labels, unary chains, traces (-NONE-) and an outer empty bracket are dropped.

    Args:
        line: One tree.
        labelled: Whether it has labels.

    Raises:
        ValueError: The line is empty, unbalanced, or no tree.
    """
    tokens = _tokens(line)
    if labelled and not _is_labelled(tokens):
        raise ValueError("in a labelled tree every word and phrase has its own label")
    words, spans, starts = [], set(), []
    label = ""
    for before, token in zip(["", *tokens], tokens):
        if token == "(":
            starts.append(len(words))
        elif token == ")":
            spans.add((starts.pop(), len(words)))
        elif labelled and before == "(":
            label = token
        elif not (labelled and label == _TRACE):
            words.append(token.replace("-LRB-", "(").replace("-RRB-", ")"))
    return Tree(tuple(words), frozenset(s for s in spans if s[1] - s[0] > 1))


def read_brackets(path: Path | str) -> list[Tree]:
    """Reads trees, one a line; most of the lines tell whether they have labels.

    Args:
        path: Text, plain or compressed, every line as ``parse_brackets`` reads it.

    Raises:
        UserError: The file cannot be read, or a line is no tree.
    """
    lines = read_lines(path)
    labelled = _most_are_labelled(lines)
    trees = []
    for number, line in enumerate(lines, start=1):
        try:
            trees.append(parse_brackets(line, labelled=labelled))
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}.") from None
    return trees


def _tokens(line: str) -> list[str]:
    """Brackets, words and labels of one tree, its brackets balanced."""
    tokens = _TOKEN.findall(line)
    if not tokens:
        raise ValueError("the line is empty")
    if tokens[0] != "(":
        raise ValueError(f"a tree begins with '(', not with {tokens[0]!r}")
    depth = 0
    for before, token in zip(["", *tokens], tokens):
        if before and not depth:
            raise ValueError(f"{token!r} follows the end of the tree")
        if (before, token) == ("(", ")"):
            raise ValueError("a bracket holds nothing")
        depth += {"(": 1, ")": -1}.get(token, 0)
    if depth:
        raise ValueError(f"{depth} '(' without ')'; a tree stands on one line")
    return tokens


def _is_labelled(tokens: Sequence[str], *, surely: bool = False) -> bool:
    """Can these be read with labels; surely, if that gives more than a chain?"""
    shape = "".join(token if token in "()" else "w" for token in tokens)
    branches, replaced = False, 1
    while replaced:
        shape, replaced = _LABELLED.subn("t", shape)
        branches |= "tt" in shape
    return shape in ("t", "(t)") and (branches or not surely)


def _most_are_labelled(lines: Sequence[str]) -> bool:
    possible, surely, trees = 0, False, 0
    for line in lines:
        try:
            tokens = _tokens(line)
        except ValueError:  # refused when it is read
            continue
        trees += 1
        possible += _is_labelled(tokens)
        surely |= _is_labelled(tokens, surely=True)
    return surely and 2 * possible > trees
