# SPDX-License-Identifier: Apache-2.0
"""Multi30k's captions, as several experiments read and score them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.results import Figures
from experiments.significance import packed_counts
from kvnmt.data.config import DataConfig
from kvnmt.data.text import Parallel, read_parallel
from kvnmt.files import make_folder, write_lines
from kvnmt.metrics.bleu import Settings, bleu_metric

TEST = "test2016"
COUNTS = f"{TEST}_counts"
# What Multi30k's own repository calls them; the text is the same.
UPSTREAM = {"train": "train", "valid": "val", TEST: "test_2016_flickr"}
NOTE = "BLEU: sacreBLEU, tokenize none, on the tokenised lower-cased text"


def read(folder: Path, source: str, target: str) -> dict[str, Parallel]:
    """What systems are measured on, by the names of the files.

    Raises:
        UserError: A file is missing or cannot be read.
    """
    return {
        split: read_parallel(*files(folder, split, source, target))
        for split in ("valid", TEST)
    }


def files(folder: Path, split: str, *languages: str) -> tuple[Path, ...]:
    """The files of a part of the text, under our name or that of its repository."""
    paths = []
    for language in languages:
        plain = folder / f"{split}.{language}"
        theirs = folder / f"{UPSTREAM[split]}.lc.norm.tok.{language}"
        paths.append(theirs if theirs.exists() and not plain.exists() else plain)
    return tuple(paths)


def test_files(folder: Path, source: str, target: str) -> tuple[Path, ...]:
    """The files that systems are measured on, beside those of valid."""
    return files(folder, TEST, source, target)


def training_text(
    base: DataConfig, folder: Path, source: str, target: str
) -> DataConfig:
    """The text that is trained on, treated as in ``base``."""
    train, valid = (files(folder, s, source, target) for s in ("train", "valid"))
    return replace(
        base,
        source=train[0],
        target=train[1],
        valid_source=valid[0],
        valid_target=valid[1],
    )


def linked(folder: Path, links: Path, *languages: str) -> Path:
    """A folder in which the text has our names, for programs that make up the names."""
    make_folder(links)
    for split in ("train", "valid"):
        for language, path in zip(languages, files(folder, split, *languages)):
            link = links / f"{split}.{language}"
            link.unlink(missing_ok=True)
            link.symlink_to(path.resolve())
    return links


def translated(
    texts: Mapping[str, Parallel],
    translate: Callable[[Sequence[str]], Sequence[str]],
    folder: Path,
    target: str,
) -> dict[str, Sequence[str]]:
    """Translations of every text, which also stay in a folder.

    Args:
        texts: By the names of their files.
        translate: Gives a line for a line.
        folder: Where they stay.
        target: Their language.
    """
    hypotheses = {}
    for split, text in texts.items():
        hypotheses[split] = translate(text.source)
        write_lines(folder / f"{split}.{target}", hypotheses[split])
    return hypotheses


def scores(
    texts: Mapping[str, Parallel], hypotheses: Mapping[str, Sequence[str]]
) -> Figures:
    """BLEU of every text, and what it is made of on the test text."""
    figures: Figures = {}
    metric = bleu_metric(Settings(tokenize="none"))
    for split, lines in hypotheses.items():
        score = metric.corpus_score(lines, [texts[split].target])
        figures[f"{split}_bleu"] = score.score
        if split == TEST:
            figures["precisions"] = "/".join(f"{p:.1f}" for p in score.precisions)
            figures["brevity"], figures["reference_length"] = score.bp, score.ref_len
            figures[COUNTS] = packed_counts(lines, texts[split].target)
    return figures
