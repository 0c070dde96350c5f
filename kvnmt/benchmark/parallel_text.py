# SPDX-License-Identifier: Apache-2.0
"""Text that every program reads alike: the same pairs, the same words in each."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvnmt.benchmark.config import AgainstConfig
from kvnmt.data import synthetic
from kvnmt.data.outputs import write_lines
from kvnmt.data.text import read_parallel
from kvnmt.errors import UserError
from kvnmt.files import make_folder


def make_text(config: AgainstConfig, folder: Path, seed: int) -> int:
    """Writes train, valid and test text into a folder; returns how many train pairs.

    Left out are pairs that programs would read differently: with an empty side, with
    too many words, with other white space than single blanks, or not UTF-8. If
    models are given, only the test text is needed. If text is given, it is read before
    any folder is made.

    Args:
        config: Which text, and how much of it; perhaps models.
        folder: Where it is written.
        seed: Of a corpus that is made up.

    Raises:
        UserError: The text cannot be read, or nothing is left of it.
    """
    given, test = config.text, config.test
    if given is None:
        given, test = folder / "made-up", "test"
        make_folder(given)
        corpus = synthetic.make_corpus(
            seed, train=config.pairs, valid=config.valid_pairs, test=config.lines
        )
        synthetic.write_corpus(corpus, given)
    parts = {"test": (test, config.lines)}
    if config.ours is None:
        parts["train"] = "train", config.pairs
        parts["valid"] = "valid", config.valid_pairs
    kept = {part: _kept(config, given / name, n) for part, (name, n) in parts.items()}
    make_folder(folder)
    for part, pairs in kept.items():
        for language, lines in zip(config.languages, zip(*pairs)):
            write_lines(folder / f"{part}.{language}", lines)
    return len(kept.get("train", ()))


def _kept(config: AgainstConfig, base: Path, most: int) -> list[tuple[str, str]]:
    """The first pairs of a part that are the same to all."""
    paths = [base.with_name(f"{base.name}.{end}") for end in config.languages]
    text = read_parallel(*paths, faulty="skip")
    pairs = _same_to_all(text.source, text.target, config.longest)
    if not (kept := list(itertools.islice(pairs, most))):
        raise UserError(
            f"nothing is left of '{paths[0]}'; see --longest ({config.longest})."
        )
    return kept


def _same_to_all(
    source: Sequence[str], target: Sequence[str], longest: int
) -> Iterator[tuple[str, str]]:
    for pair in zip(source, target):
        words = [line.split() for line in pair]
        alike = all(" ".join(each) == line for each, line in zip(words, pair))
        if alike and all(0 < len(each) <= longest for each in words):
            yield pair
