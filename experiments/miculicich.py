# SPDX-License-Identifier: Apache-2.0
r"""Decoders that look back at the words they have written.

Claim (Miculicich Werlen et al. 2018): a residual from all earlier words (their mean or,
better, an attention over them) translates better than one from the last word (tables 1
to 4) and lowers the perplexity of a language model (table 6, which is
`experiments.language_models`). A memory RNN looks only at the previous word, the
residual further back, a self-attentive RNN further still (figure 2). Splitting where
the focus moves gives trees that a parser agrees with more than with right-branching
ones (precision 0.56 and 0.45).

Published: their BLEU scores are missing in the text that we have and are left out.
Table 2 cites others on English to German, newstest2014: Luong et al. (2015) with
unknown words replaced 20.9, the context-aware encoder of Zhang et al. (2017) 22.57.
People ranked 50 sentences of each pair: they put the mean above the baseline, and
attention above the mean, in all three.

Setting: 50 000 pieces (25 000 for English to Chinese), at most 50 in a sentence,
embedding 500, 1 024 units, Adadelta, dropout 0.5 before the output layer, as in the
authors' code (the text says after each layer); alignment layers are as wide as the
state, as the paper's appendix says (the code has 2 048). Batches of 80 and beam 10 are
ours. Theirs took 7 to 12 days per model on a Tesla K40; this setting was not run. Trees
need parsed references, one bracketed tree per line. Results:
experiments/findings/papers.md.

Launch::

    python -m experiments.miculicich --setting small
    python -m experiments.miculicich --source train.en --target train.de \
        --valid-source nt13.en --valid-target nt13.de \
        --test-source nt14.en --test-target nt14.de --brackets nt14.trees
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from experiments.harness.results import Figures
from experiments.harness.rows import Train
from experiments.harness.summaries import Summary
from experiments.harness.table import launch
from experiments.parts.paper_tables import by_setting
from experiments.parts.papers import BLEU, Paper, PaperOptions, Variant, make_paper
from experiments.parts.recipes import ADADELTA, MADE_UP
from kvnmt.data.config import DataConfig
from kvnmt.errors import UserError
from kvnmt.evaluation import System, Test, self_attention
from kvnmt.evaluation.base import Column
from kvnmt.evaluation.inputs import TestFiles, read_test
from kvnmt.metrics.self_attention import RelativePositions, pooled, relative_positions
from kvnmt.metrics.trees import Tree
from kvnmt.model.config import ModelConfig
from kvnmt.pictures.charts import relative_positions_chart
from kvnmt.runs import train as training

PICTURE = "relative-positions.png"  # in the folder of the runs
SYSTEMS = (
    "rnnsearch-star",
    "mean-residual",
    "self-attentive-residual",
    "self-attentive-residual-scope",
    "memory-rnn",
    "self-attentive-rnn",
)
POSITIONS = (
    Column("previous", "looks at the previous word", "{:.1%}"),
    Column("further", "more than 5 back", "{:.1%}"),
)
TREES = (
    Column("precision", "precision", "{:.1%}"),
    Column("recall", "recall", "{:.1%}"),
    Column("right_branching", "precision, right-branching", "{:.1%}"),
)
TRAINED = (
    "4.5 million pairs, 50 000 pieces, embedding 500, 1 024 units, dropout 0.5 after "
    "each layer, Adadelta"
)
LOST = "not in the text at hand"
TABLES = (
    Summary(
        name="miculicich",
        columns=by_setting((BLEU, *POSITIONS)),
        by=("system",),
        published={
            **dict.fromkeys(SYSTEMS, LOST),
            "cited: Luong et al. (2015)": "20.9",
            "cited: context-aware encoder of Zhang et al. (2017)": "22.57",
            "cited: 4-gram LSTM after Daniluk et al. (2017)": "13.9 (en-zh)",
        },
        published_as="published BLEU, en-de newstest2014",
        published_with=TRAINED,
    ),
    Summary(
        name="miculicich-trees",
        columns=by_setting(TREES),
        by=("system",),
        folder="miculicich",
        published={"self-attentive-residual": "0.56, right-branching 0.45"},
        published_as="published precision",
        published_with="the setting above, of a pair that is not named",
    ),
)
PAPER = Paper(
    title="Miculicich Werlen et al. (2018)",
    variants=[Variant(name) for name in SYSTEMS],
    settings={
        "paper": replace(
            ADADELTA,
            model=ModelConfig(
                embedding=500, encoder=1024, state=1024, initializer="dl4mt"
            ),
            data=DataConfig(vocabulary="bpe", subwords=50000, max_length=50),
        ),
        "small": MADE_UP,
    },
    columns=[BLEU, *POSITIONS, *TREES],
)


@dataclass(frozen=True, kw_only=True)
class Miculicich(PaperOptions):
    """Options of the experiment."""

    workdir: Path = Path("runs/miculicich")  # where the runs are written
    brackets: Path | None = None  # trees of the first test references

    @property
    def more_tests(self) -> tuple[Path, ...]:
        """The trees."""
        return (self.brackets,) if self.brackets else ()


def main(options: Miculicich, train: Train = training.run) -> None:
    """Trains what is not yet trained, prints the table, and draws figure 2."""
    trees = None
    if options.brackets and not options.looks:
        if not options.test_target:
            raise UserError("--brackets are trees of --test-target; name that too.")
        files = TestFiles(reference=options.test_target[0], brackets=options.brackets)
        trees = read_test(files).brackets
    paper = replace(PAPER, measure=partial(look_back, trees))
    results = make_paper(options, paper, train)
    if not options.looks:
        draw(results, options.workdir / PICTURE)


def look_back(trees: list[Tree] | None, test: Test | None, system: System) -> Figures:
    """How far back a decoder looks, and trees from that; nothing if it does not."""
    if test is None:
        return {}
    looks = self_attention.looks_of(system, test)
    if not looks:
        return {}
    positions = relative_positions(looks[0][1])
    total, counts = max(sum(positions.counts), 1), pooled(positions.counts, 5)
    figures = asdict(positions)
    figures |= {"previous": counts[0] / total, "further": counts[-1] / total}
    if trees:
        _, report = self_attention.measure(replace(test, brackets=trees), [system])
        tree, *_, right = report.rows
        figures |= {name: tree[name] for name in ("precision", "recall")}
        figures["right_branching"] = right["precision"]
    return figures


def draw(results: Sequence[Figures], path: Path) -> None:
    """Draws how far back systems look, with the first seed of each (figure 2)."""
    systems: dict[str, RelativePositions] = {}
    for result in results:
        if "counts" in result and result["system"] not in systems:
            systems[result["system"]] = RelativePositions(
                counts=tuple(result["counts"]),
                normalised=tuple(result["normalised"]),
                available=tuple(result["available"]),
            )
    if systems:
        relative_positions_chart(systems, path)


if __name__ == "__main__":
    launch(Miculicich, main, __doc__)
