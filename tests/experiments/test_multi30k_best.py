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

from experiments import multi30k_best
from experiments.harness.row_flags import with_flags
from experiments.harness.rows import Row
from experiments.harness.settings import config_digest
from experiments.harness.significance import counts_in
from experiments.multi30k_best import BASELINE, RECIPE
from experiments.parts.both_ways import both_ways
from experiments.parts.ingredients import COMPOSED, WITHOUT
from experiments.parts.together import EXPONENT, ensemble, mean_of_kept
from kvnmt.attention import kv_memory
from kvnmt.data.text import read_parallel
from kvnmt.errors import UserError
from kvnmt.runs import train as training
from kvnmt.runs.average import average
from kvnmt.runs.directory import load_run
from kvnmt.target_context import self_attentive
from kvnmt.training.checkpoints import manifest as manifests
from tests.experiments.fake import never, untrained, write_captions
from tests.helpers import quiet, tiny, toy_data


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


def test_flags_that_make_two_rows_alike_are_refused(options):
    """What one is without, neither has."""
    plain = "--objective.label-smoothing", "0"
    chosen = replace(options, ablate=("", "label smoothing"), config=plain, list=True)
    alike = "'de-en-rnnsearch-star-1' and 'de-en-rnnsearch-star-label-smoothing-1'"
    with pytest.raises(UserError, match=f"the rows {alike} train the same"):
        multi30k_best.main(chosen, train=never)


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
    assert warmed.optimizer.warmup == 1000
    assert warmed.model.blocks.dropout == warmed.model.decoder.dropout == 0.1
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
