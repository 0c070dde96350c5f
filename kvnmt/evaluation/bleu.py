# SPDX-License-Identifier: Apache-2.0
"""Corpus BLEU and chrF by sacrebleu, always with the signature that explains them.

BLEU: Papineni et al. 2002. chrF: Popović 2015. Post 2018 tells why a score without
its signature cannot be compared with another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from kvnmt.errors import UserError, unknown_name


def check_tokenizer(name: str) -> None:
    """Refuses a tokenizer that sacrebleu does not have.

    Raises:
        UserError: There is none of that name; the nearest is suggested.
    """
    if name not in BLEU.TOKENIZERS:
        raise unknown_name("BLEU tokenizer", name, BLEU.TOKENIZERS)


@dataclass(frozen=True)
class Score:
    """A corpus score against one reference per sentence.

    Attributes:
        score: From 0 to 100.
        signature: sacrebleu's account of every choice that changes the score.
        length_ratio: Length of the hypotheses over that of the references: in tokens
            of the tokenizer for BLEU, in non-blank characters for chrF. It is 0
            where the references are blank.
    """

    score: float
    signature: str
    length_ratio: float


def corpus_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> Score:
    """Scores sentences with BLEU-4, exponentially smoothed.

    Args:
        hypotheses: Translations, one string per sentence.
        references: Human translations of the same sentences.
        tokenize: A tokenizer of sacrebleu; ``"none"`` for text that is tokenized
            already.
        lowercase: Whether case is ignored.
    """
    _check_counts(hypotheses, references)
    check_tokenizer(tokenize)
    try:
        # `force` only silences the advice given about text that looks tokenized.
        metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    except (ImportError, OSError, RuntimeError) as error:
        # Some tokenizers need a package, or a model that is fetched at first use.
        reason = " ".join(str(error).split())
        raise UserError(
            f"the BLEU tokenizer '{tokenize}' cannot be used here: {reason}"
        ) from error
    result = metric.corpus_score(hypotheses, [references])
    return Score(result.score, str(metric.get_signature()), result.ratio)


def corpus_chrf(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> Score:
    """Scores sentences with chrF2: character n-grams up to 6, no word n-grams."""
    _check_counts(hypotheses, references)
    metric = CHRF(lowercase=lowercase)
    result = metric.corpus_score(hypotheses, [references])
    characters = _count_characters(references)
    ratio = _count_characters(hypotheses) / characters if characters else 0.0
    return Score(result.score, str(metric.get_signature()), ratio)


def _check_counts(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise UserError(
            f"there are {len(hypotheses)} hypotheses but {len(references)} references; "
            "line n of one must translate line n of the other"
        )
    if not hypotheses:
        raise UserError("there is no sentence to score; the hypotheses are empty")


def _count_characters(sentences: Sequence[str]) -> int:
    return sum(len("".join(sentence.split())) for sentence in sentences)
