# SPDX-License-Identifier: Apache-2.0
"""Word alignments read from attention, and their error against people's.

Alignment error rate (Och and Ney 2003). People mark a link as sure (S) or as possible
(P, which includes S); of a hypothesis A

    precision = |A ∩ P| / |A|          recall = |A ∩ S| / |S|
    AER       = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

with every count summed over the corpus before the one division.

Soft AER (Tu et al. 2016, section 5.4) puts the attention itself in the place of A: the
sizes of the intersections are the sums of its weights at sure and at possible links,
|A| is the sum of all its weights on words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.links import Links
from kvnmt.errors import UserError
from kvnmt.metrics.links import Gold


@dataclass(frozen=True)
class AlignmentScore:
    """Corpus figures as fractions, not percent.

    A share of nothing is 1: a hypothesis without links has precision 1 (and AER 1,
    if there are sure links to find).
    """

    aer: float
    precision: float
    recall: float


def hard_links(alignment: np.ndarray, source_length: int, target_length: int) -> Links:
    """Links each target word to the source word that it attends to most.

    The EOS row gives no link, nor does a target word that attends most to EOS: the
    model read nothing for it. Of equal weights the first counts.

    Args:
        alignment: [T, S], one row per target word; EOS is row `target_length` and
            column `source_length`. What lies beyond them is padding.
        source_length: Source words without EOS.
        target_length: Target words without EOS.

    Raises:
        UserError: The alignment holds a number that is not finite.
        ValueError: It has too few rows or columns.
    """
    rows, columns = alignment.shape
    if rows <= target_length or columns <= source_length:
        raise ValueError(
            f"an alignment of shape {alignment.shape} has no room for {target_length} "
            f"target and {source_length} source words, each with EOS"
        )
    real = alignment[:target_length, : source_length + 1]
    if not np.isfinite(real).all():
        raise UserError(
            "the model attends with weights that are not finite; take an earlier "
            "checkpoint."
        )
    chosen = real.argmax(axis=1).tolist()
    return frozenset((i, j) for j, i in enumerate(chosen) if i != source_length)


def alignment_error_rate(
    hypotheses: Sequence[Links], gold: Sequence[Gold]
) -> AlignmentScore:
    """Scores hard links, sentence by sentence in the order of the gold file.

    For the value of one sentence, give one.

    Raises:
        ValueError: The numbers of sentences differ.
    """
    return _score(*link_counts(hypotheses, gold).sum(0).tolist())


def link_counts(hypotheses: Sequence[Links], gold: Sequence[Gold]) -> NDArray[np.int64]:
    """What the error is made of, [sentences, 4]: |A ∩ S|, |A ∩ P|, |A| and |S|.

    Raises:
        ValueError: The numbers of sentences differ.
    """
    counts = [
        [len(links & one.sure), len(links & one.possible), len(links), len(one.sure)]
        for links, one in zip(hypotheses, gold, strict=True)
    ]
    return np.array(counts, np.int64).reshape(-1, 4)


def error_rates(sums: NDArray[np.int64]) -> NDArray[np.floating]:
    """The AER of each sum of counts, [..., 4], as of `link_counts`."""
    right, of = sums[..., :2].sum(-1), sums[..., 2:].sum(-1)
    return np.where(of > 0, 1.0 - right / np.maximum(of, 1), 0.0)


def soft_alignment_error_rate(
    matrices: Sequence[NDArray[np.floating]], gold: Sequence[Gold]
) -> AlignmentScore:
    """Scores attention as it is; precision and recall are soft too.

    Args:
        matrices: [target words, source words], as of `word_matrix`.
        gold: Of the same sentences.
    """
    sizes = np.zeros(4)
    for matrix, one in zip(matrices, gold, strict=True):
        in_sure, in_possible = (
            sum(float(matrix[j, i]) for i, j in links)
            for links in (one.sure, one.possible)
        )
        sizes += [in_sure, in_possible, matrix.sum(), len(one.sure)]
    return _score(*sizes.tolist())


def word_matrix(
    alignment: NDArray[np.floating],
    source_words: Sequence[int],
    target_words: Sequence[int],
    counts: tuple[int, int],
) -> NDArray[np.floating]:
    """Turns attention between pieces into attention between words.

    A target word attends as its pieces do on average; the weights of the pieces of a
    source word are summed. EOS has neither row nor column: what is attended there is
    missing from the sums of the rows.

    Args:
        alignment: [T, S], as in `hard_links`.
        source_words: For each source piece, the number of the word it belongs to.
        target_words: The same for the target.
        counts: How many source words and target words there are; a word may have no
            piece.

    Returns:
        [target words, source words].
    """
    T, S = len(target_words), len(source_words)
    source = np.zeros((S, counts[0]))
    source[np.arange(S), list(source_words)] = 1
    target = np.zeros((counts[1], T))
    target[list(target_words), np.arange(T)] = 1
    share = target / np.maximum(target.sum(1, keepdims=True), 1)
    return share @ alignment[:T, :S] @ source


def _score(
    in_sure: float, in_possible: float, proposed: float, sure: float
) -> AlignmentScore:
    return AlignmentScore(
        aer=1.0 - share(in_sure + in_possible, proposed + sure),
        precision=share(in_possible, proposed),
        recall=share(in_sure, sure),
    )


def share(part: float, whole: float) -> float:
    """A part of the whole; of nothing it is 1."""
    return part / whole if whole else 1.0
