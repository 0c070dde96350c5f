# SPDX-License-Identifier: Apache-2.0
"""What `import kvnmt` gives: quick to import, documented, and its examples run."""

import dataclasses
import doctest
import inspect
import pkgutil
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kvnmt
from kvnmt.data.vocabulary import EOS
from kvnmt.inference.shortlist import of_all
from tests.helpers import SIZES, tiny, toy_data, trained, untrained

FUNCTIONS = [name for name in kvnmt.__all__ if name.islower()]
METHODS = ["translate", "describe", "score", "align", "explain"]
EXAMPLES = [
    *(getattr(kvnmt, name) for name in FUNCTIONS),
    *(getattr(kvnmt.Run, name) for name in METHODS),
    type(kvnmt.SYSTEMS),
]


def test_importing_is_quick():
    script = "import sys, kvnmt; kvnmt.__version__, dir(kvnmt); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "kvnmt" in done.stdout.split()
    assert not {"jax", "numpy", "matplotlib", "kvnmt.runs.notebook"} & set(
        done.stdout.split()
    )


def test_names_are_listed():
    assert set(kvnmt.__all__) < set(dir(kvnmt))
    rooms = {module.name for module in pkgutil.iter_modules(kvnmt.__path__)}
    assert not rooms & set(kvnmt.__all__)  # importing a room would hide the name
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = kvnmt.lode


def test_every_name_is_documented():
    for name in kvnmt.__all__:
        assert inspect.getdoc(getattr(kvnmt, name))


@pytest.mark.parametrize("what", EXAMPLES, ids=lambda what: what.__qualname__)
def test_examples_run(what, tmp_path, tmp_path_factory, monkeypatch):
    (tmp_path / "runs").mkdir()
    folder = trained(tmp_path_factory.getbasetemp())
    (tmp_path / "runs/mine").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    names = {"kvnmt": kvnmt}
    if what is kvnmt.train:
        names["experiment"] = tiny(toy_data(tmp_path / "text"), epochs=1)
    (test,) = doctest.DocTestFinder(recurse=False).find(what, globs=names)
    assert test.examples
    text: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=text.append)
    assert not result.failed, "".join(text)


def test_a_search_is_the_run_s_or_another(run):
    lines = ["a b c d e f", "h g"]
    plain = run.translate(lines)
    short = run.translate(lines, kvnmt.SearchConfig(max_length=1))
    assert [len(line.split()) for line in short] == [1, 1]
    search = kvnmt.SearchConfig(max_length=1)
    changed = run._replace(
        experiment=kvnmt.Experiment(run.experiment.model, search=search)
    )
    assert changed.translate(lines) == short != plain


@pytest.mark.parametrize(
    ("lines", "search", "sentence"),
    [
        (["a", 3], None, "line 1, counted from 0, is of type int; pass"),
        (["a\nb"], None, "line 0, counted from 0, holds a line feed"),
        ("a b", None, "put a single line in brackets"),
        (b"a b", None, "put a single line in brackets"),
        (None, None, "a list of lines is needed, and this is of type NoneType"),
        ({"a", "b"}, None, "a list of lines is needed, and this is of type set"),
        (["a"], {"beam": 3}, "search is of type dict; pass a kvnmt.SearchConfig"),
        (["a"], kvnmt.SearchConfig(nbest="3"), "nbest"),
        (["a"], kvnmt.SearchConfig(min_length="3", max_length=5), "min_length"),
        (["\ud800"], None, "line 0, counted from 0, holds half of a surrogate pair"),
    ],
)
def test_what_is_no_list_of_lines_or_no_search_is_refused(run, lines, search, sentence):
    with pytest.raises(kvnmt.UserError, match=sentence):
        run.translate(lines, search)
    if search is None:
        for use in (run.score, run.align):
            with pytest.raises(kvnmt.UserError, match=sentence):
                use(["a"], lines)
    with pytest.raises(kvnmt.UserError, match="is of type list"):
        run.explain(["a"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"objective": kvnmt.Objective(risk_samples=50)},
            "objective.risk is 0",
        ),
        (
            {"training": kvnmt.TrainingConfig(new_words=True)},
            "warm_start is not",
        ),
        ({"search": kvnmt.SearchConfig(temperature=0.5)}, "is for drawing words"),
        (
            {"model": kvnmt.ModelConfig(readout="none", readout_size=9)},
            "readout is none",
        ),
        ({"objective": "risk"}, "objective is 'risk' but must be"),
    ],
)
def test_what_would_do_nothing_is_refused(change, said, tmp_path):
    with pytest.raises(kvnmt.UserError, match=said):
        kvnmt.train(replace(kvnmt.Experiment(), **change), tmp_path / "run")


def test_lines_may_come_one_by_one(run):
    lines = ["a b c", "d e"]
    want = run.translate(lines)
    assert run.translate(line for line in lines) == run.translate((*lines,)) == want
    one, other = run.score(map(str, lines), iter(want)), run.score(lines, want)
    assert [pair.log_prob for pair in one] == [pair.log_prob for pair in other]


def test_a_shortlist_of_other_words_is_refused(run):
    sizes = map(len, run.vocabularies)
    other = {"source": "0" * 16, "target": "0" * 16}
    shortlist = replace(of_all(4, (*sizes,)), digests=other)
    for use in (run.translate, run.describe):
        with pytest.raises(kvnmt.UserError, match="for another source vocabulary"):
            use(["a"], shortlist=shortlist)
        assert use(["a"], shortlist=replace(shortlist, digests=None))


def test_translations_begin_as_asked(run):
    lines, begins = ["a b c", "d e"], ["D E", ""]
    texts = run.translate(lines, prefixes=(text for text in begins))
    assert texts[0].startswith("D E") and texts[1] == run.translate(lines)[1]
    records = run.describe(lines, prefixes=begins)
    assert [record["translation"] for record in records] == texts
    for use in (run.translate, run.describe):
        with pytest.raises(kvnmt.UserError, match="are 2 lines but 1 prefixes; give"):
            use(lines, prefixes=["D"])
        with pytest.raises(kvnmt.UserError, match="put a single prefix in brackets"):
            use(lines, prefixes="D")
        with pytest.raises(kvnmt.UserError, match="prefix 1, .* is of type NoneType"):
            use(lines, prefixes=["D", None])


def test_several_translations_are_described(run):
    search = kvnmt.SearchConfig(beam=4, nbest=3)
    with pytest.raises(kvnmt.UserError, match="one is given .describe gives all."):
        run.translate(["a b"], search)
    with pytest.raises(kvnmt.UserError, match="several .* one is explained"):
        run.explain("a b", search=search)
    with pytest.raises(kvnmt.UserError, match="leave search out"):
        run.explain("a b", "A B", kvnmt.SearchConfig(beam=4))
    holds = run._replace(experiment=replace(run.experiment, search=search))
    wider = replace(search, alpha=0.5)
    assert holds.translate(["a b"], wider) == run.translate(
        ["a b"], replace(wider, nbest=1)
    )
    (record,) = run.describe(["a b"], search)
    best, *others = record["nbest"]
    assert (
        [record["translation"]]
        == [best["translation"]]
        == run.translate(["a b"], kvnmt.SearchConfig(beam=4))
    )
    assert len(others) == 2 and best["score"] >= others[0]["score"]


def test_a_call_that_fails_leaves_the_next_alone(run):
    """What is equal but of another kind, 2.0 for 2, is not kept for it."""
    with pytest.raises(kvnmt.UserError, match="beam is of type float"):
        run.translate(["a b"], kvnmt.SearchConfig(beam=2.0))
    assert len(run.translate(["a b"], kvnmt.SearchConfig(beam=2))) == 1
    with pytest.raises(kvnmt.UserError, match="source_words is 9.0 but must be"):
        kvnmt.build("rnnsearch-star", 9.0, 9, SIZES)
    kvnmt.build("rnnsearch-star", 9, 9, SIZES).init(jax.random.key(0))


def test_a_run_shows_itself_in_a_line(run):
    assert repr(run).startswith("<kvnmt.Run: ") and len(repr(run)) < 2000
    assert "attention additive, decoder conditional" in repr(run)
    both = run._replace(params=(run.params,) * 2)
    assert "an ensemble of 2" in repr(both) and "additive" not in repr(both)
    assert f"{sum(x.size for x in jax.tree.leaves(run.params)):,} par" in repr(run)


def test_paths_may_be_texts(tmp_path, tmp_path_factory):
    """Of a config too: what is trained is what is read back."""
    start = trained(tmp_path_factory.getbasetemp())
    data = toy_data(tmp_path / "text", min_count=2)
    made = tiny(data, epochs=1, warm_start=str(start))
    data = dataclasses.replace(made.data, vocabularies=str(start))
    run = kvnmt.train(dataclasses.replace(made, data=data), str(tmp_path / "run"))
    assert run.experiment.training.warm_start == start
    assert run.experiment.data.vocabularies == start


@pytest.mark.parametrize(
    ("words", "name"),
    [((0, 9), "source_words"), ((9, -4), "target_words"), ((True, 9), "source_words")],
)
def test_a_vocabulary_has_words(words, name):
    with pytest.raises(kvnmt.UserError, match=f"{name} is .* must be at least 1"):
        kvnmt.build("rnnsearch-star", *words)
    assert kvnmt.build("rnnsearch-star", np.int64(9), 9).source_words == 9


def test_language_models_score_only(tmp_path_factory):
    run = kvnmt.load(untrained(tmp_path_factory.getbasetemp(), "lm-lstm"))
    assert len(run.score(["A B"], ["A B"])[0].token_log_probs) == 3
    assert len(run.explain("A B", "A B").token_log_probs) == 3
    for use in (
        lambda: run.translate(["A B"]),
        lambda: run.align(["A B"], ["A B"]),
        lambda: run.explain("A B"),
    ):
        with pytest.raises(kvnmt.UserError, match="language model"):
            use()


def test_mistakes_are_one_sentence(run):
    with pytest.raises(kvnmt.UserError, match="brackets"):
        run.translate("a b c")
    with pytest.raises(kvnmt.UserError, match="2 source sentences but 1 target"):
        run.score(["a", "b"], ["A"])
    with pytest.raises(kvnmt.UserError, match="no run directory"):
        kvnmt.load("nowhere")
    with pytest.raises(kvnmt.UserError, match="did you mean 'rnnsearch'"):
        kvnmt.build("rnnsaerch", 9, 9)
    with pytest.raises(kvnmt.UserError, match="with a name only"):
        kvnmt.build(SIZES, 9, 9, SIZES)
    with pytest.raises(kvnmt.UserError, match="recipe.*did you mean 'papers'"):
        kvnmt.experiment("rnnsearch", kvnmt.DataConfig(), recipe="paper")
    deep = kvnmt.ModelConfig(layers=4)  # which would be dropped without a word
    for use in (
        lambda: kvnmt.build("rnnsearch", 9, 9, deep),
        lambda: kvnmt.experiment("rnnsearch", kvnmt.DataConfig(), deep),
    ):
        with pytest.raises(kvnmt.UserError, match="its own layers; leave it out"):
            use()


def test_ids_of_another_shape_are_told_at_once():
    """And not by the layer that meets them first."""
    model = kvnmt.build("kvmematt-r2", 9, 9, SIZES)
    params = model.init(jax.random.key(0))
    row, rows = jnp.array([[2, 0]]), jnp.array([[2, 0], [3, 0]])
    for source, target in ((rows, row), (row[0], row[0]), (row * 0.5, row)):
        with pytest.raises(kvnmt.UserError, match="^source is .* as many"):
            model.forward(params, source, target)
    with pytest.raises(kvnmt.UserError, match=r"^source is int32\[2\]; give whole"):
        model.encode(params, row[0])
    assert model.forward(params, [[2, 0]], [[2, 0]]).logits.shape == (1, 2, 9)


def test_the_end_of_a_sentence_is_the_id_that_examples_use():
    assert EOS == 0
