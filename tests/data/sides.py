# SPDX-License-Identifier: Apache-2.0
"""Small files of two sides, and words of any kind."""

from collections.abc import Iterator
from pathlib import Path

from kvnmt.data.config import DataConfig
from kvnmt.data.sources import TextReader
from kvnmt.data.text import Block, Parallel

ODD = ("a\u2028b", "\x85", "\x0c", "c\rd", "\ufeffe", "\u00a0", "é", "e\u0301", "🙂")


def write(folder: Path, train: list[str], valid: list[str], **changes) -> DataConfig:
    """Files of lines ``source|target``, and the config that names them."""
    paths = {}
    for part, lines in (("", train), ("valid_", valid)):
        for side, column in (("source", 0), ("target", 1)):
            paths[part + side] = path = folder / f"{part}{side}.txt"
            sides = (line.split("|")[column] for line in lines)
            path.write_text("".join(f"{side}\n" for side in sides), newline="\n")
    return DataConfig(**paths, **({"min_count": 1} | changes))


def plain(side) -> list[list[int]]:
    return [ids.tolist() for ids in side]


def as_text(text: Parallel, size: int = 1000) -> TextReader:
    """The text as if it were read, in blocks of ``size`` pairs."""
    source = [line.encode() for line in text.source]
    target = [line.encode() for line in text.target]

    def blocks() -> Iterator[Block]:
        for start in range(0, len(source), size):
            lines = slice(start, start + size)
            yield Block(source[lines], target[lines], start + 1, ("source", "target"))

    return TextReader("text", len(source), blocks, (), "pair")
