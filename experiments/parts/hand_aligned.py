# SPDX-License-Identifier: Apache-2.0
"""Text that people aligned, free text tokenised like it, and word aligners.

All functions that write take the folder of one language pair; both directions of the
pair share its files.
"""

import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from experiments.parts import thot_models
from experiments.parts.aligned_rows import Aligned
from kvnmt.data.outputs import write_lines
from kvnmt.data.text import Parallel, read_lines, read_parallel
from kvnmt.metrics.links import (
    Gold,
    Links,
    invert,
    read_gold,
    symmetrize,
)


class Task(NamedTuple):
    """A language pair: where its text is, and how that is tokenised."""

    text: str  # folder of the training text
    gold: str  # folder of the hand-aligned text; its name ends with the languages
    tokenize: dict[str, Callable[[str], str]]


def tokenize_french(line: str) -> str:
    """Words as in the Hansards: lower-cased, elisions written out (d' is de)."""
    tokens = re.findall(r"\w+['’]|\w+|[^\w\s]", line.lower())
    return " ".join(map(_written_out, tokens))


def _written_out(token: str) -> str:
    token = token.replace("’", "'")
    return token if token == "aujourd'" else re.sub(r"(\w)'$", r"\1e", token)


def tokenize_english(line: str) -> str:
    """Words as in the Hansards and in Tanaka's text: lower-cased, ``n't`` apart."""
    pattern = r"\w+(?=n['’]t\b)|n['’]t\b|['’]\w+|\w+|[^\w\s]"
    return " ".join(re.findall(pattern, line.lower()))


def _as_it_is(line: str) -> str:
    return line


TASKS = {
    "fr-en": Task(
        "tatoeba-fren",
        "hansards-enfr",
        {"fr": tokenize_french, "en": tokenize_english},
    ),
    "ja-en": Task("tanaka-enja", "kftt-jaen", {"ja": _as_it_is, "en": _as_it_is}),
}


def originals(data: Path, pair: str) -> list[Path]:
    """The files that the text of a pair is made of."""
    folder, sides = data / TASKS[pair].text, pair.split("-")
    parts = [f"{part}.{side}" for part in ("train", "valid") for side in sides]
    return [*(folder / part for part in parts), *_aligned(data, pair).files]


def write_text(folder: Path, data: Path, pair: str, seed: int) -> None:
    """Writes the tokenised text that both directions train on.

    Args:
        folder: Where it is written.
        data: Where the free text is.
        pair: The languages, as in `TASKS`.
        seed: Of the draw of lines that are put in a row.
    """
    task, sides = TASKS[pair], pair.split("-")
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("valid", "train"):
        text = read_parallel(
            data / task.text / f"{part}.{sides[0]}",
            data / task.text / f"{part}.{sides[1]}",
        )
        pairs = [
            tuple(task.tokenize[side](line) for side, line in zip(sides, lines))
            for lines in zip(text.source, text.target)
        ]
        if part == "train":
            pairs = list(_in_rows(pairs, random.Random(seed)))
        for side, lines in zip(sides, zip(*pairs)):
            write_lines(folder / f"{part}.{side}", lines)


def write_gold(folder: Path, data: Path, pair: str) -> None:
    """Writes the hand-aligned text, lower-cased, links in the direction of the pair."""
    test = _aligned(data, pair).read()
    for side, lines in zip(pair.split("-"), (test.source or [], test.reference)):
        write_lines(folder / f"gold.{side}", map(str.lower, lines))
    write_lines(folder / "gold.align", map(_pharaoh, test.gold or []))


def _aligned(data: Path, pair: str) -> Aligned:
    return Aligned(data / "align" / TASKS[pair].gold, *pair.split("-"))


def installed_aligners() -> list[str]:
    """The word aligners that are installed, by their names."""
    eflomal = ["eflomal"] if shutil.which("eflomal-align") else []
    return eflomal if thot_models.missing() else [*eflomal, "Thot"]


def align_with_eflomal(folder: Path, pair: str) -> dict[str, list[Gold]]:
    """Alignments by eflomal, both ways and joined; none where it is not installed."""
    if not shutil.which("eflomal-align"):
        return {}
    command = ["eflomal-align", "--overwrite", "--model", "3"]
    text = text_of_aligners(folder, pair)
    sides = pair.split("-")
    for flag, side, lines in zip(("-s", "-t"), sides, (text.source, text.target)):
        write_lines(folder / f"eflomal.{side}", lines)
        command += [flag, str(folder / f"eflomal.{side}")]
    outputs = folder / "eflomal.forward", folder / "eflomal.reverse"
    subprocess.run([*command, "-f", outputs[0], "-r", outputs[1]], check=True)
    count = len(read_lines(folder / "gold.align"))
    forward, reverse = (
        [links.sure for links in read_gold(path)[-count:]] for path in outputs
    )
    return _both_ways("eflomal", forward, reverse)


def align_with_thot(folder: Path, pair: str) -> dict[str, list[Gold]]:
    """Alignments by Thot's HMM, both ways and joined; none where it is missing."""
    if thot_models.missing():
        return {}
    text, count = text_of_aligners(folder, pair), len(read_lines(folder / "gold.align"))
    turned = Parallel(source=text.target, target=text.source)
    forward = thot_models.align(text, count)
    reverse = [invert(links) for links in thot_models.align(turned, count)]
    return _both_ways("Thot, HMM", forward, reverse)


def text_of_aligners(folder: Path, pair: str) -> Parallel:
    """The training text and then the hand-aligned sentences, without their links.

    So such aligners are used: they learn from the sentences that they align.
    """
    source, target = (
        read_lines(folder / f"train.{side}") + read_lines(folder / f"gold.{side}")
        for side in pair.split("-")
    )
    return Parallel(source, target)


def _both_ways(
    name: str, forward: list[Links], reverse: list[Links]
) -> dict[str, list[Gold]]:
    joined = [symmetrize(a, b, "grow-diag-final-and") for a, b in zip(forward, reverse)]
    alignments = {
        name: forward,
        f"{name}, the other direction": reverse,
        f"{name}, grow-diag-final-and": joined,
    }
    return {
        name: [Gold(links, links) for links in of_lines]
        for name, of_lines in alignments.items()
    }


def _pharaoh(gold: Gold) -> str:
    links = sorted(gold.possible)
    return " ".join(f"{i}{'-' if (i, j) in gold.sure else '?'}{j}" for i, j in links)


def _in_rows(
    pairs: Iterable[tuple[str, ...]], draw: random.Random
) -> Iterator[tuple[str, ...]]:
    """Half of the lines as they are, the others two to four in a row."""
    pairs = iter(pairs)
    for pair in pairs:
        count = draw.choice([1, 1, 1, 2, 3, 4])
        some = [pair, *(other for _, other in zip(range(count - 1), pairs))]
        yield tuple(" ".join(side) for side in zip(*some))
