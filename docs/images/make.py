# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the front page from a finished quickstart.

The page of the explorer is photographed by Chromium (Debian's package ``chromium``,
and playwright of ``.[test]``). Launch::

    python -m experiments.quickstart
    python docs/images/make.py [--folder runs/quickstart]
"""

import io
import shutil
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import tyro
from PIL import Image
from playwright.sync_api import sync_playwright

from kvnmt.data import synthetic
from kvnmt.data.synthetic import Pair
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


@dataclass(frozen=True)
class Pictures:
    """Where the quickstart is."""

    folder: Path = Path("runs/quickstart")
    seed: int = 1  # of the quickstart's corpus


def main(options: Pictures) -> None:
    """Draws both pictures."""
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
