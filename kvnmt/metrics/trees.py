# SPDX-License-Identifier: Apache-2.0
"""Trees read from self-attention, and how they agree with a parser's.

Miculicich Werlen et al. 2018 (Self-attentive residual decoder for neural machine
translation), section 8.2: Algorithm 1 splits a sentence in two "every time the focus of
attention changes to a new word, from left-to-right". Constituents are compared with a
parser's by ParsEval (Black et al. 1991), "excluding single words":

    precision = |H ∩ G| / |H|          recall = |H ∩ G| / |G|

with H and G the unlabelled spans of two or more words, every count summed over the
corpus before the one division. A span counts once in a tree, however many constituents
cover just these words: unary chains fall together, so that these are sets. Punctuation
counts as words. The paper reports a precision of 0.56, and 0.45 for right-branching
trees; whether the whole sentence counts as a constituent it does not say.

A tree is kept as its words and spans, not as nested nodes: no sentence is too long.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvnmt.metrics.alignment import share

Span = tuple[int, int]  # from the first word to before the last, counted from 0


@dataclass(frozen=True)
class Tree:
    """The words of a sentence and its phrases of two words or more.

    Raises:
        ValueError: There is no word.
    """

    words: tuple[str, ...]
    phrases: frozenset[Span]

    def __post_init__(self) -> None:
        if not self.words:
            raise ValueError("a tree needs a word")


@dataclass(frozen=True)
class ParsEval:
    """Corpus figures as fractions, not percent; a share of nothing is 1."""

    precision: float
    recall: float
    f1: float
    sentences: int


def sentence_tree(words: Sequence[str], focus: Sequence[int | None]) -> Tree:
    """Algorithm 1, of which only lines 11 to 14 were at hand; the rest is inferred.

        SPLIT(tree, A, s):
            k = first position in s, after its first, with focus[k] != focus[k - 1]
            if there is none: tree.addChild(s)
            else: tree.addChild(s[:k]); SPLIT(subtree, A, s[k:]); tree.addChild(subtree)

    The first word has no focus and the second has no choice: the third is the first
    that can differ from the word before it. So a focus that changes at every step gives
    ((w0 w1) (w2 (w3 ...))), one constituent away from the right-branching tree, which
    itself comes of a focus that never changes. Within a phrase words branch to the
    right.

    Args:
        words: The sentence.
        focus: For each word the earlier one attended to most, as ``focus`` of
            self_attention gives it, without EOS. Where it is on none it stays where
            it was.

    Raises:
        ValueError: There are no words.
    """
    stays: list[int] = []
    for word in focus:
        stays.append((stays or [0])[-1] if word is None else word)
    changes = [k for k in range(2, len(words)) if stays[k] != stays[k - 1]]
    phrases = list(zip([0, *changes], [*changes, len(words)]))
    spans = {(start, len(words)) for start, _ in phrases}
    spans |= {(i, end) for start, end in phrases for i in range(start, end)}
    return Tree(tuple(words), frozenset(s for s in spans if s[1] - s[0] > 1))


def right_branching(words: Sequence[str]) -> Tree:
    """The trivial tree (w0 (w1 (w2 ...))), the paper's baseline."""
    count = len(words)
    return Tree(tuple(words), frozenset((start, count) for start in range(count - 1)))


def parseval(hypotheses: Sequence[Tree], gold: Sequence[Tree]) -> ParsEval:
    """Compares trees of the same sentences, as the module describes it.

    The whole sentence, which is always right, counts as a constituent.

    Args:
        hypotheses: Trees in the order of the gold file.
        gold: Trees of a parser or of people, over as many words. Words may differ: they
            may be escaped or lower-cased.

    Raises:
        ValueError: They are of other sentences.
    """
    sizes = [[len(tree.words) for tree in trees] for trees in (hypotheses, gold)]
    if sizes[0] != sizes[1]:
        raise ValueError("the trees are of sentences of other lengths")
    pairs = [(h.phrases, g.phrases) for h, g in zip(hypotheses, gold)]
    right = sum(len(h & g) for h, g in pairs)
    proposed = sum(len(h) for h, _ in pairs)
    wanted = sum(len(g) for _, g in pairs)
    return ParsEval(
        precision=share(right, proposed),
        recall=share(right, wanted),
        f1=share(2 * right, proposed + wanted),
        sentences=len(pairs),
    )
