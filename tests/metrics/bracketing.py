# SPDX-License-Identifier: Apache-2.0
"""Trees written as plain brackets, to compare them and to read them back."""

from collections import Counter

from kvnmt.metrics.trees import Tree


def format_tree(tree: Tree) -> str:
    """``((the dog) barks)``; round brackets in words are -LRB- and -RRB-."""
    opened = Counter(start for start, _ in tree.phrases)
    closed = Counter(end for _, end in tree.phrases)
    text = []
    for i, word in enumerate(tree.words):
        word = word.replace("(", "-LRB-").replace(")", "-RRB-")
        text.append("(" * opened[i] + word + ")" * closed[i + 1])
    return " ".join(text) if tree.phrases else f"({text[0]})"
