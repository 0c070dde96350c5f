# SPDX-License-Identifier: Apache-2.0
"""What `import kvnmt` gives: quick to import, documented, and its examples run."""

import dataclasses
import doctest
import inspect
import pkgutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kvnmt
from kvnmt.attention import CATALOGUE, additive
from kvnmt.data.vocabulary import EOS
from kvnmt.inference.shortlist import of_all
from kvnmt.runs import notebook
from kvnmt.runs.directory import load_run
from kvnmt.runs.idle import check_experiment
from kvnmt.systems import named
from kvnmt.training.checkpoints.writer import Checkpoints
from tests.helpers import SIZES, tiny, toy_data, trained, untrained

DATA = kvnmt.DataConfig()
FUNCTIONS = [name for name in kvnmt.__all__ if name.islower()]
METHODS = ["translate", "describe", "score", "align", "explain"]
EXAMPLES = [
    *(getattr(kvnmt, name) for name in FUNCTIONS),
    *(getattr(kvnmt.Run, name) for name in METHODS),
    type(kvnmt.SYSTEMS),
]


@pytest.fixture(scope="module", name="run")
def _run(tmp_path_factory) -> kvnmt.Run:
    return kvnmt.load(trained(tmp_path_factory.getbasetemp()))


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


def test_explanations_agree_with_scores(run):
    explanation = run.explain("a b c")
    assert [explanation.translation] == run.translate(["a b c"])
    (scored,) = run.score(["a b c"], [explanation.translation])
    assert explanation.token_log_probs == scored.token_log_probs
    assert explanation.log_prob == scored.log_prob
    (rounds,) = run.align(["a b c"], [explanation.translation])
    np.testing.assert_array_equal(explanation.alignments, rounds)
    shape = len(explanation.target_tokens), len(explanation.source_tokens)
    assert [matrix.shape for matrix in rounds] == [shape]
    assert explanation.memory is None
    with pytest.raises(kvnmt.UserError, match="no signed weights"):
        explanation.draw_weights("weights.png")
    forced = run.explain("a b c", "H")
    assert forced.translation == "H"
    assert forced.log_prob < explanation.log_prob


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


def test_a_system_of_one_s_own_has_a_name(monkeypatch):
    monkeypatch.setattr(kvnmt.SYSTEMS, "data", named.SYSTEMS)
    kvnmt.SYSTEMS["mine"] = kvnmt.SYSTEMS["kvmematt-r2"]
    try:
        kvnmt.build("mine", 9, 9, SIZES)
    finally:
        del kvnmt.SYSTEMS["mine"]
    with pytest.raises(kvnmt.UserError, match="no system 'mine'"):
        kvnmt.build("mine", 9, 9, SIZES)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: kvnmt.load(["a", "b"]),
            "folder is of type list but",
        ),
        (lambda: kvnmt.build("None", 9, 9), "there is no system 'None'"),
        (lambda: kvnmt.build(["rnnsearch"], 9, 9), "system is of type list"),
        (lambda: kvnmt.experiment(None, DATA), "system is of type NoneType"),
        (lambda: kvnmt.train(kvnmt.Experiment(), None), "folder is of type NoneType"),
        (
            lambda: kvnmt.build("rnnsearch", 9, 9, kvnmt.ModelConfig(merge="none")),
            "each system has its own merge; leave",
        ),
        (lambda: kvnmt.build("attn", 9, 9, {}), "sizes is of type dict"),
        (lambda: kvnmt.experiment("attn", None), "data is of type NoneType"),
        (lambda: kvnmt.train({}, "runs"), "experiment is of type dict but must be E"),
        (lambda: kvnmt.train(badly(), "runs"), "model.initializer is 'xavier' but"),
    ],
)
def test_other_things_are_refused_in_a_sentence(call, sentence):
    with pytest.raises(kvnmt.UserError, match=sentence):
        call()


def badly() -> kvnmt.Experiment:
    return kvnmt.Experiment(kvnmt.ModelConfig(initializer="xavier"))


@pytest.mark.parametrize("name", [*kvnmt.SYSTEMS])
def test_every_system_may_be_trained_as_it_is(name):
    """Nothing that nobody chose is refused for doing nothing."""
    experiment = kvnmt.experiment(name, DATA)
    check_experiment(experiment, *notebook._starts(experiment))


def test_paths_may_be_texts(tmp_path, tmp_path_factory):
    """Of a config too: what is trained is what is read back."""
    start = trained(tmp_path_factory.getbasetemp())
    data = toy_data(tmp_path / "text", min_count=2)
    made = tiny(data, epochs=1, warm_start=str(start))
    data = dataclasses.replace(made.data, vocabularies=str(start))
    run = kvnmt.train(dataclasses.replace(made, data=data), str(tmp_path / "run"))
    assert run.experiment.training.warm_start == start
    assert run.experiment.data.vocabularies == start


def test_a_mechanism_that_is_listed_anew_is_built_anew():
    """Also where its Options are the same: the cell below them was run again."""

    @dataclasses.dataclass(frozen=True)
    class Options(additive.Options):
        pass

    def build(scale: float):
        def changed(options: Options):
            sound = additive.build(options)

            def read(*arguments):
                look = sound.read(*arguments)
                return look.replace(context=scale * look.context)

            return sound._replace(read=read)

        return SimpleNamespace(Options=Options, build=changed)

    config = dataclasses.replace(SIZES, attention=Options())
    sums = []
    for scale in (1.0, 2.0):
        CATALOGUE.add("mine", build(scale))
        try:
            model = kvnmt.build(config, 9, 9)
            assert kvnmt.build(config, 9, 9) is model
        finally:
            CATALOGUE.remove("mine")
        words = jnp.array([[3, 4, 0]])
        params = model.init(jax.random.key(0))
        sums.append(float(jnp.sum(model.forward(params, words, words).logits)))
    assert sums[0] != sums[1]
    with pytest.raises(kvnmt.UserError, match="is the Options of no attention"):
        kvnmt.build(config, 9, 9)


@pytest.mark.parametrize(
    ("words", "name"),
    [((0, 9), "source_words"), ((9, -4), "target_words"), ((True, 9), "source_words")],
)
def test_a_vocabulary_has_words(words, name):
    with pytest.raises(kvnmt.UserError, match=f"{name} is .* must be at least 1"):
        kvnmt.build("rnnsearch-star", *words)
    assert kvnmt.build("rnnsearch-star", np.int64(9), 9).source_words == 9


def test_memories_are_explained(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    run = kvnmt.load(untrained(base, "kvmematt-r2"))
    explanation = run.explain("a b", "A B C")
    assert explanation.memory is not None
    for matrices in explanation.memory:
        assert [matrix.shape for matrix in matrices] == [(4, 3)] * 2
    both = kvnmt.load(
        untrained(base, "kvmematt-r2"), untrained(base, "rnnsearch-star")
    ).explain("a b", "A B C")
    assert both.memory is None  # two models have no memory in common
    for draw in (both.draw_memory, both.draw_weights):
        with pytest.raises(kvnmt.UserError, match="explain one of its members"):
            draw("memory.png")


def test_what_a_decoder_looks_back_at_is_drawn(run, tmp_path_factory, tmp_path):
    base = tmp_path_factory.getbasetemp()
    looks = kvnmt.load(untrained(base, "self-attentive-residual"))
    explanation = looks.explain("a b", "A B C")
    explanation.draw_self_attention(tmp_path / "looks.png")
    assert (tmp_path / "looks.png").read_bytes().startswith(b"\x89PNG")
    assert explanation._repr_html_().count("data:image/png;base64,iVBOR") == 2
    with pytest.raises(kvnmt.UserError, match="does not look back"):
        run.explain("a b", "A B").draw_self_attention("looks.png")


def test_signed_weights_are_explained_and_drawn(tmp_path_factory, tmp_path):
    run = kvnmt.load(untrained(tmp_path_factory.getbasetemp(), "gated-delta-memory"))
    explanation = run.explain("a b", "A B C")
    assert explanation.weights is not None
    assert [matrix.shape for matrix in explanation.weights.signed] == [(4, 4, 3)]
    explanation.draw_weights(tmp_path / "weights.png")
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")
    assert explanation._repr_html_().count("data:image/png;base64,iVBOR") == 2


def test_explanations_are_shown(run, tmp_path):
    run.explain("a b").draw(tmp_path / "alignment.png")
    assert (tmp_path / "alignment.png").read_bytes().startswith(b"\x89PNG")
    shown = run.explain("a <b> &", "A B")._repr_html_()
    assert "a &lt;b&gt; &amp;" in shown and "<b>A B</b>" in shown
    assert "data:image/png;base64,iVBOR" in shown


def test_without_attention_nothing_is_drawn(tmp_path_factory, tmp_path):
    run = kvnmt.load(untrained(tmp_path_factory.getbasetemp(), "rnnencdec"))
    explanation = run.explain("a b", "A B")
    assert explanation.alignments == []
    assert "<img" not in explanation._repr_html_()
    with pytest.raises(kvnmt.UserError, match="no attention"):
        explanation.draw(tmp_path / "alignment.png")


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


def test_what_one_trained_oneself_is_saved(
    run, tmp_path, tmp_path_factory, monkeypatch
):
    """Whole or not at all; it is translated with like any other run."""
    changed = run._replace(params=jax.tree.map(lambda leaf: leaf / 2, run.params))
    kvnmt.save(changed, tmp_path / "mine")
    again = kvnmt.load(tmp_path / "mine")
    jax.tree.map(np.testing.assert_array_equal, again.params, changed.params)
    assert again.experiment == run.experiment
    lines = ["a b c", "d"]
    assert again.translate(lines) == changed.translate(lines)
    with pytest.raises(kvnmt.UserError, match="mine' exists already"):
        kvnmt.save(changed, tmp_path / "mine")
    with pytest.raises(kvnmt.UserError, match="cannot be made: File name too long"):
        kvnmt.save(changed, tmp_path / ("long" * 99))
    both = kvnmt.load(trained(tmp_path_factory.getbasetemp()), tmp_path / "mine")
    other = load_run(untrained(tmp_path_factory.getbasetemp(), "kvmematt-r2"))
    endless = jax.tree.map(lambda leaf: leaf * np.nan, run.params)
    for wrong, said in (
        (both, "parameters of one model: of an ensemble save each"),
        (run._replace(params=other.params), "not those of the model that"),
        (run._replace(params=endless), "not finite"),
    ):
        with pytest.raises(kvnmt.UserError, match=said):
            kvnmt.save(wrong, tmp_path / "wrong")
        assert not (tmp_path / "wrong").exists()
    host = run._replace(params=jax.device_get(run.params))
    monkeypatch.setattr(
        Checkpoints, "save_params", Mock(side_effect=OSError(28, "full"))
    )
    with pytest.raises(kvnmt.UserError, match="wrong' cannot be written"):
        kvnmt.save(host, tmp_path / "wrong")
    monkeypatch.undo()
    kvnmt.save(host, tmp_path / "wrong")
    assert kvnmt.load(tmp_path / "wrong").translate(lines) == run.translate(lines)


def test_keys_of_the_older_kind_are_keys(run):
    source, target = jnp.array([[5, 6, 0]]), jnp.array([[5, 0]])
    new, old = (
        run.model.forward(run.params, source, target, key).logits
        for key in (jax.random.key(3), jax.random.PRNGKey(3))
    )
    np.testing.assert_array_equal(new, old)


def test_what_is_no_system_is_refused():
    with pytest.raises(kvnmt.UserError, match="must be NamedSystem"):
        kvnmt.SYSTEMS["mine"] = kvnmt.ModelConfig()


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"atention": additive.Options()}, "'atention'; did you mean 'attention'"),
        ({"decoder": additive.Options()}, "decoder is of type .* must be a kvnmt"),
        ({"layers": 0}, "layers is 0 but must be at least 1"),
    ],
)
def test_a_system_of_what_no_model_has_is_refused(choices, said):
    with pytest.raises(kvnmt.UserError, match=said):
        kvnmt.SYSTEMS["mine"] = named.NamedSystem("mine", choices)
    assert "mine" not in kvnmt.SYSTEMS


def test_systems_are_shown_as_a_table():
    assert len(repr(kvnmt.SYSTEMS).splitlines()) == len(kvnmt.SYSTEMS)
    page = kvnmt.SYSTEMS._repr_html_()
    assert all(f"<code>{name}</code>" in page for name in kvnmt.SYSTEMS)


def test_a_system_that_is_not_there_tells_the_nearest():
    with pytest.raises(kvnmt.UserError, match="'kvmematt-r2'"):
        kvnmt.SYSTEMS["kvmemat-r2"]
    assert kvnmt.SYSTEMS.get("kvmemat-r2") is None


def test_the_end_of_a_sentence_is_the_id_that_examples_use():
    assert EOS == 0
