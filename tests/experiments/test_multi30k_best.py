# SPDX-License-Identifier: Apache-2.0
"""The recipe on Multi30k: its ingredients, its composed systems, its figures."""

import json
import shutil
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console
from sacrebleu.metrics.bleu import BLEU

from experiments import multi30k_best
from experiments.harness.preview import show_plans
from experiments.harness.row_flags import with_flags
from experiments.harness.rows import Row
from experiments.harness.settings import config_digest
from experiments.harness.significance import counts_in
from experiments.multi30k_best import BASELINE, RECIPE, Multi30kBest
from experiments.parts import distilled
from experiments.parts.both_ways import both_ways
from experiments.parts.distilled import distil
from experiments.parts.ingredients import COMPOSED, WITHOUT
from experiments.parts.monolingual import as_caption, similar_captions
from experiments.parts.together import EXPONENT, ensemble, mean_of_kept
from kvnmt.attention import kv_memory
from kvnmt.data.text import read_parallel
from kvnmt.errors import UserError
from kvnmt.files import write_lines
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.translate import translate_nbest
from kvnmt.runs import train as training
from kvnmt.runs.average import average
from kvnmt.runs.directory import load_ensemble, load_experiment, load_run
from kvnmt.target_context import self_attentive
from kvnmt.training.checkpoints import manifest as manifests
from tests.experiments.fake import never, untrained, write_captions
from tests.helpers import quiet, tiny, toy_data


@pytest.fixture
def options(tmp_path) -> Multi30kBest:
    return Multi30kBest(
        data=tmp_path,
        workdir=tmp_path / "runs",
        source="de",
        target="en",
        systems=("rnnsearch-star",),
    )


def test_every_ingredient_is_left_out_by_itself(options):
    rows = [
        multi30k_best.configure(options, "rnnsearch-star", without, 1, {})
        for without in ("", *WITHOUT)
    ]
    assert len({config_digest(row.experiment) for row in rows}) == len(rows)
    assert len({row.folder for row in rows}) == len(rows)
    for row in rows:
        assert row.experiment.data.source == options.data / "train.de"
        assert row.experiment.training.epochs == RECIPE.training.epochs


def test_ingredients_are_left_out_of_one_system(options):
    write_captions(options.data)
    two = replace(options, systems=("rnnsearch-star", "transformer"), ablate=())
    with pytest.raises(UserError, match="--ablate leaves out of one system; name one"):
        multi30k_best.main(two, train=never)


@pytest.mark.parametrize("asked", [{"both": True}, {"distil": ("rnnsearch-star",)}])
def test_links_are_of_the_pairs_as_they_are(options, asked):
    write_captions(options.data)
    links = "--data.links", "links", "--objective.guided", "1"
    linked = replace(options, config=(*options.config, *links), **asked)
    with pytest.raises(UserError, match="--data.links are .* leave"):
        multi30k_best.main(linked, train=never)


def test_ingredients_of_ones_choice_are_left_out(options, capsys):
    chosen = replace(options, ablate=("averaging", "label smoothing"), list=True)
    multi30k_best.main(chosen, train=never)
    rows = [
        line.split()[0] for line in capsys.readouterr().out.splitlines() if "-1" in line
    ]
    names = "averaging", "label-smoothing"
    assert rows == [f"de-en-rnnsearch-star-{name}-1" for name in names]
    with pytest.raises(UserError, match="no ingredient 'averagin'; did you mean"):
        multi30k_best.main(replace(chosen, ablate=("averagin",)), train=never)


def test_no_flag_undoes_what_a_system_is_composed_of(options):
    names = "kvmematt-r2-lexicon", "rnnsearch-star-lexicon-384"
    rows = [multi30k_best.configure(options, name, "", 1, {}) for name in names]
    for words in (["--model.state", "256"], ["--model.no-lexicon"]):
        with pytest.raises(UserError, match="is what the row '.*lexicon"):
            with_flags(rows, words)
    assert with_flags(rows, ["--training.epochs", "3"])


def test_a_composed_system_has_mechanisms_of_both(options):
    models = {
        name: multi30k_best.configure(options, name, "", 1, {}).experiment.model
        for name in COMPOSED
    }
    both = models["residual-memory"]
    assert isinstance(both.attention, kv_memory.Options)
    assert isinstance(both.target_context, self_attentive.Options)
    plain = multi30k_best.configure(options, BASELINE, "", 1, {}).experiment.model
    assert models["rnnsearch-star-lexicon"] == replace(plain, lexicon=True) != plain
    wide = replace(plain, lexicon=True, embedding=384, encoder=384, state=384)
    assert models["rnnsearch-star-lexicon-384"] == wide
    assert models["kvmematt-r2-lexicon"] == replace(
        plain,
        attention=both.attention,
        decoder=both.decoder,
        lexicon=True,
        merge="sum",
    )
    warmed = multi30k_best.configure(options, "transformer", "", 1, {}).experiment
    assert (warmed.optimizer.warmup, warmed.model.blocks.dropout) == (1000, 0.1)
    with pytest.raises(UserError, match="no system 'rnnsearch-sta'; did you mean"):
        multi30k_best.configure(options, "rnnsearch-sta", "", 1, {})


def test_a_row_tells_what_its_score_is_made_of(options, monkeypatch, capsys):
    monkeypatch.setattr(multi30k_best, "RECIPE", WITHOUT["joint pieces"](RECIPE))
    write_captions(options.data)
    multi30k_best.main(options, train=untrained)
    table = capsys.readouterr().out
    folder = options.workdir / "de-en-rnnsearch-star-1"
    result = json.loads((folder / "result.json").read_text())
    assert 0 <= result["test2016_bleu"] <= 100 and result["without"] == ""
    assert len(result["precisions"].split("/")) == 4
    assert len((folder / "test2016.en").read_text().splitlines()) == 4
    assert (
        counts_in(result["test2016_counts"])[:, -1].sum() == result["reference_length"]
    )
    assert result["precisions"] in table
    multi30k_best.main(options, train=never)
    assert capsys.readouterr().out in table


def test_a_row_is_told_again_by_minimum_bayes_risk(options, monkeypatch, capsys):
    monkeypatch.setattr(multi30k_best, "RECIPE", WITHOUT["joint pieces"](RECIPE))
    write_captions(options.data)
    multi30k_best.main(replace(options, mbr=3), train=untrained)
    assert "rnnsearch-star, MBR of 3" in capsys.readouterr().out
    folder = options.workdir / "de-en-rnnsearch-star-1"
    again = folder.with_name("de-en-rnnsearch-star-1-mbr-3")
    result = json.loads((again / "result.json").read_text())
    assert result["seed"] == 1 and result["based_on"].keys() == {folder.name}
    run = load_run(folder)
    search = replace(run.experiment.search, beam=5, nbest=3, mbr=EXPONENT)
    source = (options.data / "test2016.de").read_text().splitlines()
    written = (again / "test2016.en").read_text().splitlines()
    assert run.translate(source, search) == written


def test_a_row_is_told_again_by_the_mean_of_its_checkpoints(options, monkeypatch):
    """A mean that is there may be of a former training: it is made again."""
    monkeypatch.setattr(multi30k_best, "RECIPE", WITHOUT["joint pieces"](RECIPE))
    write_captions(options.data)
    multi30k_best.main(replace(options, mean=True), train=untrained)
    folder = options.workdir / "de-en-rnnsearch-star-1-mean"
    result = json.loads((folder / "result.json").read_text())
    assert (result["seed"], result["checkpoints"]) == (1, 1)
    row = folder.with_name("de-en-rnnsearch-star-1")
    before, after = load_run(row), load_run(folder / "run")
    jax.tree.map(np.testing.assert_array_equal, after.params, before.params)
    (folder / "result.json").unlink()
    shutil.rmtree(folder / "run" / "checkpoints")
    multi30k_best.main(replace(options, mean=True), train=never)
    after = load_run(folder / "run")
    jax.tree.map(np.testing.assert_array_equal, after.params, before.params)


def test_a_mean_is_of_all_checkpoints_that_were_validated(tmp_path):
    """Those are kept that a training of that kind keeps."""
    config = tiny(toy_data(tmp_path / "text"), validate_every=2, keep_last=3)
    training.run(config, tmp_path / "run", console=quiet())
    places = sorted(
        (tmp_path / "run" / "checkpoints").iterdir(), key=attrgetter("name")
    )
    manifests.write(places[0], replace(manifests.read(places[0]), score=None))
    row = Row(
        folder=tmp_path / "run",
        system="any",
        experiment=config,
        measure=lambda _: {},
        data="toy",
        tests=(),
    )
    figures = mean_of_kept(row, lambda run, folder: {}).work()
    assert figures["checkpoints"] == len(places) - 1 > 1
    average(places[1:], tmp_path / "mean")
    made, wanted = (
        load_run(folder).params
        for folder in (tmp_path / "run-mean" / "run", tmp_path / "mean")
    )
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), made, wanted)


def test_rows_translate_together_and_go_on_with_that(options, monkeypatch, capsys):
    monkeypatch.setattr(multi30k_best, "RECIPE", WITHOUT["joint pieces"](RECIPE))
    write_captions(options.data)
    workdir, systems = options.workdir, options.systems
    both = replace(options, seeds=(1, 2), distil=systems, ensemble=True)
    seen = []

    def train(experiment, folder, **others):
        seen.append(experiment)
        return untrained(experiment, folder, **others)

    multi30k_best.main(both, train=train)
    shown = capsys.readouterr().out
    assert "ensemble: rnnsearch-star, seeds 1-2" in shown
    assert "ensemble: rnnsearch-star, distilled, seeds 1-2" in shown
    folders = [
        workdir / f"de-en-{name}"
        for name in ("rnnsearch-star-1", "ensemble-rnnsearch-star-1-2")
    ]
    one, two = (json.loads((f / "result.json").read_text()) for f in folders)
    assert two["parameters"] == 2 * one["parameters"] and two["without"] == ""
    # Its members are the same, so that their mean is what each of them says.
    lines = [(folder / "test2016.en").read_text() for folder in folders]
    assert lines[0] == lines[1] and two["test2016_bleu"] == one["test2016_bleu"]
    text = read_parallel(workdir / "distilled.source", workdir / "distilled.target")
    plain = read_parallel(options.data / "train.de", options.data / "train.en")
    count = len(plain.source)
    assert text.source == [*plain.source, *plain.source]
    assert text.target[:count] == plain.target
    teachers = [workdir / f"de-en-rnnsearch-star-{seed}" for seed in both.seeds]
    told = load_ensemble(teachers).translate(
        plain.source, SearchConfig(beam=1, min_length=1)
    )
    assert text.target[count:] == told and all(told)
    for start, experiment in zip(teachers, seen[2:], strict=True):
        assert experiment.training.warm_start == start
        assert experiment.data.vocabularies == start
        assert experiment.data.target == workdir / "distilled.target"
        distilled = start.with_name(f"{start.name}-distilled")
        assert (distilled / "result.json").exists()
    multi30k_best.main(both, train=never)
    others = replace(both, seeds=(1, 2, 3))
    with pytest.raises(UserError, match="has the text of other teachers than those of"):
        multi30k_best.main(others, train=never)
    # A teacher that is trained again has another loss.
    path = teachers[0] / "result.json"
    again = json.loads(path.read_text())
    path.write_text(json.dumps(again | {"valid_loss": again["valid_loss"] + 1}))
    with pytest.raises(UserError, match="or delete 'distilled.key' there"):
        multi30k_best.main(both, train=never)


def test_a_row_learns_from_what_it_made_nearest_to_the_references(
    options, unmeasured, capsys
):
    write_captions(options.data)
    workdir = options.workdir
    alone = replace(options, distil=options.systems, candidates=3)
    multi30k_best.main(alone, train=untrained)
    assert " rnnsearch-star, distilled, nearest of 3 " in capsys.readouterr().out
    teacher = workdir / "de-en-rnnsearch-star-1"
    assert (workdir / f"{teacher.name}-distilled-nearest-of-3/result.json").exists()
    run = load_ensemble([teacher])
    plain = read_parallel(options.data / "train.de", options.data / "train.en")
    search = SearchConfig(beam=3, nbest=3, min_length=1)
    bleu = BLEU(tokenize="none", effective_order=True, force=True)
    source = [run.vocabularies.source.encode(line) for line in plain.source]
    expected = []
    translations = translate_nbest(run.model, run.params, source, search)
    for ways, reference in zip(translations, plain.target, strict=True):
        texts = [run.vocabularies.target.decode(way.ids) for way in ways]
        near = [bleu.sentence_score(text, [reference]).score for text in texts]
        expected.append(texts[near.index(max(near))])
    text = read_parallel(workdir / "distilled.source", workdir / "distilled.target")
    assert text.target == [*plain.target, *expected]
    with pytest.raises(UserError, match="or of another choice among what they make"):
        multi30k_best.main(replace(alone, candidates=4), train=never)


def test_a_row_learns_from_sources_that_a_reverse_run_makes(
    options, unmeasured, capsys
):
    """And no other run is taken for that one, under the same name or another."""
    write_captions(options.data)
    other = replace(options, source="en", target="de")
    multi30k_best.main(other, train=untrained)
    run = options.workdir / "en-de-rnnsearch-star-1"
    both = replace(options, distil=options.systems, reverse=run)
    multi30k_best.main(both, train=untrained)
    assert " rnnsearch-star, distilled, back-translated " in capsys.readouterr().out
    text = read_parallel(
        options.workdir / "distilled.source", options.workdir / "distilled.target"
    )
    plain = read_parallel(options.data / "train.de", options.data / "train.en")
    count, search = len(plain.source), SearchConfig(beam=1, min_length=1)
    made = load_ensemble([run]).translate(plain.target, search)
    assert text.source == [*plain.source, *plain.source, *made]
    assert text.target[:count] == text.target[2 * count :] == plain.target
    multi30k_best.main(both, train=never)
    moved = run.rename(run.with_name("moved"))
    with pytest.raises(UserError, match="or of another choice among what they make"):
        multi30k_best.main(replace(both, reverse=moved), train=never)
    with pytest.raises(UserError, match=f"'{run}'"):
        multi30k_best.main(both, train=never)


def test_a_row_learns_how_its_teachers_translate_further_captions(
    options, unmeasured, capsys
):
    write_captions(options.data)
    english = replace(options, source="en", target="de", distil=options.systems)
    known = (options.data / "train.en").read_text().splitlines()
    further = options.data / "further"
    new = f"{known[0]} {known[1]}".lower()
    write_lines(further, [new.capitalize(), new, "", known[0], f"{new} q w"])
    asked = replace(english, monolingual=further)
    multi30k_best.main(asked, train=untrained)
    assert " rnnsearch-star, distilled, monolingual text " in capsys.readouterr().out
    text = read_parallel(
        options.workdir / "distilled.source", options.workdir / "distilled.target"
    )
    assert text.source == [*known, *known, new]
    run = load_ensemble([options.workdir / "en-de-rnnsearch-star-1"])
    assert text.target[2 * len(known) :] == run.translate(
        [new], SearchConfig(beam=1, min_length=1)
    )
    multi30k_best.main(asked, train=never)
    with pytest.raises(UserError, match="or of another choice among what they make"):
        multi30k_best.main(english, train=never)
    write_lines(further, ["q w e"])
    other = replace(asked, workdir=options.workdir.with_name("other"))
    with pytest.raises(UserError, match="no line of '.*further' is like the captions"):
        multi30k_best.main(other, train=untrained)
    further.unlink()
    with pytest.raises(UserError, match="further"):
        multi30k_best.main(asked, train=never)


def test_captions_are_taken_that_are_like_the_text_and_in_none():
    train, measured = ["a dog runs", "a cat sleeps"], ["a cat runs"]
    lines = "A dog sleeps", "A dog runs.", "A cat runs", "A small dog", "A big bad dog"
    lines = *lines, 'A "cat" runs', lines[0]
    taken = similar_captions(lines, train, measured)
    assert taken == ["a dog sleeps", "a small dog"]


def test_captions_are_brought_into_the_form_of_the_text():
    line = """A dog's "toy", it's the man 's (2) dogs' ."""
    tokens = "a dog &apos;s &quot; toy &quot; , it &apos;s the man &apos;s ( 2 )"
    assert as_caption(line) == f"{tokens} dogs&apos; ."
    assert as_caption(as_caption("The dog's ball.")) == "the dog &apos;s ball ."


def test_the_run_of_the_other_direction_is_trained_first(options, quick, capsys):
    """Once, by the flags of all rows; and it teaches, translates and starts nothing."""
    write_captions(options.data)
    begun = []

    def train(experiment, folder, **others):
        begun.append(folder.name)
        assert experiment.model.state == 12
        return untrained(experiment, folder, **others)

    asked = replace(
        options,
        systems=("rnnsearch-star", "self-attentive-residual"),
        distil=("rnnsearch-star",),
        back_translate="rnnsearch-star",
        ensemble=True,
        config=(*options.config, "--model.state", "12"),
    )
    multi30k_best.main(asked, train=train)
    reverse, student = "en-de-rnnsearch-star-1", "de-en-rnnsearch-star-1"
    assert begun.index(reverse) < begun.index(f"{student}-distilled-back-translated")
    assert len(begun) == len(set(begun)) == 4
    assert load_experiment(options.workdir / reverse).data.source == (
        options.data / "train.en"
    )
    assert (
        "rnnsearch-star + self-attentive-residual, seeds 1" in capsys.readouterr().out
    )
    (student,) = options.workdir.glob("de-en-*-back-translated")
    assert reverse not in json.loads((student / "result.json").read_text())["based_on"]
    vectors = (*asked.config, "--training.source-vectors", "vectors")
    with pytest.raises(UserError, match=f"source-vectors is .* '{reverse}' is named"):
        multi30k_best.main(replace(asked, config=vectors), train=never)
    lines = (options.workdir / "distilled.target").read_text().splitlines()
    assert len(lines) == 3 * len((options.data / "train.en").read_text().splitlines())
    multi30k_best.main(asked, train=never)


def test_a_row_learns_from_runs_of_ones_choice(options, quick, monkeypatch, capsys):
    """Which are not awaited, need no result, and are not taken for others."""
    write_captions(options.data)
    elsewhere = replace(options, workdir=options.workdir.with_name("elsewhere"))
    multi30k_best.main(elsewhere, train=untrained)
    run = elsewhere.workdir / "de-en-rnnsearch-star-1"
    (run / "result.json").unlink()
    other = Path(shutil.copytree(run, run.with_name("other")))
    asked = []
    monkeypatch.setattr(distilled, "_translated", partial(told_apart, asked))
    chosen = replace(options, distil=options.systems, teachers=(run, other))
    multi30k_best.main(chosen, train=untrained)
    assert " rnnsearch-star, distilled by 2 runs " in capsys.readouterr().out
    assert asked == [(run, other)]
    name = "de-en-rnnsearch-star-1-distilled-by-2-runs"
    assert (options.workdir / name / "result.json").exists()
    with pytest.raises(UserError, match="has the text of other teachers than those of"):
        multi30k_best.main(replace(chosen, teachers=(run, run)), train=never)
    with pytest.raises(UserError, match="'nowhere' "):
        multi30k_best.main(replace(chosen, teachers=(Path("nowhere"),)), train=never)


def told_apart(asked, folders, text, *others):
    """Notes whose translations are asked for."""
    asked.append(folders)
    return text.target


@pytest.fixture(name="unmeasured")
def _unmeasured(monkeypatch) -> None:
    """Rows of words that are not measured."""
    monkeypatch.setattr(multi30k_best, "RECIPE", WITHOUT["joint pieces"](RECIPE))
    monkeypatch.setattr(multi30k_best, "figures_of", lambda *given: {"without": ""})


@pytest.fixture(name="quick")
def _quick(unmeasured, monkeypatch) -> None:
    """Rows that translate nothing, either."""
    blank = lambda run, lines, *others, **more: [" "] * len(lines)  # noqa: E731
    monkeypatch.setattr(distilled, "translate_lines", blank)


def test_flags_of_the_table_change_teachers_and_students(options, quick):
    """And not the text that students read; other teachers are not taken for these."""
    write_captions(options.data)
    (options.data / "train.de").write_text(
        "\n" + (options.data / "train.de").read_text().partition("\n")[2]
    )
    seen = []

    def train(experiment, folder, **others):
        seen.append(experiment)
        return untrained(experiment, folder, **others)

    flags = "--data.min-count", "1", "--data.faulty", "skip", "--training.epochs", "6"
    alone = replace(options, distil=options.systems, config=flags)
    multi30k_best.main(alone, train=train)
    teacher, student = seen
    assert student.data.source == options.workdir / "distilled.source"
    assert student.data.vocabularies == student.training.warm_start
    assert (teacher.training.epochs, student.training.epochs) == (6, 3)
    assert student.optimizer.learning_rate == teacher.optimizer.learning_rate / 2
    lines = (options.workdir / "distilled.target").read_text().splitlines()
    assert len(lines) == 2 * 39
    mark = options.workdir / "distilled.key"
    mark.write_text(mark.read_text().partition(":")[0])  # as a former version did
    multi30k_best.main(alone, train=never)
    mark.write_text(f"{mark.read_text()}:another")
    other = replace(alone, config=(*flags, "--training.batch-size", "8"))
    with pytest.raises(UserError, match="another configuration|of other teachers"):
        multi30k_best.main(other, train=never)


def test_an_ensemble_of_many_has_a_folder(options):
    """Its name is cut where a file's may not be so long."""
    names = [f"{name}, distilled, nearest of 10" for name in multi30k_best.SYSTEMS]
    row = multi30k_best.configure(options, "rnnsearch-star", "", 1, {})
    members = [replace(row, system=name) for name in names]
    many = ensemble(options.workdir, members, None)
    other = ensemble(options.workdir, members[:-1], None)
    assert many.folder != other.folder and many.result() is other.result() is None


def test_an_ensemble_of_others_is_not_taken_for_this_one(options):
    rows = [
        multi30k_best.configure(options, "rnnsearch-star", "", seed, {})
        for seed in (1, 2)
    ]
    figures = {"bleu": 1.0}
    row = replace(ensemble(options.workdir, rows, None), work=lambda: figures)
    row.make(never, Console())
    assert row.result()
    train = replace(rows[0].experiment.training, batch_size=8)
    rows[0] = replace(rows[0], experiment=replace(rows[0].experiment, training=train))
    with pytest.raises(UserError, match="measured of another configuration"):
        ensemble(options.workdir, rows, None).result()


def test_what_was_half_written_is_written_again(options, quick, capsys):
    """And a translation of blanks alone gives way to the reference."""
    write_captions(options.data)
    workdir = options.workdir
    alone = replace(options, distil=options.systems)
    multi30k_best.main(replace(alone, distil=None), train=untrained)
    for name in ("distilled.source", "distilled.target"):
        (workdir / name).write_text("a\n" * len(name))
    multi30k_best.main(alone, train=untrained)
    text = read_parallel(workdir / "distilled.source", workdir / "distilled.target")
    assert text.target[:40] == text.target[40:]
    # A student that was interrupted needs no more than what its teachers wrote.
    shutil.rmtree(workdir / "de-en-rnnsearch-star-1-distilled")
    (options.data / "train.de").unlink()
    multi30k_best.main(alone, train=untrained)
    assert (workdir / "de-en-rnnsearch-star-1-distilled" / "result.json").exists()
    options.data.rename(options.data.with_name("away"))
    multi30k_best.main(
        replace(alone, workdir=options.data.with_name("away") / "runs", show=True),
        train=never,
    )
    assert "cannot be used" not in capsys.readouterr().out


def test_text_that_others_write_is_awaited(options, capsys):
    write_captions(options.data)
    both = replace(options, seeds=(1, 2), distil=options.systems, list=True)
    multi30k_best.main(both, train=never)
    listed = capsys.readouterr().out
    assert listed.count("needs de-en-rnnsearch-star-1, de-en-rnnsearch-star-2 \n") == 2


def test_who_names_no_student_has_them_all(options):
    assert not options.students
    assert replace(options, distil=()).students == options.systems
    assert replace(options, distil=("one",)).students == ("one",)


def test_of_text_that_is_not_written_no_plan_is_made(options, capsys):
    row = multi30k_best.configure(options, "rnnsearch-star", "", 1, {})
    other = replace(row, folder=options.workdir / "other")
    show_plans([distil(row, (row, other))])
    (plan,) = json.loads(capsys.readouterr().out)
    assert plan["text written after"] == [row.folder.name, "other"]
    assert plan["config"]["training"]["warm_start"] == str(row.folder)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"ensemble": True}, "two members"),
        ({"ensemble": True, "distil": ("rnnsearch-star",)}, "two members"),
        ({"candidates": 4}, "--monolingual are of --distil"),
        ({"reverse": Path("back")}, "--candidates, --reverse, --back-translate,"),
        ({"teachers": (Path("run"),)}, "--back-translate, --teachers,"),
        ({"student_epochs": 2}, "--student-epochs and --monolingual are of --distil"),
        ({"monolingual": Path("text")}, "and --monolingual are of --distil"),
        (
            {"monolingual": Path("text"), "distil": ("rnnsearch-star",)},
            "give --source en",
        ),
        ({"back_translate": "memdec"}, "--back-translate, --teachers,"),
        (
            {
                "distil": ("rnnsearch-star",),
                "reverse": Path("back"),
                "back_translate": "memdec",
            },
            "say the same; give one",
        ),
        ({"mbr": 3, "ablate": ()}, "--mbr is .* leave --ablate out"),
        ({"mean": True, "ablate": ()}, "--mean is .* leave --ablate out"),
        ({"ensemble": True, "ablate": ()}, "--ensemble is .* leave --ablate out"),
        ({"distil": ("rnnsearch-star",), "ablate": ()}, "--distil is of whole"),
        ({"distil": ("memdec",), "seeds": (1, 2)}, "memdec is none of --systems"),
    ],
)
def test_what_makes_no_ensemble_is_told(options, changes, part):
    with pytest.raises(UserError, match=part):
        multi30k_best.main(replace(options, show=True, **changes), never)


def test_no_system_to_leave_ingredients_out_of_is_one_sentence(options):
    options = replace(options, systems=(), ablate=(), list=True)
    with pytest.raises(UserError, match="there is no row to make"):
        multi30k_best.main(options, train=never)


def test_a_row_learns_both_directions_first(options, monkeypatch, capsys):
    monkeypatch.setattr(multi30k_best, "figures_of", lambda *given: {"without": ""})
    write_captions(options.data)
    multi30k_best.main(replace(options, both=True), train=untrained)
    shown = capsys.readouterr().out
    for name in ("both directions", "after both directions"):
        assert f" rnnsearch-star, {name} " in shown
    text = read_parallel(
        options.workdir / "both-de-en.source", options.workdir / "both-de-en.target"
    )
    plain = read_parallel(options.data / "train.de", options.data / "train.en")
    assert text.source == plain.source + plain.target
    assert text.target == plain.target + plain.source
    start = options.workdir / "de-en-rnnsearch-star-1"
    first, second = (
        load_run(start.with_name(f"{start.name}-{name}")).experiment
        for name in ("both", "after-both")
    )
    assert first.data.source == options.workdir / "both-de-en.source"
    assert second.training.warm_start == options.workdir / f"{start.name}-both"
    assert second.training.new_words and second.data.source == options.data / "train.de"
    whole = RECIPE.training.epochs
    assert (first.training.epochs, second.training.epochs) == (4, 3 * whole // 4)
    for flags in (("--data.source", "other"), ("--data.faulty", "skip")):
        with pytest.raises(UserError, match="is what the row '.*' is named for"):
            multi30k_best.main(replace(options, both=True, config=flags), never)
    row = multi30k_best.configure(options, "rnnsearch-star", "", 1, {})
    (short,) = with_flags([row], ["--training.epochs", "2"])
    epochs = [part.experiment.training.epochs for part in both_ways(short)]
    assert epochs == [2, 1]
    turned = replace(options, both=True, source="en", target="de")
    multi30k_best.main(turned, train=untrained)  # in the same workdir
    assert " rnnsearch-star, after both directions " in capsys.readouterr().out


def test_a_student_goes_on_from_a_row_that_learnt_both_directions(
    options, unmeasured, capsys
):
    write_captions(options.data)
    after = options.workdir / "de-en-rnnsearch-star-1-after-both"
    seen = []

    def train(experiment, folder, **others):
        seen.append(experiment)
        return untrained(experiment, folder, **others)

    student = replace(options, both=True, distil=options.systems)
    multi30k_best.main(student, train=train)
    shown = capsys.readouterr().out
    assert " rnnsearch-star, after both directions, distilled " in shown
    training, data = seen[-1].training, seen[-1].data
    assert (training.warm_start, data.vocabularies) == (after, after)
    assert not training.new_words
    assert training.epochs == RECIPE.training.epochs * 3 // 4 // 2
    source = (options.data / "train.de").read_text().splitlines()
    search = SearchConfig(beam=1, min_length=1)
    made = load_run(after).translate(source, search)
    text = read_parallel(data.source, data.target)
    assert text.target[len(source) :] == made
