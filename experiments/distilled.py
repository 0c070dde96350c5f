# SPDX-License-Identifier: Apache-2.0
"""A row that learns from what an ensemble makes of its text: distillation.

Kim and Rush (2016), "Sequence-Level Knowledge Distillation": the teacher's best
translation of every training sentence is what the student learns from (section 3.2), or
of its best ones that which is nearest to the reference (section 3.3). Here it stands
beside the reference, and the student starts from a trained model, which is one of its
own teachers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from experiments.results import Figures
from experiments.rows import Row, Train
from experiments.settings import config_digest, text_digest
from experiments.table import Text, prepare
from kvnmt.console import counting, say
from kvnmt.data.text import read_parallel
from kvnmt.errors import UserError, counted
from kvnmt.files import write_whole
from kvnmt.inference.nearest import Nearest
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.bleu import Settings, bleu_metric
from kvnmt.runs.directory import load_ensemble

NAME = "distilled"
SOURCE, TARGET = f"{NAME}.source", f"{NAME}.target"


@dataclass(frozen=True, kw_only=True)
class DistilledRow(Row):
    """A run that goes on from a trained one, on text that its teachers write first.

    Rows of one workdir share that text; other teachers need another workdir.
    """

    plain: tuple[Path, Path]  # source and target of the text that is translated
    teachers: str  # tells those apart that translate it, the rows that it comes after
    candidates: int = 1  # the beam's best, of which the nearest is learnt from

    @property
    def taught(self) -> Text:
        """What the teachers make of that text."""
        text = text_digest(self.plain)
        choice = f", nearest of {self.candidates}" if self.candidates > 1 else ""
        made = Text(f"{text} by {self.teachers}{choice}", self._write_text, name=NAME)
        # A former version noted their names alone.
        names = " ".join(each.partition(":")[0] for each in self.teachers.split())
        mark, former = made.mark(self.folder.parent), f"{text} by {names}{choice}"
        if mark.exists() and mark.read_text() == former:
            return replace(made, key=former)
        return made

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
        if text_digest(self.plain) is None:  # it is away: who wrote counts alone
            noted, key = (words.partition(" by ")[2] for words in (noted, key))
        if noted != key:
            raise UserError(
                f"'{self.folder.parent}' has the text of other teachers than those of "
                f"'{self.folder.name}', or of another choice among what they make; "
                "choose another --workdir."
            )
        return super().result()

    def make(self, train: Train, console: Console) -> None:
        """Lets the teachers translate, unless they have; then as of every row."""
        prepare(self.folder.parent, self.taught)
        super().make(train, console)

    def _write_text(self) -> None:
        """Writes the text twice: with its references, and with the translations."""
        text = read_parallel(*self.plain, faulty=self.experiment.data.faulty)
        run = load_ensemble(self.after)
        teachers = counted(len(self.after), "teacher")
        say(f"{len(text.source):,} lines are translated by {teachers}")
        search = replace(
            run.experiment.search,
            min_length=1,  # no pair is empty
            nbest=self.candidates,
            beam=max(run.experiment.search.beam, self.candidates),
        )
        settings = Settings(run.experiment.training.bleu_tokenize)
        bleu_metric(settings)  # complains before anything is translated
        nearest = Nearest(text.target, settings)  # of one translation that one
        with counting("translating", len(text.source)) as advance:
            translations = translate_lines(
                run, text.source, search, advance, nearest=nearest
            )
        # A blank one, of a piece that is nothing but a space, would be no pair.
        written = [
            translation if translation.strip() else reference
            for translation, reference in zip(translations, text.target, strict=True)
        ]
        workdir = self.folder.parent
        for name, lines in (
            (SOURCE, [*text.source, *text.source]),
            (TARGET, [*text.target, *written]),
        ):
            write_whole(workdir / name, "".join(f"{line}\n" for line in lines))


def distil(row: Row, teachers: Sequence[Row], candidates: int = 1) -> DistilledRow:
    """The row that learns from teachers and starts from another row.

    It goes over the text, which is twice as long, half as often, at half the rate.

    Args:
        row: What it starts from; its rate, epochs and vocabularies change.
        teachers: The vocabularies of all are the same.
        candidates: How many of their best translations the nearest to the reference
            is chosen from.
    """
    before, workdir = row.experiment, row.folder.parent
    data, rate = before.data, before.optimizer.learning_rate
    assert data.source and data.target  # text files, as of every row here
    how = [NAME, f"nearest of {candidates}"] if candidates > 1 else [NAME]
    after = replace(
        before,
        data=replace(
            data,
            source=workdir / SOURCE,
            target=workdir / TARGET,
            vocabularies=row.folder,
        ),
        optimizer=replace(
            before.optimizer,
            learning_rate=rate and rate / 2,
            decay=0.8,
            decay_after=1,
        ),
        training=replace(
            before.training,
            epochs=max(1, before.training.epochs // 2),
            warm_start=row.folder,
        ),
    )
    return DistilledRow(
        folder=workdir / f"{'-'.join([row.folder.name, *how]).replace(' ', '-')}",
        system=", ".join([row.system, *how]),
        experiment=after,
        measure=row.measure,
        data=row.data,
        after=tuple(teacher.folder for teacher in teachers),
        teachers=" ".join(
            sorted(f"{t.folder.name}:{config_digest(t.experiment)}" for t in teachers)
        ),
        tests=row.tests,
        plain=(data.source, data.target),
        candidates=candidates,
    )
