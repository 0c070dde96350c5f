# SPDX-License-Identifier: Apache-2.0
"""Corpus BLEU, chrF and TER by sacrebleu, always with the signature that explains them.

BLEU: Papineni et al. 2002. chrF: Popović 2015, 2017. TER: Snover et al. 2006. Post 2018
tells why a score without its signature cannot be compared with another one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from kvnmt.data.scripts import eastern, unspaced
from kvnmt.errors import UserError, unknown_name

AT_ONCE = 20  # sentences whose edits are counted between two looks at the clock
WHOLE = {"13a", "none", "intl"}  # tokenizers that part no ideographs


def check_tokenizer(name: str) -> None:
    """Refuses a tokenizer that sacrebleu does not have.

    Raises:
        UserError: There is none of that name; the nearest is suggested.
    """
    if name not in BLEU.TOKENIZERS:
        raise unknown_name("BLEU tokenizer", name, BLEU.TOKENIZERS)


@dataclass(frozen=True)
class Score:
    """A corpus score against one reference per sentence, or several.

    Attributes:
        score: From 0 to 100; that of TER may be greater, and less is better.
        signature: sacrebleu's account of every choice that changes the score.
    """

    score: float
    signature: str


class Settings(NamedTuple):
    """How text is taken apart before n-grams are counted."""

    tokenize: str = "13a"  # of sacrebleu; "none": the text is tokenised already
    lowercase: bool = False


def corpus_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    more: Sequence[Sequence[str]] = (),
    tokenize: str = "13a",
    lowercase: bool = False,
) -> Score:
    """Scores sentences with BLEU-4, exponentially smoothed.

    Args:
        hypotheses: Translations, one string per sentence.
        references: Human translations of the same sentences.
        more: Further ones, by other people; a blank line is none.
        tokenize: A tokenizer of sacrebleu; ``"none"`` for text that is tokenized
            already.
        lowercase: Whether case is ignored.
    """
    check_counts(hypotheses, references, *more)
    metric = bleu_metric(Settings(tokenize, lowercase))
    result = metric.corpus_score(hypotheses, streams(references, more))
    return Score(result.score, str(metric.get_signature()))


def corpus_chrf(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    more: Sequence[Sequence[str]] = (),
    lowercase: bool = False,
    word_order: int = 0,
) -> Score:
    """Scores sentences with chrF2: character n-grams up to 6.

    Args:
        hypotheses: Translations, one string per sentence.
        references: Human translations of the same sentences.
        more: Further ones, by other people; a blank line is none.
        lowercase: Whether case is ignored.
        word_order: Up to which number of words there are n-grams, too; 2: chrF2++.
    """
    check_counts(hypotheses, references, *more)
    metric = CHRF(lowercase=lowercase, word_order=word_order)
    result = metric.corpus_score(hypotheses, streams(references, more))
    return Score(result.score, str(metric.get_signature()))


def corpus_ter(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    more: Sequence[Sequence[str]] = (),
    lowercase: bool = False,
    advance: Callable[[int], object] = lambda count: None,
) -> Score:
    """Scores sentences with TER: edits for 100 words of the references.

    Ideographs of text without spaces count as words; Thai and the like has none.
    ``advance`` is told how many more were scored, now and then: they take their time.
    """
    check_counts(hypotheses, references, *more)
    cut = unspaced(references) and eastern(references)
    # Either of the first two does nothing of this without the other.
    choices: Any = {"normalized": cut, "asian_support": cut}
    choices["case_sensitive"] = not lowercase
    metric, edits, words = TER(**choices), 0.0, 0.0
    for start in range(0, len(hypotheses), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        right = streams(references[some], [lines[some] for lines in more])
        part = metric.corpus_score(hypotheses[some], right)
        edits, words = edits + part.num_edits, words + part.ref_length
        advance(len(hypotheses[some]))
    share = edits / words if words else float(edits > 0)
    whole = TER(**choices, references=streams(references, more))  # which it counts
    return Score(100 * share, str(whole.get_signature()))


def sentence_chrf(hypothesis: str, reference: str) -> float:
    """Scores one sentence with chrF2; two empty ones are alike: 100.

    A corpus of nothing has 0, as sacreBLEU says.
    """
    if hypothesis.split() == reference.split():
        return 100.0
    return CHRF().sentence_score(hypothesis, [reference]).score


def sentence_statistics(
    hypotheses: Sequence[str],
    references: Sequence[str],
    settings: Settings = Settings(),
    more: Sequence[Sequence[str]] = (),
) -> NDArray[np.int64]:
    """Counts what BLEU is made of, sentence by sentence.

    Args:
        hypotheses: Translations.
        references: Human translations of the same sentences.
        settings: How text is taken apart.
        more: Further references.

    Returns:
        [sentences, 10]: of each order 1 to 4 the n-grams that a reference has too,
        then of each order all n-grams, then the lengths of hypothesis and reference,
        of several the nearest.
        The sum over sentences gives corpus BLEU: see `summed_bleu`, and `bleu_of`.
    """
    counts = sentence_counts(_shared(settings), hypotheses, references, more)
    return np.roll(counts, -2, axis=1)  # sacrebleu has the lengths first


@lru_cache(maxsize=8)
def _shared(settings: Settings) -> BLEU:
    """One for all that is counted: sacrebleu keeps each tokenizer that was used."""
    return bleu_metric(settings)


def sentence_counts(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[str],
    more: Sequence[Sequence[str]] = (),
) -> NDArray[np.int64]:
    """What a metric of sacrebleu counts, sentence by sentence, in its own order."""
    check_counts(hypotheses, references, *more)
    # Not public, but there is no other way to its counts.
    rows = metric._extract_corpus_statistics(hypotheses, streams(references, more))
    return np.array(rows, np.int64)


def summed_bleu(statistics: NDArray[np.integer]) -> float:
    """BLEU of `sentence_statistics` summed over a corpus, smoothed as `corpus_bleu`."""
    return _compute(statistics.tolist(), effective_order=False)


def sentence_bleu(statistics: NDArray[np.integer]) -> NDArray[np.floating]:
    """BLEU of every sentence by itself, smoothed as sacrebleu's sentence BLEU."""
    return np.array(
        [_compute(row, effective_order=True) for row in statistics.tolist()]
    )


def _compute(counts: list[int], effective_order: bool) -> float:
    return BLEU.compute_bleu(
        correct=counts[:4],
        total=counts[4:8],
        sys_len=counts[8],
        ref_len=counts[9],
        smooth_method="exp",
        effective_order=effective_order,
    ).score


def bleu_of(statistics: NDArray[np.integer]) -> NDArray[np.floating]:
    """BLEU-4 without smoothing, 0 to 100, of summed `sentence_statistics`.

    Args:
        statistics: [..., 10]; all corpora are scored at once.
    """
    correct, total = statistics[..., :4], statistics[..., 4:8]
    length, wanted = statistics[..., 8], statistics[..., 9]
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(total > 0, correct / np.maximum(total, 1), 0.0)
        brevity = np.minimum(0.0, 1 - wanted / length)  # a logarithm
        score = 100 * np.exp(brevity + np.log(precision).mean(-1))
    return np.where(length > 0, score, 0.0)


def bleu_metric(settings: Settings) -> BLEU:
    """Makes the metric of sacrebleu.

    Raises:
        UserError: There is no such tokenizer, or it cannot be used here.
    """
    check_tokenizer(settings.tokenize)
    try:
        # `force` only silences the advice given about text that looks tokenized.
        return BLEU(
            tokenize=settings.tokenize, lowercase=settings.lowercase, force=True
        )
    except Exception as error:
        # Some tokenizers need a package, or a model that is fetched at first use; the
        # libraries behind them raise what they like.
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise UserError(
            f"the BLEU tokenizer '{settings.tokenize}' cannot be used here: {reason}."
        ) from error


def mistaken(lines: Sequence[str], tokenize: str) -> tuple[str, str] | None:
    """Says that BLEU seems to cut text in a way that is not meant for it.

    Args:
        lines: References.
        tokenize: A tokenizer of sacrebleu.

    Returns:
        What is wrong, as a part of a sentence, and what to give instead.
    """
    blind, instead = WHOLE, "zh, ja-mecab, ko-mecab or char"
    if not eastern(lines):  # but Thai or the like, if anything
        blind, instead = {*WHOLE, "zh"}, "char or flores200"
    if tokenize in blind and unspaced(lines):
        what = "references have no spaces between words, so that BLEU by "
        return f"{what}{tokenize} compares whole lines or parts of them", instead
    ends = sum(line.endswith(" .") for line in lines)
    if tokenize != "13a" or 2 * ends < len(lines) or not ends:
        return None
    return (
        "most references end in ' .', as tokenised text does, and BLEU by 13a is of "
        "text as people write it",
        "none, or text that is not",
    )


def streams(
    references: Sequence[str], more: Sequence[Sequence[str]]
) -> list[Sequence[Any]]:
    """All references as sacrebleu takes them: None where one is not there.

    A blank line is no reference: it would have no words, and no translation is shorter.
    If all references of a sentence are blank, they count.
    """
    rows = [
        [line if line.strip() or not "".join(row).strip() else None for line in row]
        for row in zip(references, *more)
    ]
    return [*map(list, zip(*rows))]


def check_counts(hypotheses: Sequence[str], *references: Sequence[str]) -> None:
    """Refuses texts of different length, and none at all.

    Raises:
        UserError: The numbers of lines differ, or there is no line.
    """
    for lines in references:
        if len(hypotheses) != len(lines):
            raise UserError(
                f"there are {len(hypotheses)} hypotheses but {len(lines)} references; "
                "line n of one must translate line n of the other."
            )
    if not hypotheses:
        raise UserError("there is no sentence to score; the hypotheses are empty.")
