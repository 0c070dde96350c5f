# SPDX-License-Identifier: Apache-2.0
r"""The best recurrent translation of captions, and a Transformer on the same text.

Claim: with today's recipe, not that of their papers, the recurrent systems of 2015 to
2018 translate Multi30k as well as a small Transformer.

Published, English to German, test2016, tokenised and lower-cased, one reference:
Transformer-Tiny of Wu et al. (2021), "Good for Misconceived Reasons", 41.02 BLEU
(71.0/47.5/34.3/24.5, brevity penalty 0.999, reference length 12103), 4 layers of width
128, 10 000 joint pieces, at most 8 000 updates of 4 096 tokens, the mean of 10
checkpoints, beam 5. The best recurrent figure, about 38.1 (Caglayan et al. 2017, text
only; recalled, not read again), is of another normalisation.

Setting: the recipe of `kvnmt train`, chosen on valid. The answer, and more commands:
experiments/findings/best_captions.md. A row of RNNsearch* takes two hours.

Launch::

    python -m experiments.multi30k_best --data DATA/multi30k/tok
    python -m experiments.multi30k_best --data DATA/multi30k/tok --ensemble \
        --systems rnnsearch-star self-attentive-residual --distil
    python -m experiments.multi30k_best --data DATA/multi30k/tok \
        --systems rnnsearch-star-lexicon delta-residual --candidates 10 \
        --distil rnnsearch-star-lexicon --back-translate rnnsearch-star
    python -m experiments.multi30k_best --data DATA/multi30k/tok --ablate
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from experiments.harness.results import Figures
from experiments.harness.rows import AnyRow, Row, Train, Trained
from experiments.harness.settings import FILES
from experiments.harness.significance import Against, with_p
from experiments.harness.summaries import Summary
from experiments.harness.table import Table, launch, make_table
from experiments.parts import captions
from experiments.parts.both_ways import READ, both_text, both_ways
from experiments.parts.distilled import Lessons, distil
from experiments.parts.ingredients import COMPOSED, WITHOUT, leave_out
from experiments.parts.recipes import with_system
from experiments.parts.together import ensemble, mean_of_kept, most_alike
from kvnmt.data.text import Parallel, read_lines
from kvnmt.errors import UserError
from kvnmt.evaluation.base import Column
from kvnmt.fields import at_least, between
from kvnmt.runs import train as training
from kvnmt.runs.config import changed_fields
from kvnmt.runs.recipes import RECIPES
from kvnmt.runs.run import Run

BASELINE = "rnnsearch-star"
MODERN = RECIPES["modern"]  # what `kvnmt train` does with nothing but files
RECIPE = replace(MODERN, training=replace(MODERN.training, bleu_tokenize="none"))
SYSTEMS = (BASELINE, "kvmematt-r2-atteos", "self-attentive-residual", *COMPOSED)
# Flags that are of one direction; they would be of the wrong side in the other.
SIDED = (
    *(f"data.{name}" for name in (*FILES, "vocabularies")),
    *("training.source_vectors", "training.target_vectors"),
)
BY = "system", "without"
AGAINST = Against(
    {"system": BASELINE, "without": ""}, f"{captions.TEST}_bleu", captions.COUNTS
)
COLUMNS = (
    Column("system", "system"),
    Column("without", "without"),
    Column("data", "data"),
    Column("parameters", "parameters", "{:,}"),
    Column("valid_bleu", "BLEU valid", "{:.2f}"),
    Column("test2016_bleu", "BLEU test2016", "{:.2f}"),
    Column("p", f"p against {BASELINE}, sentences", "{:.3f}"),
    Column("precisions", "of n-grams 1 to 4"),
    Column("brevity", "brevity penalty", "{:.3f}"),
    Column("minutes", "minutes", "{:.1f}"),
    Column("best_epoch", "best epoch", "{:.3g}"),
    Column("seed", "seed"),
)
BEST = Summary(
    name="multi30k_best",
    data="en-de",
    columns=COLUMNS[3:-1],
    by=BY,
    against=AGAINST,
    published={
        "Transformer-Tiny of Wu et al. (2021), ": "41.02",
        "attentive GRU of Caglayan et al. (2017), ": "about 38.1",
    },
    published_as="published, en-de",
    differences={
        "Transformer-Tiny of Wu et al. (2021), ": "4 layers of width 128; at most "
        "8 000 updates of 4 096 tokens, the mean of 10 checkpoints",
        "attentive GRU of Caglayan et al. (2017), ": "recalled; another normalisation",
    },
)
# Of former recipes: findings/former_recipes.md.
FORMER = replace(BEST, published={}, differences={})
BEFORE = "less-dropout", "untied", "falling"
TABLES = (BEST, *(replace(FORMER, name=f"{BEST.name}-{name}") for name in BEFORE))


@dataclass(frozen=True, kw_only=True)
class Multi30kBest(captions.CaptionOptions):
    """Options of the experiment."""

    workdir: Path = Path("runs/multi30k_best")  # where the runs are written
    source: str = "en"
    target: str = "de"
    systems: tuple[str, ...] = SYSTEMS
    # leave each of these ingredients out of the first system; no name: none, then each
    ablate: tuple[str, ...] | None = None
    # add each row again, learning both directions of the text first
    both: bool = False
    ensemble: bool = False  # add a row: all systems and seeds as one ensemble
    # add all rows again: of so many best translations the one most like the others
    mbr: Annotated[int | None, between(2, 1000)] = None
    mean: bool = False  # add all rows again: the mean of the checkpoints that are kept
    # add these systems again, learning from what all rows translate; no name: all
    distil: tuple[str, ...] | None = None
    teachers: tuple[Path, ...] = ()  # runs that --distil learns from, not the rows
    # of so many best translations, --distil learns from the nearest to the reference
    candidates: Annotated[int, between(1, 1000)] = 1
    # run of the other direction: --distil also learns how it translates references
    reverse: Path | None = None
    back_translate: str | None = None  # as --reverse, but train this system first
    # epochs of --distil; default: half as many as the run that it starts from had
    student_epochs: Annotated[int | None, at_least(1)] = None
    monolingual: Path | None = None  # English captions that --distil translates, too

    def read(self) -> dict[str, Parallel]:
        """As of every experiment on the captions; the further ones can be read."""
        if self.monolingual and not self.looks:
            read_lines(self.monolingual)
        return super().read()

    @property
    def turned(self) -> "Multi30kBest":
        """The other direction."""
        return replace(self, source=self.target, target=self.source)

    @property
    def lessons(self) -> Lessons:
        """What they learn from, and for how long."""
        return Lessons(
            *(self.candidates, self.reverse, self.teachers, self.student_epochs),
            self.monolingual,
        )

    @property
    def students(self) -> tuple[str, ...]:
        """The systems that learn from all."""
        return self.systems if self.distil == () else self.distil or ()


def main(options: Multi30kBest, train: Train = training.run) -> None:
    """Trains what is not yet trained and prints the table."""
    texts = options.read()
    chosen = [(name, "") for name in options.systems]
    if options.ablate is not None:
        names = options.ablate or ("", *WITHOUT)
        chosen = [(name, without) for name in options.systems[:1] for without in names]
    trained = [
        configure(options, name, without, seed, texts)
        for name, without in chosen
        for seed in options.seeds
    ]
    check_together(options, trained)
    if back := options.back_translate:
        seed, turned = options.seeds[0], options.turned
        other = configure(turned, back, "", seed, turned.read())
        trained.append(replace(other, named_for=(*other.named_for, *SIDED)))
    texts_made = []
    if options.both:
        pair, files = options.captions.pair, options.captions.files("train")
        texts_made = [both_text(options.workdir, pair, files)]
        trained = [replace(t, named_for=(*t.named_for, *READ)) for t in trained]
    title, notes = f"Multi30k {options.captions.pair}", [captions.NOTE]
    derived, lines = partial(with_all, options, texts), partial(with_p, AGAINST, BY)
    table = Table(
        title, COLUMNS, trained, notes, texts_made, derived=derived, lines=lines
    )
    make_table(options, table, train)


def with_all(
    options: Multi30kBest, texts: dict[str, Parallel], trained: Sequence[AnyRow]
) -> list[AnyRow]:
    """The rows that learn from all that were trained, and what all translate else."""
    rows = [row for row in trained if isinstance(row, Row)]
    plain = [row for row in rows if row.data == options.captions.pair]
    both = [both_ways(row) for row in plain if options.both]
    after = [row for _, row in both]
    starts = after or plain  # what students start from, and who teaches them
    learning = [
        start
        for row, start in zip(plain, starts, strict=True)
        if row.system in options.students
    ]
    lessons = options.lessons
    for turned in (row for row in rows if row not in plain):
        lessons = lessons._replace(reverse=turned)
    taught = [distil(start, starts, lessons) for start in learning]
    measured = partial(figures_of, texts, "", options.target)
    groups: list[Sequence[Row]] = [plain, after, taught] if options.ensemble else []
    several = (group for group in groups if len(group) > 1)
    others = [ensemble(options.workdir, rows, measured) for rows in several]
    single = (*plain, *after, *taught)
    if count := options.mbr:
        others += [most_alike(row, count, measured) for row in single]
    if options.mean:
        others += [mean_of_kept(row, measured) for row in single]
    return [*(row for rows in both for row in rows), *taught, *others]


def configure(
    options: Multi30kBest,
    name: str,
    without: str,
    seed: int,
    texts: dict[str, Parallel],
) -> Row:
    """The row of a system, perhaps without an ingredient.

    Raises:
        UserError: There is no such system or ingredient.
    """
    start, compose = COMPOSED.get(name, (name, lambda same: same))
    recipe = leave_out(without, RECIPE)
    lacks = changed_fields(RECIPE, recipe)
    recipe = replace(recipe, data=options.captions.trained_on(recipe.data))
    plain = with_system(recipe, start, epochs=recipe.training.epochs, seed=seed)
    parts = options.captions.pair, name, without.replace(" ", "-"), str(seed)
    return Row(
        folder=options.workdir / "-".join(filter(None, parts)),
        system=name,
        experiment=(composed := compose(plain)),
        named_for=(*lacks, *changed_fields(plain, composed)),
        measure=partial(measure, texts, without, options.target),
        data=options.captions.pair,
        tests=options.captions.files(captions.TEST),
    )


def check_together(options: Multi30kBest, rows: Sequence[Row]) -> None:
    """Makes sure that there are rows to translate together or to learn from.

    Raises:
        UserError: There are no two for an ensemble, a system to distil is none of
            them, flags of students have none, or others do not go together.
    """
    if options.ablate is not None and options.systems[1:] not in ((), SYSTEMS[1:]):
        raise UserError("--ablate leaves out of one system; name one in --systems.")
    reversing = (options.reverse, options.back_translate)
    if (options.lessons != Lessons() or any(reversing)) and not options.students:
        raise UserError(
            "--candidates, --reverse, --back-translate, --teachers, --student-epochs "
            "and --monolingual are of --distil; give it, too."
        )
    if options.monolingual and options.source != "en":
        raise UserError("--monolingual has English captions; give --source en.")
    if all(reversing):
        raise UserError("--reverse and --back-translate say the same; give one.")
    asked = {
        "--ensemble": options.ensemble,
        "--distil": options.students,
        "--mbr": options.mbr,
        "--mean": options.mean,
        "--both": options.both,
    }
    for name, value in asked.items():
        if value and options.ablate is not None:
            raise UserError(f"{name} is of whole recipes; leave --ablate out.")
    if len(rows) < 2 and options.ensemble:
        raise UserError("an ensemble has two members; give more --systems or --seeds.")
    for system in options.students:
        if system not in options.systems:
            raise UserError(f"--distil {system} is none of --systems; name it there.")


def measure(
    texts: dict[str, Parallel], without: str, target: str, trained: Trained
) -> Figures:
    """What is measured of a trained row."""
    return figures_of(texts, without, target, trained.run, trained.folder)


def figures_of(
    texts: dict[str, Parallel], without: str, target: str, run: Run, folder: Path
) -> Figures:
    """BLEU on every text; the translations stay in the folder."""
    hypotheses = captions.translated(texts, run.translate, folder, target)
    return {"without": without} | captions.scores(texts, hypotheses)


if __name__ == "__main__":
    launch(Multi30kBest, main, __doc__)
