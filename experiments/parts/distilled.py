# SPDX-License-Identifier: Apache-2.0
"""A row that learns from what an ensemble makes of its text: distillation.

Kim and Rush (2016), "Sequence-Level Knowledge Distillation": the student learns from
the teacher's best translation of every training sentence (section 3.2), or from the one
among its best that is nearest to the reference (section 3.3). Here the student learns
from the reference, too, and starts from a trained model, which is one of its own
teachers. Other runs may teach instead, such as earlier students.

Nguyen et al. (2020), "Data Diversification": a model of the other direction translates
the references, and students also learn from these translations as sources. Here they go
on from a trained model, with one model for each direction or one ensemble. Text in the
source language only may be translated, too (`experiments.parts.monolingual`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from experiments.harness.results import Figures, read_result
from experiments.harness.rows import Row, Train
from experiments.harness.settings import config_digest, text_digest
from experiments.harness.texts import Text, prepare
from experiments.parts.monolingual import similar_captions
from kvnmt.console import counting, say
from kvnmt.data.text import Parallel, read_lines, read_parallel
from kvnmt.errors import UserError, counted
from kvnmt.files import write_whole
from kvnmt.inference.nearest import Nearest
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.bleu import Settings, bleu_metric
from kvnmt.runs.config import Experiment
from kvnmt.runs.directory import load_ensemble, load_experiment
from kvnmt.runs.train import as_kept

NAME = "distilled"
SOURCE, TARGET = f"{NAME}.source", f"{NAME}.target"
BACK = "back-translated"
MONOLINGUAL = "monolingual text"


@dataclass(frozen=True, kw_only=True)
class DistilledRow(Row):
    """A run that goes on from a trained one, on text that its teachers write first.

    Rows of one workdir share that text; other teachers need another workdir.
    """

    plain: tuple[Path, Path]  # source and target of the text that is translated
    teachers: tuple[Path, ...]  # the runs that translate it together
    taught_by: tuple[str, ...]  # digests of their configs
    candidates: int = 1  # the beam's best, of which the nearest is learnt from
    reverse: Path | None = None  # a run that translates the references back
    reversed_by: str = ""  # digest of its config
    monolingual: Path | None = None  # captions without translations, translated, too

    @property
    def made_of(self) -> str | None:
        """Tells apart the files that the text is made of; None: one is away."""
        return text_digest([*self.plain, *filter(None, [self.monolingual])])

    @property
    def taught(self) -> Text:
        """What the teachers make of that text."""
        text = self.made_of
        choice = f", nearest of {self.candidates}" if self.candidates > 1 else ""
        further = f", {MONOLINGUAL}" if self.monolingual else ""

        def key(tell: Callable[[Path, str], str]) -> str:
            teachers = sorted(map(tell, self.teachers, self.taught_by))
            told = f"{text} by {' '.join(teachers)}{choice}"
            if self.reverse:
                told += f", sources by {tell(self.reverse, self.reversed_by)}"
            return told + further

        made = Text(key(_with_loss), self._write_text, name=NAME)
        mark = made.mark(self.folder.parent)
        noted = mark.read_text() if mark.exists() else None
        # Former versions noted no losses, or of the teachers their names alone.
        former = key(_with_config), key(lambda run, config: run.name)
        return replace(made, key=noted) if noted in former else made

    @property
    def based_on(self) -> dict[str, str]:
        """As of every row; the key of the text tells the other direction's run."""
        told, reverse = super().based_on, self.reverse and self.reverse.name
        return {name: told[name] for name in told if name != reverse}

    @property
    def awaits_text(self) -> bool:
        """Whether the teachers have not written the text yet, or not all of it."""
        return not self.taught.mark(self.folder.parent).exists()

    def result(self) -> Figures | None:
        """As of every row; the teachers are compared, too.

        Raises:
            UserError: Others wrote the text that is there, or chose otherwise.
        """
        mark, key = self.taught.mark(self.folder.parent), self.taught.key
        noted = mark.read_text() if mark.exists() else key
        if self.made_of is None:  # it is away: who wrote counts alone
            noted, key = (words.partition(" by ")[2] for words in (noted, key))
        if noted != key:
            raise UserError(
                f"'{self.folder.parent}' has the text of other teachers than those of "
                f"'{self.folder.name}', or of another choice among what they make; "
                f"choose another --workdir, or delete '{mark.name}' there to have it "
                "written again."
            )
        return super().result()

    def make(self, train: Train, console: Console) -> None:
        """Lets the teachers translate, unless they have; then as of every row."""
        there = self.taught if self.made_of else replace(self.taught, key=None)
        prepare(self.folder.parent, there)
        super().make(train, console)

    def _write_text(self) -> None:
        """Writes pairs, then their sources translated, then further pairs."""
        text = read_parallel(*self.plain, faulty=self.experiment.data.faulty)
        settings = Settings(self.experiment.training.bleu_tokenize)
        bleu_metric(settings)  # complains before anything is translated
        further = self._further_captions(text)
        nearest = Nearest(text.target, settings)  # of one translation that one
        forward = _translated(self.teachers, text, self.candidates, nearest)
        sources, targets = [text.source] * 2, [text.target, forward]
        if self.reverse:
            swapped = Parallel(text.target, text.source)
            sources.append(_translated((self.reverse,), swapped))
            targets.append(text.target)
        if further:
            sources.append(further)
            targets.append(_translated(self.teachers, Parallel(further, further)))
        for name, texts in ((SOURCE, sources), (TARGET, targets)):
            lines = (f"{line}\n" for lines in texts for line in lines)
            write_whole(self.folder.parent / name, "".join(lines))

    def _further_captions(self, text: Parallel) -> list[str]:
        if not self.monolingual:
            return []
        measured = self.experiment.data.valid_source, *self.tests[:1]
        hidden = [line for path in measured if path for line in read_lines(path)]
        lines = read_lines(self.monolingual)
        captions = similar_captions(lines, text.source, hidden)
        say(f"{len(captions):,} of {len(lines):,} further captions are like the text")
        if not captions:
            raise UserError(
                f"no line of '{self.monolingual}' is like the captions; give English "
                "text of their kind, or leave --monolingual out."
            )
        return captions


def _translated(
    folders: Sequence[Path],
    text: Parallel,
    candidates: int = 1,
    nearest: Nearest | None = None,
) -> list[str]:
    """What runs make of a text together; its other side where they write blanks."""
    run = load_ensemble(folders)
    teachers = counted(len(folders), "teacher")
    say(f"{len(text.source):,} lines are translated by {teachers}")
    search = replace(
        run.experiment.search,
        min_length=1,  # no pair is empty
        nbest=candidates,
        beam=max(run.experiment.search.beam, candidates),
    )
    with counting("translating", len(text.source)) as advance:
        made = translate_lines(run, text.source, search, advance, nearest=nearest)
    # A blank one, of a piece that is nothing but a space, would be no pair.
    pairs = zip(made, text.target, strict=True)
    return [line if line.strip() else other for line, other in pairs]


class Lessons(NamedTuple):
    """What students learn from, and for how long."""

    candidates: int = 1  # so many best translations, of which the nearest is taken
    # A run of the other direction, for further sources, or a row that is awaited.
    reverse: Path | Row | None = None
    # They teach in the place of the teachers, which are not awaited then.
    runs: tuple[Path, ...] = ()
    epochs: int | None = None  # default: half of those of the start
    monolingual: Path | None = None  # further captions, in English


def distil(
    row: Row, teachers: Sequence[Row], lessons: Lessons = Lessons()
) -> DistilledRow:
    """The row that learns from teachers and starts from another row.

    Args:
        row: What it starts from; its rate, epochs and vocabularies change.
        teachers: The vocabularies of all are the same.
        lessons: What it learns from.

    Raises:
        UserError: One of the runs is none, or the row has links.
    """
    if row.experiment.data.links:
        raise UserError(
            "--data.links are of the pairs of a text, and students learn from more "
            "than these; leave out the links, or --distil."
        )
    data = row.experiment.data
    candidates, reverse, runs, epochs, monolingual = lessons
    assert data.source and data.target  # text files, as of every row here
    others = {run: load_experiment(run) for run in runs}
    awaited = () if runs else tuple(row.folder for row in teachers)
    back = {reverse: load_experiment(reverse)} if isinstance(reverse, Path) else {}
    if isinstance(reverse, Row):
        back = {reverse.folder: as_kept(reverse.experiment)}
        awaited += (reverse.folder,)
    teaching = others or {row.folder: row.experiment for row in teachers}
    how = [f"{NAME} by {counted(len(runs), 'run')}" if runs else NAME]
    how += [f"nearest of {candidates}"] if candidates > 1 else []
    how += [BACK] if back else []
    how += [MONOLINGUAL] if monolingual else []
    names = [name.replace(" ", "-") for name in how]
    return DistilledRow(
        folder=row.folder.with_name("-".join([row.folder.name, *names])),
        system=", ".join([row.system, *how]),
        experiment=_going_on(row.experiment, row.folder, epochs),
        measure=row.measure,
        data=row.data,
        after=awaited,
        teachers=tuple(teaching),
        taught_by=tuple(map(config_digest, teaching.values())),
        tests=row.tests,
        plain=(data.source, data.target),
        candidates=candidates,
        reverse=next(iter(back), None),
        reversed_by=next(map(config_digest, back.values()), ""),
        monolingual=monolingual,
    )


def _with_config(run: Path, config: str) -> str:
    return f"{run.name}:{config}"


def _with_loss(run: Path, config: str) -> str:
    """The same with the loss of the run, if it was measured: of one training."""
    loss = (read_result(run) or {}).get("valid_loss")
    return _with_config(run, config) + ("" if loss is None else f":{loss}")


def _going_on(before: Experiment, folder: Path, epochs: int | None) -> Experiment:
    """Goes over its text, which is longer, half as often, at half the rate."""
    optimizer, training = before.optimizer, before.training
    epochs = epochs or max(1, training.epochs // 2)
    rate = optimizer.learning_rate
    return replace(
        before,
        data=replace(
            before.data,
            source=folder.parent / SOURCE,
            target=folder.parent / TARGET,
            vocabularies=folder,
        ),
        optimizer=replace(optimizer, learning_rate=rate and rate / 2),
        training=replace(training, epochs=epochs, warm_start=folder, new_words=False),
    )
