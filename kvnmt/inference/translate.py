# SPDX-License-Identifier: Apache-2.0
"""Whole corpora of ids or lines to their translations.

Sentences are sorted by length, batched in a fixed table of shapes and given back in
the order they came, so that a corpus compiles at most one program per shape. Every
device gets its share of a batch.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypedDict, Unpack

import jax
import numpy as np
from numpy.typing import NDArray

from kvnmt.data.batches import pad
from kvnmt.data.buckets import edge, in_batches
from kvnmt.data.vocabulary import EOS
from kvnmt.devices import one_behind, own_mesh, replicate, split_rows
from kvnmt.inference.config import SearchConfig, check_search
from kvnmt.inference.consensus import most_alike
from kvnmt.inference.ids import check_counts, check_ids
from kvnmt.inference.nearest import Nearest
from kvnmt.inference.program import compiled_search
from kvnmt.inference.shortlist import Shortlist, check_shortlist
from kvnmt.inference.trained import Trained
from kvnmt.inference.unknown_words import replace_unknown
from kvnmt.model.assembly import Model, Params
from kvnmt.search import Hypotheses


class Translation(NamedTuple):
    """One translated sentence: ids without EOS, sums in nats."""

    ids: list[int]
    log_prob: float
    score: float


NOTHING = Translation([], -math.inf, -math.inf)


class SearchBlock(NamedTuple):
    """What is searched at once."""

    places: list[int]  # in the corpus, of the first rows; the others are padding
    # ids, numbers, prefixes and which of the words each may write
    rows: tuple[NDArray[np.integer | np.bool] | None, ...]
    words: NDArray[np.integer] | None  # that any of them may write; None: all


class Request(TypedDict, total=False):
    """What else may be asked for; all have defaults."""

    # For every sentence the target ids that its translations begin with.
    prefixes: Sequence[Sequence[int]] | None
    # What may be written, of the same vocabularies; None: everything.
    shortlist: Shortlist | None
    # Of every sentence, which draws depend on; None: their places, from 0.
    numbers: Sequence[int] | None
    expected: int | None  # how many sentences there are, if these are only the first


def translate(
    model: Model,
    params: Params,
    sentences: Sequence[Sequence[int]],
    config: SearchConfig = SearchConfig(),
    advance: Callable[[int], None] = lambda sentences: None,
    **request: Unpack[Request],
) -> list[Translation]:
    """Translates sentences; an empty one stays empty. See `translate_nbest`."""
    best = for_the_best(config)
    translations = translate_nbest(model, params, sentences, best, advance, **request)
    return [ways[0] for ways in translations]


def for_the_best(config: SearchConfig) -> SearchConfig:
    """The same search where nobody sees other translations, for which a beam waits.

    Raises:
        UserError: What `check_search` raises.
    """
    check_search(config)
    if config.sample or config.mbr is not None:
        return config  # the best is chosen among them
    return replace(config, nbest=1)


def translate_nbest(
    model: Model,
    params: Params,
    sentences: Sequence[Sequence[int]],
    config: SearchConfig = SearchConfig(),
    advance: Callable[[int], None] = lambda sentences: None,
    **request: Unpack[Request],
) -> list[list[Translation]]:
    """Translates sentences, each in several ways, best first.

    With ``config.mbr`` the one that is most like the others comes first. There may be
    fewer than ``config.nbest`` if no more exist. An empty sentence has one translation,
    which is empty; so has every sentence if the model gives no word a finite
    probability.

    Args:
        model: The functions.
        params: The arrays.
        sentences: Source ids, without EOS.
        config: How to search.
        advance: Called after every batch, once the next is sent off, with how many
            sentences it held.
        **request: What else is asked for.

    Raises:
        UserError: A number of the config is out of its bounds, more translations are
            asked for than the beam holds, coverage is to be scored where nothing is
            aligned, the shortlist is of other words, or an id is no word.
    """
    search, mesh = compiled_search(model, config), own_mesh()
    if (shortlist := request.get("shortlist")) is not None:
        check_shortlist(shortlist, model.source_words, model.target_words)
    check_ids(sentences, model.source_words, "source sentence")
    if (numbers := request.get("numbers")) is not None:
        check_counts(len(sentences), "sentences", len(numbers), "numbers")
    if (prefixes := request.get("prefixes")) is not None:
        check_counts(len(sentences), "sentences", len(prefixes), "prefixes")
        check_ids(prefixes, model.target_words, "prefix")
    translations = [[Translation([], 0.0, 0.0)] for _ in sentences]
    params = replicate(params, mesh)

    sent = (
        (places, search(params, *split_rows(rows, mesh), words=words))
        for places, rows, words in search_blocks(sentences, config, **request)
    )
    for places, found in one_behind(sent):
        hypotheses = jax.device_get(found)
        for row, place in enumerate(places):
            several = _translations(hypotheses, row, config.nbest)
            translations[place] = _chosen_first(several, config.mbr) or [NOTHING]
        advance(len(places))
    return translations


def search_blocks(
    sentences: Sequence[Sequence[int]],
    config: SearchConfig,
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    shortlist: Shortlist | None = None,
    numbers: Sequence[int] | None = None,
    expected: int | None = None,
) -> Iterator[SearchBlock]:
    """The blocks that `translate_nbest` searches one by one, from the same arguments.

    The shapes of their rows and words decide which programs are needed.
    """
    for places, block in in_batches(
        sentences, *config.limits, expected=expected, multiple=own_mesh().size
    ):
        drawn = np.zeros(len(block), np.int32)
        chosen = places if numbers is None else [numbers[n] for n in places]
        drawn[: len(places)] = chosen
        prefix = _prefix(prefixes, places, len(block))
        words, allowed = None, None
        if shortlist is not None:
            words, allowed = shortlist.candidates(block, prefix)
        yield SearchBlock(places, (block, drawn, prefix, allowed), words)


def _chosen_first(ways: list[Translation], mbr: float | None) -> list[Translation]:
    """Moves the choice of minimum Bayes risk decoding to the front."""
    if mbr is None or len(ways) < 2:
        return ways
    ids, log_probs = [way.ids for way in ways], [way.log_prob for way in ways]
    place = most_alike(ids, log_probs, mbr)
    return [ways[place], *ways[:place], *ways[place + 1 :]]


def translate_lines(
    run: Trained,
    lines: Sequence[str],
    config: SearchConfig = SearchConfig(),
    advance: Callable[[int], None] = lambda sentences: None,
    *,
    dictionary: Mapping[str, str] | None = None,
    begun: Sequence[str] | None = None,
    nearest: Nearest | None = None,
    **request: Unpack[Request],
) -> list[str]:
    """Translates lines of text; one line out per line in, in order.

    Args:
        run: The trained model.
        lines: What is translated.
        config: How to search.
        advance: Called after every batch with how many sentences it held.
        dictionary: Translations of source words, for unknown words; see
            `replace_unknown`, and `check_replaceable` first. None: unknown words are
            left as they are.
        begun: The prefixes as text, whose unknown words are written all the same.
        nearest: Which of ``config.nbest`` translations is taken. None: the best.
        **request: What else is asked for.
    """
    source = [run.vocabularies.source.encode(line) for line in lines]
    # One that compares the others with each other would choose, too.
    search = replace(config, mbr=None) if nearest else for_the_best(config)
    translations = translate_nbest(
        run.model, run.params, source, search, advance, **request
    )
    decode = run.vocabularies.target.decode
    hypotheses = [ways[0].ids for ways in translations]
    if nearest is not None:
        texts = ([decode(way.ids) for way in ways] for ways in translations)
        places = (nearest.choose(n, some) for n, some in enumerate(texts))
        hypotheses = [ways[n].ids for ways, n in zip(translations, places)]
    if dictionary is not None:
        return replace_unknown(run, lines, hypotheses, dictionary, begun, config.limits)
    return [decode(ids) for ids in hypotheses]


def _prefix(
    prefixes: Sequence[Sequence[int]] | None, places: Sequence[int], rows: int
) -> NDArray[np.int32] | None:
    if prefixes is None:
        return None
    forced = [np.array(prefixes[place], np.int32) for place in places]
    return pad(forced, rows, edge(max(map(len, forced))))


def _translations(hypotheses: Hypotheses, row: int, count: int) -> list[Translation]:
    """Those of one row that exist."""
    tokens = hypotheses.tokens[row, :count]
    figures = hypotheses.log_probs[row, :count], hypotheses.scores[row, :count]
    return [
        Translation(ids[ids > EOS].tolist(), float(log_prob), float(score))
        for ids, log_prob, score in zip(tokens, *figures)
        if score > -math.inf
    ]
