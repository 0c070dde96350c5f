# SPDX-License-Identifier: Apache-2.0
"""Rows that go on: with text of their teachers, of a reverse run, of captions."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from experiments import multi30k_best
from experiments.multi30k_best import RECIPE
from experiments.parts import distilled
from experiments.parts.ingredients import WITHOUT
from experiments.parts.monolingual import as_caption, similar_captions
from kvnmt.data.outputs import write_lines
from kvnmt.data.text import read_parallel
from kvnmt.errors import UserError
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.translate import translate_nbest
from kvnmt.runs.directory import load_ensemble, load_experiment, load_run
from tests.experiments.fake import never, untrained, write_captions


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
