# SPDX-License-Identifier: Apache-2.0
"""How translations are searched for, and what a compiled search makes of it.

A field of `SearchConfig` that changes a shape, or decides what is computed at all, is
in the `Shape`: another value needs another program. A field that only enters the
computation is in the `Numbers`, which a program takes when it runs: another value
compiles nothing. The sizes of batches are used where batches are made, ``mbr`` where
one of the translations is chosen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.buckets import BATCH_SIZE, BATCH_TOKENS
from kvnmt.errors import Idle, OptionError, check_given
from kvnmt.fields import DEEPEST, between, check_fields
from kvnmt.typing import Array

MOST = 2**31 - 1  # that a program takes
GREATEST = 10_000  # sentences at a time
MOST_TOKENS = 2**24  # source positions at a time
DRAWING = "temperature", "top_k", "top_p", "seed"  # what is for drawing words alone
ROUNDING = 1e-9  # a product that is a whole number may be less by this

# No more than arrays of a search can be made for: a config may come from elsewhere.
Count: TypeAlias = Annotated[int, between(1, GREATEST)]
Width: TypeAlias = Annotated[int, between(1, 1000)]
Limit: TypeAlias = Annotated[int | None, between(1, 100_000)]
Total: TypeAlias = Annotated[int, between(1, MOST_TOKENS)]
Ratio: TypeAlias = Annotated[float, between(0, 100)]
Extra: TypeAlias = Annotated[int, between(1, 100_000)]
Share: TypeAlias = Annotated[float, between(0.001, 1)]
Heat: TypeAlias = Annotated[float, between(0.001, 10**6)]
Weight: TypeAlias = Annotated[float, between(0, 1000)]
Exponent: TypeAlias = Annotated[float, between(0, 7)]  # 100 000**7 is a float32
Number: TypeAlias = Array | float


@dataclass(frozen=True)
class SearchConfig:
    """How translations are searched for."""

    beam: Width = 10  # hypotheses that are kept; 1: greedy
    sample: bool = False  # draw words instead; each sentence has its own draws
    temperature: Heat = 1.0  # for drawing words; below 1: more probable ones
    top_k: Limit = None  # draw only from so many likeliest words
    top_p: Share = 1.0  # draw from the likeliest words that reach this probability
    seed: Annotated[int, between(0, MOST)] = 1  # seed for drawing words
    normalization: Literal["gnmt", "length", "none"] = "gnmt"  # how log P is normalised
    # exponent of normalization: ((5 + n) / 6) ** alpha in gnmt, n ** alpha in length
    alpha: Exponent = 1.0
    coverage: Weight = 0.0  # weight of the coverage penalty of Wu et al. (2016)
    diversity: Weight = 0.0  # nats that a continuation loses per better sibling
    length_ratio: Ratio = 1.5  # most target tokens per source token, plus length_extra
    length_extra: Extra = 10  # target tokens allowed beyond length_ratio, with EOS
    max_length: Limit = None  # most target words, whatever the source
    # fewest target words, as far as the upper bounds allow
    min_length: Annotated[int, between(0, MOST)] = 0
    unknown: bool = True  # the unknown word may be written
    # a translation has no n-gram of so many tokens twice; None: it may
    no_repeat_ngram_size: Annotated[int | None, between(1, DEEPEST)] = None
    nbest: Width = 1  # translations per sentence, at most as many as the beam
    # choose, of nbest translations, the one most like the others (minimum Bayes risk);
    # each is weighted by its probability to this power; 0: all count the same
    mbr: Annotated[float | None, between(0, 1)] = None
    batch_size: Count = BATCH_SIZE  # most sentences at a time
    batch_tokens: Total = BATCH_TOKENS  # most source positions at a time, padding too

    @property
    def limits(self) -> tuple[int, int]:
        """The most sentences and positions of a batch, also in forced decoding."""
        return self.batch_size, self.batch_tokens


def check_search(config: SearchConfig) -> None:
    """Refuses options of which no search can be made.

    Raises:
        OptionError: A number is out of its bounds, or more translations are asked for
            than the beam holds.
    """
    check_fields(config, "search.")
    if config.nbest > config.beam and not config.sample:
        raise OptionError(
            f"{{0}} is {config.nbest} but a beam of {config.beam} holds no more than "
            "that; widen {1} or lower {0}.",
            *("nbest", "beam"),
            prefix="search.",
        )


def check_asked(config: SearchConfig, *starts: SearchConfig) -> None:
    """Refuses options that somebody gave though a search does nothing with them.

    Args:
        config: The options.
        starts: Configs that the options may come from, such as a run's or the default.
            An option that has the same value in one of them was not given.

    Raises:
        OptionError: An option has no effect beside the others, or contradicts them.
    """
    check_given(config, _idle(config), *starts, prefix="search.")


def check_one(config: SearchConfig, start: SearchConfig, used: str) -> None:
    """Refuses several translations where only the best is used and ``mbr`` is not set.

    Args:
        config: The options.
        start: Those that they were made from.
        used: What is done with the one.

    Raises:
        OptionError: Somebody asked for several.
    """
    if config.mbr is None:
        why = f"{{0}} is of several translations, and one is {used}; {{1}} chooses it."
        one = Idle(("nbest",), why, ("mbr",))
        check_given(config, [one], start, SearchConfig(), prefix="search.")


def check_unsearched(
    config: SearchConfig, start: SearchConfig, why: str, reads: bool = False
) -> None:
    """Refuses to choose a search where nothing is searched for.

    Args:
        config: The options.
        start: Those that they were made from.
        why: With ``{0}`` in the place of the option that was given.
        reads: Whether translations are read, in batches of the size that is given.

    Raises:
        OptionError: Somebody chose one.
    """
    used = ("batch_size", "batch_tokens") if reads else ()
    names = tuple(each.name for each in fields(config) if each.name not in used)
    check_given(config, [Idle(names, why)], start, prefix="search.")


def _idle(config: SearchConfig) -> Iterator[Idle]:
    """What does nothing beside the other options."""
    if not config.sample:
        yield Idle(DRAWING, "{0} is for drawing words; give {1} too.", ("sample",))
        if config.beam == 1:
            why = "{0} is for several hypotheses; widen {1}."
            yield Idle(("diversity",), why, ("beam",))
    else:
        why = "{0} is of a beam, and {1} draws; {2} says how many translations."
        several = ("beam",) if config.beam > 1 else ()  # a beam of one is no beam
        yield Idle((*several, "diversity"), why, ("sample", "nbest"))
    if config.nbest == 1:
        why = "{0} chooses among several translations; say of how many with {1}."
        yield Idle(("mbr",), why, ("nbest",))
    if config.normalization == "none":
        why = "{0} is an exponent of {1}, which is none; choose gnmt or length."
        yield Idle(("alpha",), why, ("normalization",))
    if config.max_length is not None and config.min_length > config.max_length:
        lengths = "min_length", "max_length"
        why = (
            f"{{1}} is {config.min_length} but {{2}} {config.max_length}; lower the "
            "first or raise the second."
        )
        yield Idle(lengths, why, lengths)


@dataclass(frozen=True)
class Shape:
    """What decides which program a search is."""

    beam: int
    sample: bool
    top_k: int | None
    cut: bool  # draws are cut by `top_p`
    covered: bool  # coverage is scored
    diverse: bool  # better siblings cost something
    length_ratio: float
    length_extra: int
    max_length: int | None
    unknown: bool
    no_repeat_ngram_size: int | None
    nbest: int

    @property
    def width(self) -> int:
        """How many hypotheses of a sentence are alive."""
        return self.nbest if self.sample else self.beam


def longest(search: Shape | SearchConfig, count: int) -> NDArray[np.int64]:
    """How many words the translations of 0, 1, ... source tokens may get, with EOS.

    Args:
        search: Has the bounds.
        count: How many entries are wanted.
    """
    # In float64, since in float32 0.42 times 150 words would be a word short.
    products = search.length_ratio * np.arange(count) + ROUNDING
    limits = np.floor(products).astype(np.int64) + search.length_extra
    most = search.max_length
    return limits if most is None else np.minimum(limits, most + 1)


class Numbers(NamedTuple):
    """What a program takes of a config when it runs."""

    offset: Number  # of the length normalisation
    alpha: Number
    coverage: Number
    diversity: Number
    temperature: Number
    top_p: Number
    seed: Number
    minimum: Number  # fewest words


def shape_of(config: SearchConfig) -> Shape:
    """The part of a config that decides the program."""
    return Shape(
        beam=config.beam,
        sample=config.sample,
        top_k=config.top_k,
        cut=config.top_p < 1,
        covered=config.coverage > 0,
        diverse=config.diversity > 0,
        length_ratio=config.length_ratio,
        length_extra=config.length_extra,
        max_length=config.max_length,
        unknown=config.unknown,
        no_repeat_ngram_size=config.no_repeat_ngram_size,
        nbest=config.nbest,
    )


def numbers_of(config: SearchConfig) -> Numbers:
    """The part of a config that the program computes with."""
    return Numbers(
        offset=5.0 if config.normalization == "gnmt" else 0.0,
        alpha=0.0 if config.normalization == "none" else float(config.alpha),
        coverage=float(config.coverage),  # a whole number would be another program
        diversity=float(config.diversity),
        temperature=float(config.temperature),
        top_p=float(config.top_p),
        seed=config.seed,
        minimum=config.min_length,
    )
