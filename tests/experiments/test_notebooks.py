# SPDX-License-Identifier: Apache-2.0
"""The notebooks run from top to bottom, and are made from the scripts beside them."""

import runpy
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

import kvnmt
from kvnmt.attention import CATALOGUE
from kvnmt.layers.linear_memory import GATES

FOLDER = Path(__file__).parents[2] / "experiments/notebooks"
# What a notebook of one's own does.
TRAINING = """
from pathlib import Path
import kvnmt
from tests.helpers import tiny, toy_data
folder = Path('{folder}')
exp = tiny(toy_data(folder / 'text'), epochs=1)
run = kvnmt.train(exp, folder / 'run')
assert len(run.translate(['a b'])) == 1
"""
NAMES = ["compare_attention", "key_memory", "linear_memory", "your_own_mechanism"]


@pytest.fixture(name="small")
def _small(tmp_path, monkeypatch) -> Iterator[None]:
    """Little text and small models, in a folder of the test's; nothing is left."""
    monkeypatch.setenv("KVNMT_SMALL", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    listed, backend = set(CATALOGUE), matplotlib.get_backend()
    matplotlib.use("agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")
    matplotlib.use(backend)
    for name in set(CATALOGUE) - listed:
        CATALOGUE.remove(name)


def run(name: str) -> dict[str, Any]:
    """Runs the script of a notebook, and gives what it has defined."""
    return runpy.run_path(str(FOLDER / f"{name}.py"), run_name=name)


def labels(figure: Figure) -> tuple[list[str], list[str]]:
    """What stands beside the rows and above the columns of the first panel."""
    panel = figure.axes[0]
    assert panel.yaxis_inverted()  # the first row is on top
    texts = panel.get_yticklabels(), panel.get_xticklabels()
    rows, columns = ([text.get_text() for text in side] for side in texts)
    return rows, columns


def test_the_notebooks_are_these():
    for suffix in (".py", ".ipynb"):
        assert sorted(path.stem for path in FOLDER.glob(f"*{suffix}")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_made_from_its_script(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other packages
        jupytext = pytest.importorskip("jupytext")
        script = jupytext.read(FOLDER / f"{name}.py")
        notebook = jupytext.read(FOLDER / f"{name}.ipynb")
    cells = [(cell.cell_type, cell.source) for cell in notebook.cells]
    assert cells == [(cell.cell_type, cell.source) for cell in script.cells]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


def test_attention_is_compared(small, capsys):
    names = run("compare_attention")
    families = {"delta_memory": set(GATES), "slots": {"gsa", "abc"}}
    others = set(CATALOGUE) - {"none", *families}
    assert set(names["looks"]) == others.union(*families.values())
    count = len(names["looks"])
    for panel, (name, weights) in zip(names["panels"].flat, names["looks"].items()):
        assert panel.get_title() == name
        np.testing.assert_array_equal(panel.images[0].get_array(), weights)
    assert not any(panel.axison for panel in names["panels"].flat[count:])
    rows, columns = labels(names["panels"].flat[0].figure)
    assert (rows, columns) == (["1st", "2nd", "3rd"], names["SOURCE"])
    remembered = {"linguistic_coverage", "neural_coverage", "distortion", "kv_memory"}
    remembered = remembered.union(*families.values()) - {"sum", "decay"}
    for name, weights in names["looks"].items():
        same = np.allclose(weights[0], weights[2], rtol=1e-5)
        assert same == (name not in remembered), name
    for panel, measure in ((names["losses"], "loss"), (names["scores"], "BLEU")):
        assert measure in panel.get_ylabel()
        drawn = {line.get_label(): line.get_ydata() for line in panel.lines}
        assert set(drawn) == set(names["SYSTEMS"]) and all(map(len, drawn.values()))
    printed = capsys.readouterr().out
    assert "distortion" in printed and "knows the order" in printed


def test_the_weights_of_linear_memories_have_signs(small, capsys):
    names = run("linear_memory")
    titles = [panel.get_title().split(",")[0] for panel in names["signs"].flat]
    assert titles == ["kv_memory", *names["weighed"]]
    for panel, weights in zip(names["signs"].flat, names["looks"].values()):
        np.testing.assert_array_equal(panel.images[0].get_array(), weights)
    assert [(w < 0).any() for w in names["weighed"].values()] == [True] * 7
    summed = names["weighed"]["sum"]  # what the source wrote keeps its weight
    np.testing.assert_allclose(summed[2], summed[0], rtol=1e-5)
    np.testing.assert_allclose(names["looks"]["kv_memory"].sum(1), 1, rtol=1e-5)
    shares = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert len(shares) == 7 and all(0 < float(share) < 1 for share in shares)


def test_a_key_memory_is_shown_word_by_word(small, monkeypatch, capsys):
    figures = []
    save = Figure.savefig

    def remember(figure, *arguments, **options):
        figures.append(figure)
        save(figure, *arguments, **options)

    names = run("key_memory")
    pair = names["parts"]["train"][0]  # of words that the vocabularies know
    explanation = names["run"].explain(" ".join(pair.source), " ".join(pair.target))
    assert explanation.source_tokens == [*pair.source, "</s>"]
    assert explanation.target_tokens == [*pair.target, "</s>"]
    monkeypatch.setattr(Figure, "savefig", remember)
    assert explanation._repr_html_().count("data:image/png;base64,iVBOR") == 2
    for figure in figures:
        assert labels(figure) == (explanation.target_tokens, explanation.source_tokens)
    titles = [[panel.get_title() for panel in figure.axes[:-1]] for figure in figures]
    assert titles[0] == ["round 1", "round 2"]
    assert [title.split()[0] for title in titles[1]] == ["forgotten", "added"] * 2
    for sentence, pair in zip(names["explorer"].data["sentences"], names["test"]):
        for output in sentence["outputs"]:
            words = zip(output["source"], [*pair.source, "</s>"], strict=True)
            assert all(shown in (word, "<unk>") for shown, word in words)
            assert output["target"] == [*output["text"].split(), "</s>"]
    assert names["explorer"]._repr_html_().startswith("<iframe srcdoc=")
    lines = capsys.readouterr().out.splitlines()
    (heads,) = [n for n, line in enumerate(lines) if line.startswith("target")]
    words = [line.split()[0] for line in lines[heads + 1 :]]
    assert words == names["explanation"].target_tokens


def test_a_mechanism_of_ones_own_is_checked_and_trained(small, capsys):
    names = run("your_own_mechanism")
    assert names["verdicts"].hold
    broken = {"sum", "kept", "padding", "unread", "wider"}
    assert set(names["careless"].failed) == broken
    lines = capsys.readouterr().out.splitlines()
    heads, *rows = lines[-4:]
    assert heads.split()[:4] == ["attention", "parameters", "BLEU", "AER"]
    assert [row.split()[0] for row in rows] == list(names["ATTENTIONS"])
    more = int(rows[2].split()[1].replace(",", "")) - int(
        rows[0].split()[1].replace(",", "")
    )
    assert more == names["sizes"].state  # one number for each of the query's
    folder = names["folder"] / "inertia"
    assert kvnmt.load(folder).experiment.model.attention == names["Options"]()


def test_a_notebook_trains_in_jupyter(small, tmp_path):
    """In a process of its own, whose event loop runs while checkpoints are written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nbclient = pytest.importorskip("nbclient")
        nbformat = pytest.importorskip("nbformat")
        pytest.importorskip("ipykernel")
        cell = nbformat.v4.new_code_cell(TRAINING.format(folder=tmp_path))
        notebook = nbformat.v4.new_notebook(cells=[cell])
        nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells and all(cell.execution_count for cell in cells)
