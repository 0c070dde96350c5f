# SPDX-License-Identifier: Apache-2.0
"""Times translating for every beam and batch; a batch of one shows latency.

The models are not trained. So that this changes nothing, every translation goes on
until it has as many words as its source. The work for a word is measured, and the
effect of different lengths in a batch, but not how early a search may stop. The time is
what a user waits, from ids to ids, with the work of the host.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax

from kvnmt import devices
from kvnmt.benchmark.config import BenchmarkConfig
from kvnmt.benchmark.rounds import Lane, Spread, per_second, spread
from kvnmt.benchmark.training import build, random_batch
from kvnmt.data.vocabulary import EOS
from kvnmt.errors import UserError
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.shortlist import of_all
from kvnmt.inference.trained import KEPT
from kvnmt.inference.translate import Translation, translate


@dataclass(frozen=True)
class DecodingRow:
    """Figures of one system with one beam and one batch."""

    system: str
    beam: int
    batch: int
    compile_seconds: float  # with the first batch
    batch_seconds: Spread  # until all of it is translated
    sentences_per_second: Spread
    words_per_second: Spread  # of the translations
    relative: Spread  # to the first system, round by round


class Decoder(NamedTuple):
    """A search of one system, ready to run."""

    system: str
    beam: int
    batch: int
    compile_seconds: float
    words: int  # of all translations together
    lane: Lane


def decoders(
    config: BenchmarkConfig, advance: Callable[[str], None] = lambda what: None
) -> list[Decoder]:
    """Compiles the searches of a config, all of the first system first."""
    ready = []
    shortlist = None
    if config.candidates:
        sizes = config.vocabulary, config.vocabulary
        shortlist = of_all(config.candidates, sizes)
    for name in config.systems:
        model = build(config, name)
        params = model.init(jax.random.key(config.seed))
        params = devices.replicate(params, devices.own_mesh())
        for beam in config.beams:
            for batch in config.batches:
                advance(f"compiling {name}, beam {beam}, batch {batch}")
                sentences = random_sentences(config, batch)
                run = partial(
                    translate,
                    model,
                    params,
                    sentences,
                    search(beam, sentences),
                    shortlist=shortlist,
                )
                start = time.perf_counter()
                translations = run()
                seconds = time.perf_counter() - start
                words = sum(len(each.ids) for each in translations)
                lane = Lane(partial(_again, run))
                ready.append(Decoder(name, beam, batch, seconds, words, lane))
    return ready


def check_programs(config: BenchmarkConfig) -> None:
    """Refuses more searches than a process keeps: each would compile in every round.

    Raises:
        UserError: There are more.
    """
    models = {build(config, name) for name in config.systems}
    if config.decode and len(models) * len(set(config.beams)) > KEPT:
        raise UserError(
            f"{len(models)} models with {len(set(config.beams))} --beams are more than "
            f"{KEPT} searches; name fewer --systems or --beams at a time."
        )


def random_sentences(config: BenchmarkConfig, batch: int) -> list[list[int]]:
    """Source sentences as long as those that are trained on, without EOS."""
    rows = random_batch(replace(config, batch_size=batch)).source
    return [[int(word) for word in row if word > EOS] for row in rows]


def search(beam: int, sentences: Sequence[Sequence[int]]) -> SearchConfig:
    """A search in one batch whose translations are as long as their sources."""
    longest = max(map(len, sentences))
    return SearchConfig(
        beam=beam,
        batch_size=len(sentences),
        batch_tokens=len(sentences) * (2 * longest + 100),  # padded, all the same
        length_ratio=1.0,
        length_extra=1,  # EOS
        min_length=longest,
    )


def decoding_rows(
    ready: Sequence[Decoder], times: Sequence[Sequence[float]]
) -> list[DecodingRow]:
    """The figures of searches, from the seconds of every round of each."""
    first = {
        (decoder.beam, decoder.batch): seconds
        for decoder, seconds in reversed(list(zip(ready, times)))
    }
    rows = []
    for decoder, seconds in zip(ready, times):
        base = first[decoder.beam, decoder.batch]
        lasting = spread(seconds)
        rows.append(
            DecodingRow(
                system=decoder.system,
                beam=decoder.beam,
                batch=decoder.batch,
                compile_seconds=decoder.compile_seconds,
                batch_seconds=lasting,
                sentences_per_second=per_second(decoder.batch, lasting),
                words_per_second=per_second(decoder.words, lasting),
                relative=spread([a / b for a, b in zip(base, seconds)]),
            )
        )
    return rows


def _again(run: Callable[[], list[Translation]], last: object) -> None:
    del last
    run()
