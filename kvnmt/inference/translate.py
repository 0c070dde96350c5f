# SPDX-License-Identifier: Apache-2.0
"""Whole corpora of ids or lines to their translations.

Sentences are sorted by length, batched in a fixed table of shapes and given back in
the order they came, so that a corpus compiles at most one program per shape. Every
device gets its share of a batch.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from kvnmt.data.batches import pad
from kvnmt.data.buckets import edge, in_batches
from kvnmt.data.vocabulary import EOS
from kvnmt.devices import own_mesh, replicate, split_rows
from kvnmt.errors import UserError
from kvnmt.inference.program import SearchConfig, compiled_search
from kvnmt.inference.trained import Trained
from kvnmt.models import Model, Params
from kvnmt.search import Hypotheses


class Translation(NamedTuple):
    """One translated sentence: ids without EOS, sums in nats."""

    ids: list[int]
    log_prob: float
    score: float


def translate(
    model: Model,
    params: Params,
    sentences: Sequence[Sequence[int]],
    config: SearchConfig = SearchConfig(),
    advance: Callable[[int], None] = lambda sentences: None,
    **where: Any,
) -> list[Translation]:
    """Translates sentences; an empty one stays empty. See `translate_nbest`."""
    found = translate_nbest(model, params, sentences, config, advance, **where)
    return [translations[0] for translations in found]


def translate_nbest(
    model: Model,
    params: Params,
    sentences: Sequence[Sequence[int]],
    config: SearchConfig = SearchConfig(),
    advance: Callable[[int], None] = lambda sentences: None,
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    first: int = 0,
    expected: int | None = None,
) -> list[list[Translation]]:
    """Translates sentences, each in several ways, best first.

    There may be fewer than ``config.nbest`` where no more exist; an empty sentence has
    one translation, which is empty.

    Args:
        model: The functions.
        params: The arrays.
        sentences: Source ids, without EOS.
        config: How to search.
        advance: Told of every batch how many sentences it held.
        prefixes: For every sentence the target ids that its translations begin with.
        first: The place of the first sentence in its corpus, which draws depend on.
        expected: How many sentences there are, if these are only the first of them.

    Raises:
        UserError: More translations are asked for than the beam holds, or coverage is
            to be scored where nothing is aligned.
    """
    _check(model, params, config)
    results = [[Translation([], 0.0, 0.0)] for _ in sentences]
    run, mesh = compiled_search(model, config), own_mesh()
    params = replicate(params, mesh)
    size, tokens = config.batch_size, config.batch_tokens
    shape = {"expected": expected, "multiple": mesh.size}
    for places, block in in_batches(sentences, size, tokens, **shape):
        numbers = np.zeros(len(block), np.int32)
        numbers[: len(places)] = places
        rows = block, numbers + first, *_prefix(prefixes, places, len(block))
        found = jax.device_get(run(params, *split_rows(rows, mesh)))
        for row, place in enumerate(places):
            results[place] = _translations(found, row, config.nbest)
        advance(len(places))
    return results


def translate_lines(
    run: Trained,
    lines: Sequence[str],
    config: SearchConfig = SearchConfig(),
    advance: Callable[[int], None] = lambda sentences: None,
) -> list[str]:
    """Translates lines of text; one line out per line in, in order."""
    words = run.vocabularies
    ids = [words.source.encode(line) for line in lines]
    translations = translate(run.model, run.params, ids, config, advance)
    return [words.target.decode(translation.ids) for translation in translations]


def _check(model: Model, params: Params, config: SearchConfig) -> None:
    if config.nbest > config.beam and not config.sample:
        raise UserError(
            f"--search.nbest is {config.nbest} but a beam of {config.beam} holds no "
            "more than that; widen --search.beam."
        )
    if config.coverage:
        word = jax.ShapeDtypeStruct((1, 1), np.int32)
        traced = jax.eval_shape(model.forward, params, word, word)
        if not traced.features.alignments:
            raise UserError(
                "--search.coverage needs an alignment, and this system has none."
            )


def _prefix(
    prefixes: Sequence[Sequence[int]] | None, places: Sequence[int], rows: int
) -> tuple[NDArray[np.int32], ...]:
    if prefixes is None:
        return ()
    given = [np.array(prefixes[place], np.int32) for place in places]
    return (pad(given, rows, edge(max(map(len, given)))),)


def _translations(found: Hypotheses, row: int, count: int) -> list[Translation]:
    """Those of one row that exist."""
    return [
        Translation(
            [int(i) for i in found.tokens[row, n] if i > EOS],
            float(found.log_probs[row, n]),
            float(found.scores[row, n]),
        )
        for n in range(count)
        if found.scores[row, n] > -math.inf
    ]
