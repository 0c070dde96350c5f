# SPDX-License-Identifier: Apache-2.0
"""What the pages say is so: examples run, links lead somewhere, flags exist."""

import dataclasses
import importlib
import pkgutil
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import experiments
import kvnmt
from kvnmt import attention, decoder, target_context
from kvnmt.attention import Moment
from kvnmt.catalogue import Catalogue
from kvnmt.cli.main import COMMANDS
from kvnmt.data import synthetic
from kvnmt.initializers import gaussian
from kvnmt.runs.recipes import RECIPES
from kvnmt.typing import Sizes
from tests.helpers import untrained
from tests.test_floors import FLOORS

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "experiments/README.md",
    *sorted(ROOT.glob("experiments/findings/*.md")),
    *sorted(ROOT.glob("docs/*.md")),
]
TOPS = ("kvnmt", "experiments", "tests", "docs")
NEW = "kvnmt/attention/tired.py"  # the example of how to add a mechanism
OTHERS = {
    *("--ntasks-per-node", "--nodes", "--gpus-per-node", "--cpus-per-task"),  # of srun
    "--gpus-per-task",
    "--array",  # of sbatch
    "--open-mode",
    "--requeue",
    "--signal",
    "--gpus",
    "--time",
    "--wrap",
    "--worker",  # of gcloud
    "--command",
    "--preserve-status",  # of timeout
    "--no-deps",  # of pip
    "--resolution",  # of uv
    "--durations",  # of pytest
    "--update",  # of jupytext
    "--to",
    "--model.attention.rate",  # of the example
}
FLAG = re.compile(r"(?<![\w-])--[a-z][\w.-]*\w")
CATALOGUES = {
    "attention": attention.CATALOGUE,
    "decoder": decoder.CATALOGUE,
    "target-context": target_context.CATALOGUE,
}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.S)


def commands() -> Iterator[tuple[str, str]]:
    """Every page's commands with their arguments, one for a line of shell."""
    for page in PAGES:
        for block in blocks(str(page.relative_to(ROOT)), "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                yield from re.findall(
                    r"(kvnmt [a-z-]+|experiments\.\w+)([^|#\"&]*)", line
                )


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """The cells of the first table below a heading, by the system of the row."""
    text = (ROOT / page).read_text().split(f"\n{heading}\n")[1]
    table = re.search(r"(\n\|.*)+", text)
    assert table is not None
    lines = table[0].strip().splitlines()
    cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    return {name: others for name, *others in cells}


def test_figures_of_memories_are_those_of_the_table():
    """Name, parameters, then the five figures that both tables have.

    The table of Transformers, with a warm-up, comes after the first.
    """
    page = "experiments/findings/catalogue.md"
    table = rows(page, "<!-- table all_systems -->")
    table |= rows(page, "<!-- table all_systems-warmup -->")
    for name, figures in rows("docs/memories.md", "## Results").items():
        if name.startswith("`"):
            assert table[name][1:6] == figures, name
    captions = (ROOT / "experiments/findings/former_recipes.md").read_text()
    page = (ROOT / "docs/memories.md").read_text().split("\nOn captions, by")[1]
    figures = re.findall(
        r"^\|.*(?:English|German) \| (.*) \| (.*) \| (\d) \|$", page, re.M
    )
    assert len(figures) == 8
    for valid, test, seeds in figures:
        assert re.search(rf"\| {valid} \| {test} \|.* {seeds} \|", captions), valid


def test_the_table_of_recipes_has_their_numbers():
    table = rows("docs/training.md", "## The recipe")
    for column, recipe in enumerate(RECIPES.values()):
        drop, training = recipe.model.dropout, recipe.training
        rates = drop.embedding, drop.annotations, drop.output
        told = {
            "dropout of embeddings, annotations, readout": rates,
            "label smoothing": (recipe.objective.label_smoothing,),
            "pairs in a batch": (training.batch_size,),
            "most epochs": (training.epochs,),
            "validations without a better score before training stops": (
                training.patience,
            ),
            "beam": (recipe.search.beam,),
        }
        for row, numbers in told.items():
            assert table[row][column] == ", ".join(f"{n:g}" for n in numbers), row


PYTHON = [
    (page, number)
    for page in ("README.md", "docs/python.md")
    for number in range(len(blocks(page, "python")))
]


@pytest.mark.parametrize("page, number", PYTHON)
def test_examples_run(page, number, tmp_path, tmp_path_factory, monkeypatch, capsys):
    folder = tmp_path / "runs/quickstart"
    corpus = synthetic.make_corpus(1, train=40, valid=8, test=2)
    synthetic.write_corpus(corpus, folder / "corpus")
    run = untrained(tmp_path_factory.getbasetemp(), "kvmematt-r2")
    (folder / "kvmematt-r2-atteos").symlink_to(run)
    monkeypatch.chdir(tmp_path)
    block = blocks(page, "python")[number]
    exec(compile(block, f"{page}, example {number}", "exec"), {})
    printed = capsys.readouterr().out
    if "CATALOGUE" in block:
        assert "additive 2" in printed
        assert "kv_memory 2" in printed


def test_there_are_examples():
    assert [page for page, _ in PYTHON].count("README.md") == 2
    assert len(PYTHON) > 4


def test_the_mechanism_of_the_catalogue_s_page_works(key):
    source, _ = blocks("docs/catalogue.md", "python")
    tired = types.ModuleType("tired")
    exec(compile(source, "tired.py", "exec"), tired.__dict__)
    own = Catalogue("attention", {"tired": tired}).build(tired.Options(rate=3.0))
    sizes = Sizes(embedding=4, encoder=4, annotation=6, state=5, alignment=3)
    params = own.init(key, sizes, gaussian(0.5))
    annotations = jax.random.normal(key, (2, 4, 6))
    mask = jnp.array([[True] * 4, [True] * 3 + [False]])
    sentence = own.prepare(params, annotations, mask)
    state = own.initial_state(params, sentence)
    query = jnp.ones((2, 5))
    moment = Moment(query, jnp.ones((2, 4)), query)
    first = own.read(params, sentence, state, moment)
    after = moment.replace(decoder_state=query, attended=first)
    state = own.write(params, sentence, state, after)
    second = own.read(params, sentence, state, moment)
    for attended in (first, second):
        assert attended.context.shape == (2, 6)
        assert attended.alignment[1, 3] == 0
        assert jnp.allclose(attended.alignment.sum(axis=1), 1)
    strongest = first.alignment.argmax(axis=1)[:, None]
    before, now = (
        jnp.take_along_axis(attended.alignment, strongest, axis=1)
        for attended in (first, second)
    )
    assert (now < before).all()
    low = [jax.tree.map(lambda x: x.astype(jnp.bfloat16), x) for x in (params, moment)]
    sentence = own.prepare(low[0], annotations.astype(jnp.bfloat16), mask)
    state = own.initial_state(low[0], sentence)
    read = own.read(low[0], sentence, state, low[1])
    assert read.context.dtype == read.alignment.dtype == jnp.bfloat16
    after = low[1].replace(decoder_state=low[1].query, attended=read)
    written = own.write(low[0], sentence, state, after)
    assert state.received.dtype == written.received.dtype == jnp.float32


def test_the_decoder_of_the_catalogue_s_page_keeps_all_laws():
    _, source = blocks("docs/catalogue.md", "python")
    fading = types.ModuleType("fading")
    sys.modules["fading"] = fading  # where a dataclass looks for its module
    exec(compile(source, "fading.py", "exec"), fading.__dict__)
    verdicts = kvnmt.check(fading, fading.Options(kept=0.5))
    del sys.modules["fading"]
    assert verdicts.hold, verdicts


def anchors(text: str) -> set[str]:
    """Of the headings of a page, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", prose, re.M)
    return {re.sub(r"[^\w\- ]", "", h).lower().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text()
    for target, anchor in re.findall(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)", text):
        if target.startswith("https://"):
            continue
        led_to = page.parent / target if target else page
        assert led_to.exists(), target
        assert not anchor or anchor in anchors(led_to.read_text()), (target, anchor)
    for name in re.findall(rf"`((?:{'|'.join(TOPS)})/[\w/.-]*)`", text):
        assert name == NEW or (ROOT / name).exists(), name
    tests = {path.name for path in ROOT.glob("tests/**/*.py")}
    assert set(re.findall(r"\btest_\w+\.py\b", text)) <= tests


CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md"]  # it names the past


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_python_exist(page):
    for name in re.findall(r"`((?:kvnmt|experiments)\.[\w.]+)`", page.read_text()):
        parts = name.split(".")
        place = importlib.import_module(parts.pop(0))
        for part in parts:
            if not hasattr(place, part):
                importlib.import_module(f"{place.__name__}.{part}")
            place = getattr(place, part)


def test_the_core_of_the_suite_is_there():
    core = (ROOT / "tests/core.txt").read_text().split()
    assert len(core) > 10 and all((ROOT / path).is_file() for path in core)


@pytest.mark.parametrize("folder, pages", [("", "docs"), ("experiments", "findings")])
def test_every_page_is_on_the_front_page(folder, pages):
    front = (ROOT / folder / "README.md").read_text()
    assert len(front.splitlines()) <= 150
    found = [page.name for page in (ROOT / folder / pages).glob("*.md")]
    assert len(found) > 5
    assert all(f"]({pages}/{name}" in front for name in found)


def test_the_drawing_of_the_rooms_has_every_floor():
    (drawing,) = re.findall(
        r"```\nfloor\n(.*?)```", (ROOT / "docs/architecture.md").read_text(), re.S
    )
    drawn, first, number = set[tuple[str, int]](), set[str](), 0
    for line in drawing.splitlines():
        number = int(line[:3].strip() or number)
        drawn |= {(word, number) for word in line[5:].split()}
        first.add(line[5:].partition(" ")[0])  # "" where a line goes on
    rooms = [ROOT / "experiments", *ROOT.glob("kvnmt/[a-z]*")]
    names = {room.stem: f"{room.name}{'/' * room.is_dir()}" for room in rooms}
    floors = {name: i for i, parts in enumerate(FLOORS, 1) for name in parts}
    assert {(names[part], floors[part]) for part in names} <= drawn
    assert first - {""} <= {*names.values()}


def test_every_mechanism_is_named():
    for page in ("README.md", "docs/catalogue.md"):
        text = (ROOT / page).read_text()
        names = [name for catalogue in CATALOGUES.values() for name in catalogue]
        missing = [name for name in names if f"`{name}`" not in text]
        assert not missing, f"{page} names no {missing}"


def test_commands_are_whole():
    """What goes on in the next line ends in a backslash, and nothing stands between."""
    for page in PAGES:
        for block in blocks(str(page.relative_to(ROOT)), "sh"):
            lines = block.replace("\\\n", " ").splitlines()
            assert not [line for line in lines if line.lstrip().startswith("-")], page


def test_flags_exist(kvnmt, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # names are not broken
    known = {f"kvnmt {name}": set[str]() for name in COMMANDS}
    for command, flags in known.items():
        flags |= set(FLAG.findall(kvnmt(*command.split()[1:], "--help").out.decode()))
        flags |= {"--program-cache", "--import"}
    options = set(_flags_of_options())
    for command in ("kvnmt train", "kvnmt systems", "kvnmt compile", "kvnmt prepare"):
        known[command] |= options
    for module, flags in _flags_of_experiments():
        is_table = {"--workdir", "--dry-run"} <= flags
        known[module] = flags | known["kvnmt train"] if is_table else flags
    for command, arguments in commands():
        unknown = set(FLAG.findall(arguments)) - known[command]
        assert not unknown, f"{command} has no {unknown}"
    everything = set().union(*known.values(), OTHERS)
    for page in PAGES:
        text = re.sub(r"--[\w.-]*…", "", page.read_text())  # groups of flags
        unknown = set(FLAG.findall(text)) - everything
        assert not unknown, f"{page.name} names {unknown}"


def _flags_of_options() -> Iterator[str]:
    """Those of all mechanisms; the help shows those of the chosen one."""
    for axis, catalogue in CATALOGUES.items():
        for member in catalogue.values():
            for field in dataclasses.fields(member.Options):
                name = field.name.replace("_", "-")
                yield f"--model.{axis}.{name}"
                yield f"--model.{axis}.no-{name}"


def _flags_of_experiments() -> Iterator[tuple[str, set[str]]]:
    for module in pkgutil.iter_modules(experiments.__path__):
        name = f"experiments.{module.name}"
        flags = set()
        for kind in vars(importlib.import_module(name)).values():
            if dataclasses.is_dataclass(kind) and kind.__module__ == name:
                for field in dataclasses.fields(kind):
                    flag = field.name.replace("_", "-")
                    flags |= {f"--{flag}", f"--no-{flag}"}
        yield name, flags
