# SPDX-License-Identifier: Apache-2.0
"""What tells one row's figures from another's."""

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.harness import settings
from experiments.harness.rows import Row
from experiments.harness.settings import check_same_config, config_digest, differences
from kvnmt import attention, decoder, target_context
from kvnmt.attention import dot, none
from kvnmt.data.config import DataConfig
from kvnmt.data.text import Parallel
from kvnmt.data.tfds_builder import prepare
from kvnmt.errors import UserError
from kvnmt.runs.config import Experiment, leaves, to_plain
from kvnmt.training.config import TrainingConfig
from kvnmt.training.losses import Objective
from tests.experiments.fake import draw
from tests.experiments.workers import row_of
from tests.helpers import replaced, tiny, toy_data, write_untrained


def test_a_digest_tells_configs_apart_but_not_places_and_workers():
    base = Experiment()
    place = replace(base.data, source=Path("x"), cache=Path("y"), workers=2)
    assert config_digest(replace(base, data=place)) == config_digest(base)
    often = replace(base.training, save_minutes=5.0, log_every=7, profile=3)
    few = replace(base.search, batch_size=2)
    alike = replace(base, training=often, search=few)
    assert config_digest(alike) == config_digest(base)
    others = [
        base,
        replace(base, data=replace(base.data, min_count=9)),
        replace(base, training=TrainingConfig(seed=2)),
        replace(base, training=TrainingConfig(warm_start=Path("z"))),
        replace(base, model=replace(base.model, attention=dot.Options())),
        replace(base, model=replace(base.model, attention=none.Options())),
    ]
    assert len({*map(config_digest, others)}) == len(others)
    without = [config_digest(other, seed=False) for other in others]
    assert without[0] == without[2] and len({*without}) == len(others) - 1


def test_vectors_are_text_and_their_place_is_none(tmp_path):
    base = Experiment()
    files = [tmp_path / "one", tmp_path / "other"]
    for path in files:
        path.write_text("same")
    trained = [
        replace(base, training=replace(base.training, source_vectors=path))
        for path in files
    ]
    assert config_digest(trained[0]) == config_digest(trained[1])
    assert config_digest(trained[0]) != config_digest(base)
    assert [*map(settings.text_files, trained)] == [[path] for path in files]


def test_a_prepared_dataset_is_text_and_its_place_is_none(tmp_path):
    """Nothing is told of one that is not there."""
    sides = ["ein Haus", "ein Hund"], ["a house", "a dog"]
    for place, lines in zip("abc", [sides, sides, sides[::-1]]):
        prepare("two", {"train": Parallel(*lines)}, tmp_path / place, ("x", "y"))
    data = [DataConfig(tfds="two", tfds_folder=tmp_path / place) for place in "abcd"]
    read = [Experiment(data=replace(each, tfds_valid="train")) for each in data]
    assert len({*map(config_digest, read)}) == 1
    told = [settings.text_digest(settings.text_files(each)) for each in read]
    assert told[3] is None is not told[0]
    assert told[0] == told[1] != told[2]


def test_a_field_that_a_version_adds_changes_no_digest(monkeypatch):
    experiment = Experiment(training=TrainingConfig(epochs=3))
    before, told = config_digest(experiment), differences(experiment)
    assert told.pop("training.epochs") == 3
    assert all(path.endswith(".name") for path in told)
    plain = settings.to_plain

    def with_more(experiment):
        made = plain(experiment)
        made["training"]["new"] = made["model"]["attention"]["new"] = 0.5
        return made

    monkeypatch.setattr(settings, "to_plain", with_more)
    assert config_digest(experiment) == before


def defaults() -> dict[str, Any]:
    """Of every field of a config and of every mechanism, by its path."""
    told = leaves(to_plain(Experiment()))
    for part in (attention, decoder, target_context):
        for name, member in part.CATALOGUE.items():
            path = f"{part.CATALOGUE.kind} {name}"
            told |= leaves({path: json.loads(json.dumps(vars(member.Options())))})
    return json.loads(json.dumps(told))


def test_no_default_has_changed():
    """A digest leaves defaults out: another default needs another `SCHEME`.

    Then, and where fields are new, ``defaults.json`` is written anew: `defaults` as
    JSON, with indent 0.
    """
    before = json.loads(Path(__file__).with_name("defaults.json").read_text())
    now = defaults()
    assert {path: now.get(path) for path in before} == before


def test_links_are_text_and_not_a_choice(tmp_path):
    """Wherever they lie they are the same; other links are other text."""
    base = Experiment(objective=Objective(guided=0.5))
    guided = [replace(base, data=replace(base.data, links=tmp_path / n)) for n in "ab"]
    assert config_digest(guided[0]) == config_digest(guided[1])
    assert settings.text_files(guided[0]) == [tmp_path / "a"]


def test_a_run_of_other_vocabularies_is_refused(tmp_path):
    experiment = tiny(toy_data(tmp_path / "text"))
    folder, other = tmp_path / "row", tmp_path / "other"
    write_untrained(experiment, folder, draw)
    write_untrained(replaced(experiment, "data.vocabulary_size", 5), other, draw)

    def check(now: Path | None, before: Path | None = None) -> None:
        plain = to_plain(replaced(experiment, "data.vocabularies", before))
        (folder / "config.json").write_text(json.dumps(plain))
        row = replaced(experiment, "data.vocabularies", now)
        settings.check_same_vocabularies(row, folder)

    check(None)
    check(folder, before=other)  # what counts is what they are
    for given, before in ((other, None), (None, other), (other, other)):
        with pytest.raises(UserError, match="other vocabularies than this row"):
            check(given, before)
    settings.check_same_vocabularies(experiment, tmp_path / "nowhere")


@pytest.fixture
def measured(tmp_path):
    """A row, and what notes its result with a digest, and its config."""
    row = row_of(tmp_path / "row", Experiment())
    row.folder.mkdir()

    def note(config: str | None, plain: dict | None = None) -> Row:
        result = {"bleu": 1} | ({"config": config} if config else {})
        (row.folder / "result.json").write_text(json.dumps(result))
        if plain is not None:
            (row.folder / "config.json").write_text(json.dumps(plain))
        return row

    return note


def test_a_result_of_another_config_is_refused_and_the_fields_are_named(measured):
    other = replace(Experiment(), training=TrainingConfig(epochs=3, batch_size=7))
    with pytest.raises(UserError, match="configuration than this; .*another --workdir"):
        measured(config_digest(other)).result()
    for digest in (config_digest(other), "0123456789ab"):
        sentence = r"\(training\.epochs 3, now \d+; training\.batch_size 7, now \d+\)"
        with pytest.raises(UserError, match=sentence):
            measured(digest, to_plain(other)).result()


def test_a_result_of_a_former_version_is_taken(measured, capsys):
    """By its config, of which a field may be missing; or by nothing, which is said."""
    former = settings._former_digest(Experiment())
    assert measured(None).result() and measured(former).result()
    assert not capsys.readouterr().err
    assert measured("0123456789ab").result()
    assert "cannot be told" in "".join(capsys.readouterr())
    plain = to_plain(Experiment())
    del plain["data"]["trimmed"]
    assert measured("0123456789ab", plain).result()
    assert dataclasses.asdict(Experiment())["data"]["trimmed"] is False


def test_a_run_whose_config_was_changed_after_it_was_measured_is_told(tmp_path):
    """As by kvnmt train --resume with another beam; a former version's counts."""
    experiment = tiny(toy_data(tmp_path / "text"))
    other = replaced(experiment, "search.beam", 3)
    write_untrained(other, tmp_path / "run")
    with pytest.raises(UserError, match="another configuration than this; choose"):
        check_same_config(config_digest(experiment), other, tmp_path / "run")
    check_same_config("former", other, tmp_path / "run")
    check_same_config(config_digest(other), other, tmp_path / "run")
