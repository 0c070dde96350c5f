# SPDX-License-Identifier: Apache-2.0
"""Multi30k's captions, as several experiments read and score them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from experiments.harness.results import Figures
from experiments.harness.significance import packed_counts
from experiments.harness.table import Options
from kvnmt.data.config import DataConfig
from kvnmt.data.outputs import write_lines
from kvnmt.data.text import Parallel, read_parallel
from kvnmt.files import make_folder
from kvnmt.inference.ids import check_counts
from kvnmt.metrics.bleu import Settings, bleu_metric

TEST = "test2016"
COUNTS = f"{TEST}_counts"
# What Multi30k's own repository calls them; the text is the same.
UPSTREAM = {"train": "train", "valid": "val", TEST: "test_2016_flickr"}
MEASURED = "valid", TEST
NOTE = "BLEU: sacreBLEU, tokenize none, on the tokenised lower-cased text"


class Captions(NamedTuple):
    """The text in two languages."""

    folder: Path
    source: str = "de"
    target: str = "en"

    @property
    def pair(self) -> str:
        """The languages."""
        return f"{self.source}-{self.target}"

    def files(self, split: str) -> tuple[Path, Path]:
        """The files of a part, under our name or that of its repository."""
        return self._file(split, self.source), self._file(split, self.target)

    def read(self, *splits: str) -> dict[str, Parallel]:
        """Parts of the text, by their names.

        Raises:
            UserError: A file is missing or cannot be read.
        """
        return {split: read_parallel(*self.files(split)) for split in splits}

    def trained_on(self, base: DataConfig) -> DataConfig:
        """The text that is trained on, treated as in ``base``."""
        train, valid = self.files("train"), self.files("valid")
        changes = {"source": train[0], "target": train[1]}
        changes |= {"valid_source": valid[0], "valid_target": valid[1]}
        return replace(base, **changes)

    def linked(self, folder: Path) -> Path:
        """A folder in which the text has our names, for programs that make them up."""
        make_folder(folder)
        for split in ("train", "valid"):
            for language in (self.source, self.target):
                link = folder / f"{split}.{language}"
                link.unlink(missing_ok=True)
                link.symlink_to(self._file(split, language).resolve())
        return folder

    def _file(self, split: str, language: str) -> Path:
        plain = self.folder / f"{split}.{language}"
        theirs = self.folder / f"{UPSTREAM[split]}.lc.norm.tok.{language}"
        return theirs if theirs.exists() and not plain.exists() else plain


@dataclass(frozen=True, kw_only=True)
class CaptionOptions(Options):
    """Options of an experiment on the captions."""

    data: Path  # folder of the tokenised text
    source: str = "de"
    target: str = "en"

    @property
    def captions(self) -> Captions:
        """The text."""
        return Captions(self.data, self.source, self.target)

    def read(self) -> dict[str, Parallel]:
        """What systems are measured on; nothing where rows are only looked at.

        Raises:
            UserError: A file is missing or cannot be read.
        """
        return {} if self.looks else self.captions.read(*MEASURED)


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
        references = len(texts[split].target)
        check_counts(len(lines), f"translations of {split}", references, "references")
        score = metric.corpus_score(lines, [texts[split].target])
        figures[f"{split}_bleu"] = score.score
        if split == TEST:
            figures["precisions"] = "/".join(f"{p:.1f}" for p in score.precisions)
            figures["brevity"], figures["reference_length"] = score.bp, score.ref_len
            figures[COUNTS] = packed_counts(lines, texts[split].target)
    return figures
