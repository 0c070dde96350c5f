# SPDX-License-Identifier: Apache-2.0
"""What preparing and batching a large corpus costs, measured on made-up text.

Claim: a corpus as large as the papers' (5.6 million pairs) is prepared in a time that
does not matter compared with training, is planned in seconds and stays out of memory;
batches come faster than an accelerator asks for them. Sentences are words drawn by
Zipf's law; their lengths are log-normal, as those of news are, and the target's is the
source's times a log-normal factor. Results: docs/performance.md.

Launch::

    python -m experiments.large_corpus
    python -m experiments.large_corpus --pairs 100000 --vocabulary bpe
"""

import itertools
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.table import Table

from kvnmt.console import counting, print_table
from kvnmt.data import prepare, sources
from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import prepare_train
from kvnmt.data.plan import Plan, by_pairs, by_tokens
from kvnmt.data.stream import BatchAt, stream
from kvnmt.errors import run_program
from kvnmt.fields import at_least, check_fields

AT_ONCE = 100_000  # sentences made at a time


@dataclass(frozen=True)
class LargeCorpus:
    """Options of the experiment."""

    folder: Path = Path("runs/data")  # where text and ids are written
    pairs: Annotated[int, at_least(1)] = 5_600_000
    vocabulary: Literal["words", "bpe", "characters"] = "words"
    workers: Annotated[int | None, at_least(0)] = None  # processes to prepare
    batch_workers: Annotated[int, at_least(0)] = 0  # processes to make batches
    words: Annotated[int, at_least(1)] = 200_000  # different words of the text
    # target tokens that an accelerator takes
    tokens_per_second: Annotated[int, at_least(1)] = 1_000_000
    batches: Annotated[int, at_least(1)] = 2_000  # batches in the measurement
    seed: int = 1


def write_text(options: LargeCorpus) -> tuple[Path, Path]:
    """Writes the text of both sides, unless it is there."""
    folder = options.folder
    name = f"{options.pairs}-{options.words}-{options.seed}"
    paths = tuple(folder / f"{name}.{side}" for side in ("source", "target"))
    parts = tuple(path.with_name(f"{path.name}.part") for path in paths)
    if not all(path.exists() for path in paths):
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(options.seed)
        with counting("text", options.pairs) as advance:
            with parts[0].open("wb") as x, parts[1].open("wb") as y:
                for start in range(0, options.pairs, AT_ONCE):
                    count = min(AT_ONCE, options.pairs - start)
                    source = np.exp(random.normal(3.05, 0.58, count))
                    target = source * np.exp(random.normal(0.03, 0.15, count))
                    for file, lengths in ((x, source), (y, target)):
                        file.write(_sentences(options, random, lengths))
                    advance(count)
        for part, path in zip(parts, paths):
            part.replace(path)
    return paths[0], paths[1]


def _sentences(
    options: LargeCorpus, random: np.random.Generator, lengths: NDArray[np.floating]
) -> bytes:
    sizes = lengths.round().clip(1, 200).astype(int)
    ranks = random.zipf(1.15, sizes.sum()) % options.words
    ends = np.cumsum(sizes)
    words = [_word(int(rank)) for rank in ranks]
    starts = zip(ends - sizes, ends)
    return "".join(" ".join(words[i:j]) + "\n" for i, j in starts).encode()


def _word(rank: int) -> str:
    """A word of its own for every rank, the shorter the more frequent."""
    letters = ""
    while rank or not letters:
        rank, letter = divmod(rank, 20)
        letters += "bcdfghjklmnpqrstvwxz"[letter] + "aeiou"[letter % 5]
    return letters


def main(options: LargeCorpus) -> None:
    """Measures and prints a table."""
    check_fields(options)
    source, target = write_text(options)
    with TemporaryDirectory(dir=options.folder, prefix="cache-") as cache:
        config = DataConfig(
            source=source,
            target=target,
            vocabulary=options.vocabulary,
            cache=Path(cache),
            workers=options.workers,
        )
        print_table(measure(options, config))


def measure(options: LargeCorpus, config: DataConfig) -> Table:
    """Prepares, plans and makes batches, with an empty cache."""
    table = Table("what", "figure", box=None)
    clock, before = time.monotonic(), _cpu()
    corpus = prepare_train(config)
    seconds, cpu = time.monotonic() - clock, _cpu() - before
    rate = options.pairs / seconds
    workers = prepare.workers_for(config, sources.open_text(config, "train"))
    table.add_row("pairs", f"{options.pairs:,}, {len(corpus.train.source):,} kept")
    table.add_row(
        "preparing", f"{seconds:.0f} s, {rate:,.0f} pairs/s, {workers} workers"
    )
    table.add_row("  of a core", f"{options.pairs / cpu:,.0f} pairs/s")
    clock = time.monotonic()
    again = prepare_train(config)
    table.add_row("finding it again", f"{time.monotonic() - clock:.1f} s")
    lengths = again.train.lengths
    for count in (8, 12, 16, 24):
        _add_plan(
            table, f"4,096 tokens, {count} shapes", by_tokens(lengths, 4096, count)
        )
    clock = time.monotonic()
    plan = by_tokens(lengths, 4096, 12)
    table.add_row("choosing 12 shapes", f"{time.monotonic() - clock:.1f} s")
    pairs = by_pairs(lengths, 80, 12).with_all_shapes()
    _add_plan(table, "80 pairs, 12 shapes", pairs)
    _eat(options, BatchAt(again.train, plan, options.seed), table)
    return table


def _cpu() -> float:
    """Processor seconds of this process and of those that it started."""
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)


def _add_plan(table: Table, name: str, plan: Plan) -> None:
    clock = time.monotonic()
    epoch = plan.epoch(1, 0)
    seconds = time.monotonic() - clock
    share = f"{plan.real(epoch):.1%} real tokens"
    table.add_row(f"an epoch of {name}", f"{share}, planned in {seconds:.1f} s")


def _eat(options: LargeCorpus, make: BatchAt, table: Table) -> None:
    """Takes batches as an accelerator would: sleeps for their tokens, then waits."""
    waited = busy = 0.0
    with stream(make, 0, options.batch_workers) as batches:
        next(batches)  # it waits for the plan
        begin = time.monotonic()
        for batch in itertools.islice(batches, options.batches):
            ready = time.monotonic()
            waited += ready - begin
            tokens = int(np.sum(batch.target >= 0))
            time.sleep(tokens / options.tokens_per_second)
            begin = time.monotonic()
            busy += begin - ready
    table.add_row(
        f"waiting at {options.tokens_per_second:,} tokens/s",
        f"{waited / (waited + busy):.2%} of the time",
    )
    with stream(make, options.batches, options.batch_workers) as batches:
        next(batches)  # workers begin
        clock, tokens = time.monotonic(), 0
        for batch in itertools.islice(batches, options.batches):
            tokens += int(np.sum(batch.target >= 0))
        rate = tokens / (time.monotonic() - clock)
    table.add_row("target tokens without waiting", f"{rate:,.0f}/s")
    table.add_row("resident memory now", f"{_resident():,.0f} MiB")


def _resident() -> float:
    """MiB of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    run_program(
        "large_corpus", lambda: main(tyro.cli(LargeCorpus, description=__doc__))
    )
