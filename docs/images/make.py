# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the pages: two from a finished quickstart, two without.

These show how small memories read a sentence. Each is trained for it in a minute on
short sentences of the same language; ``--only-memory`` draws them alone.
The page of the explorer is photographed by Chromium (Debian's package ``chromium``,
and playwright of ``.[test]``). Launch::

    python -m experiments.quickstart
    python docs/images/make.py [--folder runs/quickstart]
"""

import io
import shutil
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import tyro
from PIL import Image
from playwright.sync_api import sync_playwright

import kvnmt
from kvnmt.data import synthetic
from kvnmt.data.synthetic import Corpus, Pair
from kvnmt.errors import UserError, run_program
from kvnmt.evaluation.exploration import explore
from kvnmt.inference.config import SearchConfig
from kvnmt.pictures.heatmaps import attention_heatmap
from kvnmt.runs.directory import Run, load_run

HERE = Path(__file__).parent
SYSTEMS = ("rnnsearch-star", "kvmematt-r2-atteos")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZE = {"width": 1280, "height": 1010}
SENTENCES = 16
WORD = 6  # the step that the explorer shows
COLORS = 240  # of a photograph, so that its file is small
MEMORY = "gated-delta-memory"  # whose signed weights are shown
MEMORIES = ("kvmematt-r1", MEMORY, "slots", "transformer-kvmematt-r1")
LONGEST = 9  # words of the sentences that the memories learn


@dataclass(frozen=True)
class Pictures:
    """Where the quickstart is."""

    folder: Path = Path("runs/quickstart")
    seed: int = 1  # of the quickstart's corpus
    only_memory: bool = False


def main(options: Pictures) -> None:
    """Draws the pictures."""
    draw_memories(options.seed, HERE / "memories.png", HERE / "signed-weights.png")
    if options.only_memory:
        return
    runs = {name: load_run(options.folder / name) for name in SYSTEMS}
    pairs = synthetic.make_corpus(options.seed).test
    draw_attention(runs[SYSTEMS[-1]], pairs, HERE / "attention.png")
    photograph_explorer(runs, pairs[:SENTENCES], HERE / "explorer.png")


def draw_attention(run: Run, pairs: tuple[Pair, ...], path: Path) -> None:
    """Draws both rounds over the longest reference of at most eleven words."""
    pair = max(pairs, key=lambda pair: (len(pair.source) <= 11, len(pair.source)))
    rounds = run.align([" ".join(pair.source)], [" ".join(pair.target)])[0]
    attention_heatmap(
        rounds,
        [*pair.source, "</s>"],
        [*pair.target, "</s>"],
        path,
        gold=pair.links,
    )


def draw_memories(seed: int, alignments: Path, weights: Path) -> None:
    """Trains memories, and draws how they read the longest test sentence."""
    parts = {
        name: tuple(pair for pair in pairs if len(pair.source) <= LONGEST)
        for name, pairs in vars(synthetic.make_corpus(seed)).items()
    }
    with tempfile.TemporaryDirectory() as folder:
        synthetic.write_corpus(Corpus(**parts), Path(folder) / "text")
        runs = [train_memory(name, Path(folder)) for name in MEMORIES]
    pair = max(parts["test"], key=lambda pair: len(pair.source))
    text = " ".join(pair.source), " ".join(pair.target)
    runs[MEMORIES.index(MEMORY)].explain(*text).draw_weights(weights)
    attention_heatmap(
        [run.align(*([side] for side in text))[0][-1] for run in runs],
        [*pair.source, "</s>"],
        [*pair.target, "</s>"],
        alignments,
        titles=MEMORIES,
        gold=pair.links,
    )


def train_memory(name: str, folder: Path) -> Run:
    """A system at small sizes, a linear memory with two heads."""
    sides = {
        f"{name}{side}": folder / f"text/{part}.{suffix}"
        for name, part in (("", "train"), ("valid_", "valid"))
        for side, suffix in (("source", "src"), ("target", "trg"))
    }
    data = kvnmt.DataConfig(**sides, min_count=1)
    sizes = kvnmt.ModelConfig(
        embedding=48, encoder=48, state=48, merge="sum", initializer="unit"
    )
    experiment = kvnmt.experiment(name, data, sizes, recipe="papers")
    model = experiment.model
    if name == MEMORY:
        model = replace(model, attention=replace(model.attention, heads=2))
    warmup = 400 if model.cell == "transformer" else 0
    experiment = replace(
        experiment,
        model=model,
        optimizer=kvnmt.OptimizerConfig(learning_rate=3e-3, warmup=warmup),
        training=kvnmt.TrainingConfig(
            epochs=8,
            batch_size=40,
            shapes=1,
            bleu_tokenize="none",
            validate_every=10_000,  # once, at the end
        ),
    )
    return kvnmt.train(experiment, folder / name)


def photograph_explorer(
    runs: dict[str, Run], pairs: tuple[Pair, ...], path: Path
) -> None:
    """Writes the explorer's page and takes a picture of the first sentence."""
    explorer = explore(
        runs,
        [" ".join(pair.source) for pair in pairs],
        [" ".join(pair.target) for pair in pairs],
        SearchConfig(beam=5),
        title="the quickstart's language",
        counting=lambda what, total: nullcontext(lambda count: None),
    )
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise UserError("the explorer is photographed by Chromium; install chromium.")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "explorer.html"
        explorer.write(page)
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"]
        )
        tab = browser.new_page(viewport=SIZE)
        tab.goto(f"{page.as_uri()}#step={WORD}&theme=light")
        photograph = Image.open(io.BytesIO(tab.screenshot()))
        browser.close()
    photograph.convert("RGB").quantize(COLORS).save(path, optimize=True)


if __name__ == "__main__":
    run_program("pictures", lambda: main(tyro.cli(Pictures, description=__doc__)))
