# SPDX-License-Identifier: Apache-2.0
"""A phrase-based system compared with the neural ones on Multi30k.

Claim (Bahdanau et al. 2015, table 1, English-French, 348 million words): Moses 33.30
BLEU, RNNsearch-50* 28.45; on sentences without unknown words 35.63 and 36.15, all
recalled and not read again. Here the
statistical system is Thot's, not Moses: links of an HMM, a phrase table, a 3-gram
model, a monotone stack decoder; the word penalty chosen by BLEU on the first hundred
lines of valid. Its row is in the table of experiments.multi30k, whose text it reads.
Its translations go through ``kvnmt evaluate`` together with those of the neural
systems. It takes half an hour on two cores. Results: experiments/findings/captions.md.

Thot is not one of kvnmt's requirements. Its trainer pins many packages that are not
needed, so it is installed without them::

    pip install -e ".[phrase]"  # sil-thot, regex, sortedcontainers, charset-normalizer
    pip install --no-deps "sil-machine>=1.9,<1.10"

Launch::

    python -m experiments.phrase_based --data DATA/multi30k/tok
    python -m experiments.report --collect runs/multi30k
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from experiments.harness.results import Figures
from experiments.harness.rows import OtherRow
from experiments.harness.table import Table, launch, make_table
from experiments.parts import captions, thot_models
from experiments.parts.thot_models import UNTUNED, WEIGHTS, Translator
from kvnmt.console import say
from kvnmt.data.text import Parallel
from kvnmt.evaluation.base import Column
from kvnmt.files import make_folder
from kvnmt.metrics.bleu import corpus_bleu

SYSTEM = "phrase-based (Thot)"
SPLITS = "train", *captions.MEASURED
PENALTIES = (1.0, 0.0, -1.0, -1.5, -2.0, -2.5, -3.0, -4.0, -5.0)  # untuned first
TUNING_LINES = 100  # of valid, on which the penalty is chosen
COLUMNS = (
    Column("system", "system"),
    Column("valid_bleu", "BLEU valid", "{:.2f}"),
    Column("test2016_bleu", "BLEU test2016", "{:.2f}"),
    Column("word_penalty", "word penalty", "{:g}"),
    Column("minutes", "minutes", "{:.1f}"),
    Column("seed", "seed"),
)


@dataclass(frozen=True, kw_only=True)
class PhraseBased(captions.CaptionOptions):
    """Options of the experiment."""

    workdir: Path = Path("runs/multi30k")  # that of the neural systems


def main(options: PhraseBased) -> None:
    """Trains what is not yet trained and prints the table.

    Raises:
        UserError: Thot is not installed, or a flag or the text cannot be read.
    """
    text, texts = options.captions, {}
    if not options.looks:
        texts = text.read(*SPLITS)
    rows = [
        OtherRow(
            folder=row_folder(options, seed),
            system=SYSTEM,
            data=text.pair,
            work=partial(measure, options, seed, texts),
            tests=tuple(path for split in SPLITS for path in text.files(split)),
        )
        for seed in options.seeds
    ]
    only_shown = options.looks or options.dry_run or all(row.result() for row in rows)
    if not only_shown:
        thot_models.check_installed()
    title = f"Multi30k {text.pair}"
    make_table(options, Table(title, COLUMNS, rows, notes(options)))


def row_folder(options: PhraseBased, seed: int) -> Path:
    """Where the models, the translations and the result of a row are."""
    return options.workdir / f"{options.captions.pair}-phrase-based-{seed}"


def notes(options: PhraseBased) -> list[str]:
    """How the translations go through the program that measures systems."""
    source, reference = options.captions.files(captions.TEST)
    hypotheses = row_folder(options, options.seeds[0]) / f"test2016.{options.target}"
    return [
        captions.NOTE,
        f"beside a run: kvnmt evaluate RUN {hypotheses} "
        f"--source {source} --reference {reference}",
    ]


def measure(options: PhraseBased, seed: int, texts: dict[str, Parallel]) -> Figures:
    """Trains a system, chooses its word penalty, translates, writes translations.

    Args:
        options: Of the experiment.
        seed: Of the pairs that training holds out.
        texts: For training, for choosing, for measuring.
    """
    folder = row_folder(options, seed)
    make_folder(folder)
    translate = thot_models.learn(texts["train"], folder / "models", seed)
    source, target, *_ = texts["valid"]
    tuning = Parallel(source[:TUNING_LINES], target[:TUNING_LINES])
    by_penalty = bleu_by_penalty(translate, tuning)
    weights = weights_with(max(by_penalty, key=by_penalty.__getitem__))
    figures: Figures = {
        "start": "scratch",
        "seed": seed,
        "weights": dict(zip(WEIGHTS, weights)),
        "word_penalty": weights[0],
        "bleu_by_penalty": {f"{value:g}": score for value, score in by_penalty.items()},
        "thot": thot_models.versions(),
        "minutes": translate.minutes,
    }
    tests = {split: texts[split] for split in captions.MEASURED}
    hypotheses = captions.translated(
        tests, partial(translate, weights=weights), folder, options.target
    )
    return figures | captions.scores(tests, hypotheses)


def bleu_by_penalty(translate: Translator, text: Parallel) -> dict[float, float]:
    """BLEU with every word penalty that is tried."""
    by_penalty = {}
    for penalty in PENALTIES:
        hypotheses = translate(text.source, weights_with(penalty))
        score = corpus_bleu(hypotheses, text.target, tokenize="none").score
        by_penalty[penalty] = score
        say(f"word penalty {penalty:g}: BLEU {score:.2f}")
    return by_penalty


def weights_with(penalty: float) -> tuple[float, ...]:
    """The weights with a word penalty, all others untuned."""
    place = WEIGHTS.index("word penalty")
    return (*UNTUNED[:place], penalty, *UNTUNED[place + 1 :])


if __name__ == "__main__":
    launch(PhraseBased, main, __doc__)
