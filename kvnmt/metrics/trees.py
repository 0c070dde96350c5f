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

from kvnmt.errors import UserError

Span = tuple[int, int]  # from the first word to before the last, counted from 0


@dataclass(frozen=True)
class Tree:
    """The words of a sentence and its phrases of two words or more.

    Raises:
        ValueError: There is no word, or the phrases are no tree over all words.
    """

    words: tuple[str, ...]
    phrases: frozenset[Span]

    def __post_init__(self) -> None:
        count = len(self.words)
        if not count:
            raise ValueError("a tree needs a word")
        if count > 1 and (0, count) not in self.phrases:
            raise ValueError("no phrase holds the whole sentence")
        around = [(0, count)]
        for start, end in sorted(self.phrases, key=lambda span: (span[0], -span[1])):
            while around[-1][1] <= start < count:
                around.pop()
            if not (0 <= start <= end - 2 and end <= around[-1][1]):
                raise ValueError(f"phrase {start, end} fits not into {around[-1]}")
            around.append((start, end))

    def spans(self, *, root: bool = True) -> frozenset[Span]:
        """The constituents that ParsEval counts, with or without the sentence."""
        whole = (0, len(self.words))
        return self.phrases if root else self.phrases - {whole}


@dataclass(frozen=True)
class ParsEval:
    """Corpus figures as fractions, not percent; a share of nothing is 1."""

    precision: float
    recall: float
    f1: float
    sentences: int


def sentence_tree(
    words: Sequence[str] | int,
    focus: Sequence[int | None],
    *,
    new_only: bool = False,
    binary: bool = True,
) -> Tree:
    """Algorithm 1, of which only lines 11 to 14 were at hand; the rest is inferred.

        SPLIT(tree, A, s):
            k = first position in s, after its first, with focus[k] != focus[k - 1]
            if there is none: tree.addChild(s)
            else: tree.addChild(s[:k]); SPLIT(subtree, A, s[k:]); tree.addChild(subtree)

    The first word has no focus and the second has no choice: the third is the first
    that can differ from the word before it. So a focus that changes at every step gives
    ((w0 w1) (w2 (w3 ...))), one constituent away from the right-branching tree, which
    itself comes of a focus that never changes.

    Where the energies do not depend on t, as with the content score (equation 13), the
    focus moves only to words never focused before, and ``new_only`` changes nothing.

    Args:
        words: The sentence, or its length; then words are called by their numbers.
        focus: For each word the earlier one attended to most, as ``focus`` of
            self_attention gives it, without EOS.
        new_only: Split only where the focus moves to a word never focused before.
        binary: Branch phrases to the right; else those of more than two words are flat.

    Raises:
        ValueError: The focus is none of this sentence, or there are no words.
    """
    words = _names(words)
    _check_focus(focus, len(words))
    changes = []
    for k in range(2, len(words)):
        known = focus[:k] if new_only else focus[k - 1 : k]
        if focus[k] not in known:
            changes.append(k)
    phrases = list(zip([0, *changes], [*changes, len(words)]))
    spans = {(start, len(words)) for start, _ in phrases} | set(phrases)
    if binary:
        spans |= {(i, end) for start, end in phrases for i in range(start, end)}
    return Tree(words, frozenset(s for s in spans if s[1] - s[0] > 1))


def right_branching(words: Sequence[str] | int) -> Tree:
    """The trivial tree (w0 (w1 (w2 ...))), the paper's baseline."""
    words = _names(words)
    count = len(words)
    return Tree(words, frozenset((start, count) for start in range(count - 1)))


def parseval(
    hypotheses: Sequence[Tree], gold: Sequence[Tree], *, root: bool = True
) -> ParsEval:
    """Compares trees of the same sentences, as the module describes it.

    Args:
        hypotheses: Trees in the order of the gold file.
        gold: Trees of a parser or of people. Only lengths are compared, not words,
            which may be escaped or lower-cased.
        root: Whether the whole sentence counts as a constituent, which is always right.

    Raises:
        UserError: The numbers of sentences differ, or of words in one of them.
    """
    if len(hypotheses) != len(gold):
        raise UserError(
            f"there are {len(hypotheses)} trees but {len(gold)} gold trees; they must "
            "match line by line."
        )
    for number, pair in enumerate(zip(hypotheses, gold), start=1):
        ours, theirs = (len(tree.words) for tree in pair)
        if ours != theirs:
            raise UserError(
                f"line {number}: the tree has {ours} words but the gold tree {theirs}; "
                "both must have the same tokens."
            )
    pairs = [(h.spans(root=root), g.spans(root=root)) for h, g in zip(hypotheses, gold)]
    right = sum(len(h & g) for h, g in pairs)
    proposed = sum(len(h) for h, _ in pairs)
    wanted = sum(len(g) for _, g in pairs)
    return ParsEval(
        precision=_share(right, proposed),
        recall=_share(right, wanted),
        f1=_share(2 * right, proposed + wanted),
        sentences=len(pairs),
    )


def _names(words: Sequence[str] | int) -> tuple[str, ...]:
    return tuple(map(str, range(words) if isinstance(words, int) else words))


def _check_focus(focus: Sequence[int | None], count: int) -> None:
    if len(focus) != count:
        raise ValueError(f"the focus of {len(focus)} words for a sentence of {count}")
    for t, word in enumerate(focus):
        if (word is None) != (t == 0) or not 0 <= (word or 0) <= max(t - 1, 0):
            raise ValueError(
                f"the focus of word {t} is {word}, which is no earlier word"
            )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
