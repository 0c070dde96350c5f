# SPDX-License-Identifier: Apache-2.0
"""Two programs by turns: stand-ins that print what the programs print."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from kvnmt.benchmark.against import Figures, measure, row_of
from kvnmt.benchmark.config import AgainstConfig, BenchmarkConfig
from kvnmt.benchmark.peers import joeynmt
from kvnmt.benchmark.peers.base import Program
from kvnmt.benchmark.rounds import Spread
from kvnmt.errors import UserError
from kvnmt.model.config import ModelConfig

CONFIG = BenchmarkConfig(batch_size=8, decode=True, beams=(3,), batches=(1,))
PAIRS = AgainstConfig().pairs
THERE = dataclasses.replace(CONFIG, batch_size=BenchmarkConfig().batch_size)
# Training notes its place in a list; of so many tokens a second it prints the log.
TRAIN = """
import sys
name, folder, tokens = sys.argv[1:]
open(f"{folder}/../../order", "a").write(f"{name} trains\\n")
print(f"Epoch 1, num. of seqs: 9, num. of tokens: {tokens}, 2.0000[sec]")
print("Epoch 2, num. of tokens: 100, 2.0000[sec]", file=sys.stderr)
"""
TRANSLATE = """
import sys
name, folder, seconds = sys.argv[1:]
open(f"{folder}/../../order", "a").write(f"{name} translates\\n")
for line in sys.stdin:
    print(line.upper(), end="")
print(f"Generation took {seconds}[sec].", file=sys.stderr)
"""


def stand_in(name: str, tokens: int, seconds: float) -> Program:
    def train(task, folder: Path):
        folder.mkdir()
        return [("-c", TRAIN, name, str(folder), str(tokens))]

    def translate(folder: Path, search):
        assert (search.beam, search.batch_size) == (3, 1)
        return ("-c", TRANSLATE, name, str(folder), str(seconds))

    return Program(
        name=name,
        module="json",
        install="pip install json",
        train=train,
        speed=joeynmt.speed,
        translate=translate,
        seconds=joeynmt.seconds,
    )


OURS, THEIRS = stand_in("Ours", 700, 0.5), stand_in("Theirs", 100, 2.0)


def against(tmp_path: Path, **changes) -> AgainstConfig:
    text = tmp_path / "text"
    text.mkdir(exist_ok=True)
    lines = [f"w{n} a b c d" for n in range(30)]
    faulty = ["", "a\u2003b", "a  b", " ".join("abcde" * 20)]
    for part in ("train", "valid", "flickr"):
        for ending, side in (("de", lines), ("en", [line.upper() for line in lines])):
            content = "".join(f"{line}\n" for line in [*faulty, *side])
            (text / f"{part}.{ending}").write_text(content)
    config = AgainstConfig(
        against="joeynmt",
        peer_python=Path(sys.executable),
        work=tmp_path / "work",
        text=text,
        languages=("de", "en"),
        test="flickr",
        pairs=20,
        lines=10,
        turns=3,
        threads=1,
    )
    return dataclasses.replace(config, **changes)


def test_two_programs_by_turns(tmp_path):
    config = against(tmp_path)
    result = measure(CONFIG, config, programs=(OURS, THEIRS))
    order = (config.work / "order").read_text().splitlines()
    ours, theirs = "Ours", "Theirs"
    turn = [f"{ours} trains", f"{theirs} trains"]
    turn += [f"{ours} translates", f"{theirs} translates"]
    back = [f"{theirs} trains", f"{ours} trains"]
    back += [f"{theirs} translates", f"{ours} translates"]
    assert order == turn + back + turn
    assert result.peer.startswith("Theirs ")
    assert (result.task.pairs, result.lines, result.turns) == (20, 10, 3)
    train, whole, translate = result.rows
    assert train.ours.median == 800 / 4 and train.theirs.median == 200 / 4
    assert train.ratio == Spread(4, 4, 4)
    assert whole.unit == "seconds" and whole.ours.median > 0
    assert translate.ours.median == 20 and translate.theirs.median == 5
    assert translate.ratio == Spread(4, 4, 4)
    assert translate.bleu is not None and translate.bleu[0] > 99
    kept = json.loads((config.work / "figures.json").read_text())
    assert kept["train, target tokens/s"]["ours"] == [200.0] * 3


def test_both_read_only_what_both_read_alike(tmp_path):
    config = against(tmp_path, turns=1)
    measure(CONFIG, config, programs=(OURS, THEIRS))
    for part, count in (("train", 20), ("valid", 30), ("test", 10)):
        text = config.work / "text"
        source, target = (
            (text / f"{part}.{ending}").read_text().splitlines()
            for ending in ("de", "en")
        )
        assert source == [f"w{n} a b c d" for n in range(count)]
        assert target == [line.upper() for line in source]


def test_models_that_are_there_translate(tmp_path):
    config = against(tmp_path, turns=1)
    models = {side: tmp_path / "there" / side for side in ("ours", "theirs")}
    for folder in models.values():
        folder.mkdir(parents=True)
        (folder / "config.json").touch()
    assert config.text
    for path in config.text.glob("[tv]*"):  # of which nothing is learnt
        path.unlink()
    config = dataclasses.replace(config, pairs=PAIRS, **models)
    result = measure(THERE, config, programs=(OURS, THEIRS))
    assert result.models == tuple(map(str, models.values()))
    assert [row.what for row in result.rows] == ["translate, beam 3, batch 1"]


def test_a_shortlist_stands_beside_exact_search(tmp_path):
    """Ours is run with it once more; theirs stands beside both."""

    def translate(folder: Path, search):
        seconds = 0.25 if search.shortlist == tmp_path / "table" else 0.5
        return ("-c", TRANSLATE, "Ours", str(folder), str(seconds))

    models = {side: tmp_path / "there" / side for side in ("ours", "theirs")}
    for folder in models.values():
        folder.mkdir(parents=True)
        (folder / "config.json").touch()
    (tmp_path / "table").touch()
    there = {"shortlist": tmp_path / "table", "pairs": PAIRS} | models
    config = against(tmp_path, turns=2, **there)
    result = measure(
        THERE, config, programs=(OURS._replace(translate=translate), THEIRS)
    )
    exact, few = result.rows
    assert few.what == "translate, beam 3, batch 1, shortlist"
    assert (exact.ratio.median, few.ratio.median) == (4, 8)
    assert exact.theirs == few.theirs and few.bleu is not None
    logs = {path.name for path in config.work.glob("turn-2/*.log")}
    assert "ours-translate-3-1-shortlist.log" in logs


def test_ratios_are_of_one_turn():
    row = row_of("x", "target tokens/s", Figures([10, 40, 20], [10, 20, 20]))
    assert row.ratio == Spread(1, 1, 1.5)
    row = row_of("x", "seconds", Figures([10, 40, 20], [20, 20, 80]))
    assert row.ratio == Spread(1.25, 2, 3)


def test_a_program_that_is_not_installed_is_told(kvnmt, tmp_path):
    work = tmp_path / "work"
    said = kvnmt("benchmark", "--against", "joeynmt", "--work", work)
    assert said.status == 2 and not work.exists()
    assert "cannot import joeynmt; install JoeyNMT" in said.err
    assert "pip install torch joeynmt importlib_metadata" in said.err
    assert "--peer-python" in said.err
    flags = ("--against", "opennmt", "--peer-python", tmp_path / "none")
    said = kvnmt("benchmark", *flags)
    assert said.status == 2 and "cannot be run" in said.err


def test_a_program_that_fails_is_told_with_what_it_said(tmp_path):
    code = "import sys; print('no such option'); sys.exit(3)"
    failing = OURS._replace(train=lambda task, folder: [("-c", code)])
    config = against(tmp_path)
    with pytest.raises(UserError, match="status 3: no such option .*ours-train.log"):
        measure(CONFIG, config, programs=(failing, THEIRS))


def test_what_failed_later_takes_no_figure_away(tmp_path):
    code = "import os, sys; sys.exit(os.path.exists(sys.argv[1]))"

    def train(task, folder: Path):
        first = OURS.train(task, folder)
        return [*first, ("-c", code, str(folder.parent.parent / "turn-2"))]

    config = against(tmp_path)
    with pytest.raises(UserError, match="ended with status 1"):
        measure(CONFIG, config, programs=(OURS._replace(train=train), THEIRS))
    kept = json.loads((config.work / "figures.json").read_text())
    assert kept["train, target tokens/s"]["theirs"] == [50.0]


def test_what_the_other_cannot_train_is_told_before(tmp_path):
    def refuse(task):
        raise UserError("it has no such width.")

    programs = OURS, THEIRS._replace(check=refuse)
    with pytest.raises(UserError, match="no such width"):
        measure(CONFIG, against(tmp_path), programs=programs)
    measure(CONFIG, against(tmp_path, turns=1), programs=(OURS, THEIRS))  # same --work


def test_a_log_without_a_speed_is_told(tmp_path):
    silent = THEIRS._replace(train=lambda task, folder: [("-c", "print(1)")])
    with pytest.raises(UserError, match="does not tell its speed"):
        measure(CONFIG, against(tmp_path), programs=(OURS, silent))


@pytest.mark.parametrize(
    "changes, config, said",
    [
        ({"ours": Path("a")}, {}, "give both"),
        ({}, {"train": False}, "nothing to translate with"),
        ({"ours": Path("a"), "theirs": Path("b")}, {"decode": False}, "--decode"),
        ({"ours": Path("a"), "theirs": Path("b")}, {}, "'a' is no run directory"),
        (
            {"ours": Path("a/checkpoints/3"), "theirs": Path("b")},
            {},
            "no checkpoint 'a/checkpoints/3'",
        ),
        ({"work": Path(".")}, {}, "is not empty"),
        ({"work": Path(__file__)}, {}, "is no folder"),
        ({}, {"dtype": "bfloat16"}, "dtype is of systems beside each other"),
        ({}, {"decode": False}, "beams are of translating; give decode too"),
        ({}, {"vocabulary": 77}, "vocabulary is of systems beside each other"),
        ({}, {"model": ModelConfig(merge="sum")}, "leave out the others"),
        ({}, {"systems": ("rnnsearch", "mematt")}, "measures one system"),
        ({}, {"beams": (2000,)}, "--beams: beam is 2000 but must be"),
        ({"longest": 3}, {}, "nothing is left"),
        ({"shortlist": Path("a")}, {}, "--shortlist .* give --ours too"),
        ({"test": "none"}, {}, "none.de"),
        ({"text": None}, {}, "languages is of the files in text; give text too"),
    ],
)
def test_what_cannot_be_measured_is_told(tmp_path, changes, config, said):
    flags = dataclasses.replace(CONFIG, **config)
    with pytest.raises(UserError, match=said):
        measure(flags, against(tmp_path, **changes), programs=(OURS, THEIRS))
    assert not (tmp_path / "work").exists()  # the next attempt needs no other --work


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    config = AgainstConfig(against="joeynmt", work=tmp_path / "file" / "work")
    with pytest.raises(UserError, match="cannot be made: Not a directory"):
        measure(CONFIG, config, programs=(OURS, THEIRS))


def test_made_up_text_needs_no_files(kvnmt, tmp_path, monkeypatch):
    """And the report can be kept."""
    monkeypatch.setattr("kvnmt.benchmark.peers.ours.PROGRAM", OURS)
    monkeypatch.setitem(
        __import__("kvnmt.benchmark.peers", fromlist=["PEERS"]).PEERS, "joeynmt", THEIRS
    )
    said = kvnmt(
        *("benchmark", "--against", "joeynmt", "--work", tmp_path / "work"),
        *("--pairs", 12, "--valid-pairs", 5, "--turns", 1, "--json"),
        *("--batch-size", 8),
    )
    assert said.status == 0, said.err
    report = json.loads(said.out)
    assert report["task"]["pairs"] == 12
    assert report["text"] == "a made-up language"
    assert report["rows"][0]["ratio"]["median"] == 4
