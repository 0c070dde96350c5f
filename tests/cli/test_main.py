# SPDX-License-Identifier: Apache-2.0
"""The command: what people type, mistakes above all."""

import json
import math
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from kvnmt import __version__
from kvnmt.attention import additive, kv_memory
from kvnmt.cli.main import COMMANDS, load
from kvnmt.cli.pairs import windows
from kvnmt.cli.train import summary
from kvnmt.console import print_json
from kvnmt.data.text import Parallel, read_lines
from kvnmt.decoder import conditional
from kvnmt.inference import score as scoring
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.score import Scored
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.runs import config
from kvnmt.runs import train as experiment
from kvnmt.runs.directory import load_experiment, load_run
from kvnmt.training.loop import Result
from tests.helpers import DEVICES, Said, records, tiny, toy_data, toy_lines, trained

SIZES = ["--model.embedding", "8", "--model.encoder", "8", "--model.state", "8"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """A folder with a test set of seven lines, one of them empty."""
    folder = tmp_path_factory.mktemp("text")
    lines = [*toy_lines(9, 3), "", *toy_lines(10, 3)]
    (folder / "test.src").write_text("".join(f"{line}\n" for line in lines))
    (folder / "test.ref").write_text("".join(f"{line.upper()}\n" for line in lines))
    (folder / "short.ref").write_text("A\n")
    (folder / "empty").write_text("")
    (folder / "latin").write_bytes(b"a\ncaf\xe9\nb\n")
    (folder / "hole").write_text("a\n\nb\n")
    return folder


def flags(folder: Path) -> list[object]:
    """Training flags that stand for `helpers.tiny` on the text of a folder."""
    data = toy_data(folder)
    given = {
        "data.source": data.source,
        "data.target": data.target,
        "data.valid-source": data.valid_source,
        "data.valid-target": data.valid_target,
        "data.min-count": 1,
        "model.initializer": "glorot",
        "model.dropout.embedding": 0.05,
        "model.dropout.annotations": 0.05,
        "model.dropout.output": 0.1,
        "optimizer.learning-rate": 0.03,
        "training.batch-size": 16,
        "training.shapes": 1,
        "training.bleu-tokenize": "none",
    }
    named = [(f"--{name}", value) for name, value in given.items()]
    return ["--recipe", "papers", *SIZES, *(one for pair in named for one in pair)]


def check_sentence(said: Said, *parts: str) -> None:
    """One sentence for a person, and a status for a program."""
    assert said.status == 2, said.err
    assert said.out == b""
    *before, sentence = said.err.splitlines()
    assert sentence.startswith("kvnmt: ")
    assert sentence.endswith(".")
    assert "Traceback" not in said.err
    told = "training pairs", "trains on"
    assert all(any(what in line for what in told) for line in before)
    for part in parts:
        assert part in sentence


@pytest.fixture
def captured(monkeypatch) -> list[config.Experiment]:
    """Experiments that would have been run."""
    found = []

    def pretend(exp, folder, *, resume, verbose):
        found.append(exp)
        figures = dict.fromkeys(Result._fields, 1) | {"best": {"valid_loss": 1.0}}
        return Result(**figures)

    monkeypatch.setattr(experiment, "run", pretend)
    return found


# What stands for a folder of the test is written in capitals.
BAD_TRAINING = [
    (["--data.source", "NOWHERE"], "no file"),
    (["--data.source", "TEXT"], "cannot be read"),
    (
        ["--data.source", "TEXT/latin", "--data.target", "TEXT/latin"],
        "latin, line 2: byte 4 (0xe9)",
    ),
    (["--data.target", "TEXT/short.ref"], "has 1"),
    (["--data.valid-source", "TEXT/empty"], "empty' is empty"),
    (["--data.valid-source", "TEXT/hole"], "lines"),
    (
        ["--data.vocabulary", "bpe", "--data.subwords", "3", "--data.min-count", "2"],
        "--data.subwords 3",
    ),
    (["--training.batch-size", "0"], "--training.batch-size"),
    (["--training.batch-size", "9"], f"multiple of {DEVICES}"),
    (["--training.warm-start", "TEXT"], "is no run directory"),
    (["--training.new-words"], "give --training.warm-start, or leave"),
    (["--training.target-vectors", "NOWHERE"], "no file"),
    (["--training.target-vectors", "TEXT/short.ref"], "--model.embedding"),
    (
        ["--training.warm-start", "TEXT", "--training.target-vectors", "TEXT/hole"],
        "--training.warm-start copies them",
    ),
    (["--training.bleu-tokenize", "nono"], "did you mean 'none'?"),
    (
        ["--model.decoder.rounds", "2"],
        "--model.decoder.rounds is 2, but the attention writes nothing",
    ),
    (
        ["--model.readout", "none", "--model.readout-size", "9"],
        "--model.readout-size does nothing while --model.readout is none",
    ),
    (["--system", "attn", "--model.state", "10"], "attention.score general."),
    (["--system", "key-value-predict", "--model.state", "10"], "3 parts"),
    (["--system", "rnnencdec", "--objective.atteos", "1"], "--objective.atteos"),
    (["--system", "rnnencdec", "--objective.guided", "1"], "--objective.guided to 0"),
    (["--objective.guided", "1"], "name a file of them with --data.links"),
    (["--objective.risk-samples", "5"], "does nothing while --objective.risk is 0"),
    (["--data.links", "NOWHERE"], "such as 0.3"),
    (["--data.links", "NOWHERE", "--objective.guided", "1"], "no file"),
    (
        ["--data.links", "TEXT/hole", "--objective.guided", "1"],
        "sentence pairs; line n",
    ),
    (["--system", "rnnencdec", "--model.lexicon"], "--model.lexicon needs"),
    (["--objective.subtractive", "1"], "--objective.subtractive"),
    (["--model.average-auxiliary"], "--model.average-auxiliary"),
    (
        ["--model.tie", "all"],
        "a folder with the same one twice with --data.vocabularies",
    ),
    (["--system", "past", "--model.decoder.no-past"], "--model.decoder.past"),
    (["--system", "rnnserch-star"], "did you mean 'rnnsearch-star'?"),
    (["--system=kvmemat-r2"], "did you mean 'kvmematt-r2'?"),
    (["--attention", "aditive"], "did you mean 'additive'?"),
    (["--attention=kv-memory"], "did you mean 'kv_memory'?"),
    (["--decoder", "conditionl"], "did you mean 'conditional'?"),
    (["--target-context", "previous"], "did you mean 'previous_word'?"),
    (["--target_context=previous"], "did you mean 'previous_word'?"),
    (["--resume"], "is no run directory"),
]


def filled(arguments: list[object], **places: Path) -> list[str]:
    words = [str(argument) for argument in arguments]
    for name, place in places.items():
        words = [word.replace(name, str(place)) for word in words]
    return words


@pytest.mark.parametrize(("arguments", "part"), BAD_TRAINING)
def test_training_mistakes_leave_nothing_behind(kvnmt, tmp_path, text, arguments, part):
    given = [*flags(tmp_path / "data"), *arguments]
    before = set(tmp_path.rglob("*"))
    places = {"TEXT": text, "NOWHERE": tmp_path / "nowhere"}
    check_sentence(kvnmt("train", tmp_path / "new", *filled(given, **places)), part)
    assert set(tmp_path.rglob("*")) == before


def test_text_that_is_not_given_is_asked_for(kvnmt, tmp_path):
    check_sentence(kvnmt("train", tmp_path / "new"), "--data.source")
    assert not (tmp_path / "new").exists()


BAD_USE = [
    (["translate", "NOWHERE"], "is no run directory"),
    (["translate", "TEXT"], "is no run directory"),
    (["translate", "RUN", "--search.beam", "0"], "--search.beam"),
    (
        ["translate", "RUN", "--search.beam", "2", "--search.nbest", "3"],
        "--search.nbest is 3 but a beam of 2 holds no more than that; widen "
        "--search.beam or lower --search.nbest.",
    ),
    (
        ["translate", "RUN", "--search.sample", "--search.beam", "1"]
        + ["--search.diversity", "3"],
        "--search.diversity is of a beam, and --search.sample draws",
    ),
    (
        ["translate", "RUN", "--search.no-unknown", "--replace-unknown"],
        "give --search.unknown, or leave out --replace-unknown",
    ),
    (
        ["translate", "RUN", "--nearest", "TEXT/hole", "--dictionary", "TEXT/hole"],
        "--nearest chooses before unknown words are replaced",
    ),
    (
        ["translate", "RUN", "--ensemble", "NOWHERE", "--ensemble=OTHER"],
        "--ensemble stands twice, and the last alone would count",
    ),
    (
        ["evaluate", "RUN", "--source", "X", "--reference", "X"]
        + ["--more_references", "X", "--more-references", "X"],
        "--more-references stands twice",
    ),
    (
        ["prepare", "--data.symbols", "<a>", "--data.symbols", "<b>"],
        "--data.symbols stands twice",
    ),
    (
        ["benchmark", "--systems", "kvmematt-r1", "--systems", "rnnsearch-star"],
        "--systems stands twice",
    ),
    (["translate", "RUN", "--search.nbest", "5"], "one is written; give --json"),
    (["translate", "RUN", "--ensemble", "RUN"], "is named twice"),
    (["average", "RUN", "RUN/", "--output", "NOWHERE"], "is named twice"),
    (
        ["align", "RUN", "--source", "TEXT/hole", "--target", "TEXT/hole"]
        + ["--heuristic", "union"],
        "name the other with --reverse",
    ),
    (
        ["align", "RUN", "--source", "TEXT/hole", "--target", "TEXT/hole"]
        + ["--round", "2"],
        "--round is 2 but must be 1, the only one of this system",
    ),
    (
        ["align", "RUN", "--source", "TEXT/hole", "--target", "TEXT/hole"]
        + ["--round", "0"],
        "--round is 0 but must be 1, the only one of this system",
    ),
    (
        ["align", "RUN", "--source", "TEXT/hole", "--target", "TEXT/hole"]
        + ["--reverse", "RUN/"],
        "the run itself; name one that was trained in the other direction",
    ),
    (
        ["align", "RUN", "--source", "TEXT/hole", "--target", "TEXT/hole"]
        + ["--reverse", "RUN/checkpoints/80"],
        "the run itself; name one that was trained in the other direction",
    ),
    (
        ["validate", "--run", "RUN", "--source", "TEXT/hole", "--target", "TEXT/hole"]
        + ["--min-count", "3"],
        "--min-count is of words, and --run brings its own vocabularies",
    ),
    (["benchmark", "--turns", "2"], "--turns is for measuring beside another"),
    (["benchmark", "--ours", "RUN", "--theirs", "X"], "name it with --against"),
    (
        ["evaluate", "RUN", "--source", "TEXT/test.src", "--reference", "TEXT/test.src"]
        + ["--swap"],
        "--swap is of the links of --gold; give that, too",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/test.src", "--reference", "TEXT/test.src"]
        + ["--swap-links", "--gold", "TEXT/hole"],
        "--swap-links is of the links of --links; give that, too",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/test.src", "--reference", "TEXT/test.src"]
        + ["--gold", "TEXT/hole", "--measures", "alignment", "--search.beam", "50"],
        "--search.beam is for translating, and what is measured reads the references",
    ),
    (
        ["evaluate", "TEXT/hole", "--reference", "TEXT/hole", "--pictures", "NEW"]
        + ["--draw", "2"],
        "--draw chooses lines whose attention is drawn, and files of translations",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/test.src", "--reference", "TEXT/test.src"]
        + ["--stem", "4"],
        "--stem is for adequacy by gold links",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/test.src", "--reference", "TEXT/test.src"]
        + ["--reverse", "RUN/", "--gold", "TEXT/hole"],
        "the run itself; name one that was trained in the other direction",
    ),
    (
        ["evaluate", "TEXT", "--source", "TEXT/hole", "--reference", "TEXT/hole"],
        "no run directory",
    ),
    (["evaluate", "RUN", *["--source", "X", "--reference", "X"]], "no file"),
    (
        ["evaluate", "RUN", "--source", "TEXT/test.src"]
        + ["--reference", "TEXT/short.ref"],
        "has 7 lines",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/empty", "--reference", "TEXT/empty"],
        "empty' is empty",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/latin", "--reference", "TEXT/hole"],
        "latin, line 2",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/hole", "--reference", "TEXT/hole"]
        + ["--tokenize", "13b"],
        "did you mean '13a'?",
    ),
    (
        ["evaluate", "RUN", "--source", "TEXT/hole", "--reference", "TEXT/hole"]
        + ["--output", "NOWHERE/below"],
        "below' cannot be written",
    ),
    (["benchmark", "--systems", "rnnsearch-sta"], "did you mean 'rnnsearch-star'?"),
    (["benchmark", "--systems", *["mematt"] * 2], "names mematt twice; name it once"),
    (["benchmark", "--batch-size", "9"], f"{DEVICES} devices"),
    (["benchmark", "--repeats", "0"], "--repeats"),
    (
        ["benchmark", "--systems", "transformer", "--remat", "8"],
        "--remat is of decoders that go from word to word",
    ),
    (["benchmark", "--model.residual"], "--model.residual does nothing while"),
    (["benchmark", "--no-train", "--decode", "--no-split"], "--split is of training"),
    (
        ["benchmark", "--frozen", "encodr", "--vocabulary", "9", *SIZES],
        "--frozen: there is no array 'encodr'",
    ),
    (["trian", "RUN"], "did you mean 'train'?"),
    (["evalute"], "did you mean 'evaluate'?"),
    (
        ["xyz"],
        "no command 'xyz'. Known: align, average, benchmark, compile, evaluate,",
    ),
]


@pytest.mark.parametrize(("arguments", "part"), BAD_USE)
def test_mistakes_are_told_in_a_sentence(kvnmt, tmp_path, run, text, arguments, part):
    places = {"RUN": run, "TEXT": text, "NOWHERE": tmp_path / "nowhere"}
    check_sentence(kvnmt(*filled(arguments, **places)), part)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "train"),
        (["train"], "run directory to write"),
        (["evaluate", "RUN"], "--reference"),
        (["train", "NEW", "--training.epcohs", "3"], "--training.epochs"),
        (["train", "NEW", "--training.epochs", "three"], "--training.epochs"),
        (["train", "NEW", "--optimizer.name", "adagrad"], "adadelta"),
        (["train", "NEW", "--model.attention.values", "fixed"], "Unrecognized"),
        (["translate", "RUN", "--beam", "3"], "--search.beam"),
        (["benchmark", "--repaets", "3"], "--repeats"),
    ],
)
def test_flags_that_do_not_exist_are_told_with_the_nearest(
    kvnmt, tmp_path, run, arguments, part
):
    said = kvnmt(*filled(arguments, RUN=run, NEW=tmp_path / "new"))
    assert (said.status, said.out) == (2, b"")
    assert part in said.err
    assert "Traceback" not in said.err
    assert not (tmp_path / "new").exists()


def test_help_names_every_command(kvnmt):
    said = kvnmt("--help")
    assert said.status == 0
    for name in COMMANDS:
        assert f"\n  {name} ".encode() in said.out
    assert max(map(len, said.out.decode().splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_summed_up_by_its_first_line(name):
    assert COMMANDS[name].summary == load(name).__doc__.splitlines()[0]


def test_the_version_is_told(kvnmt):
    assert kvnmt("--version") == Said(0, f"kvnmt {__version__}\n".encode(), "")


def test_help_and_version_import_nothing_heavy():
    heavy = {"jax", "numpy", "tyro", "rich", "kvnmt.model.assembly", "kvnmt.cli.train"}
    code = (
        "import sys; from kvnmt.cli import main; "
        f"main(['--help']); main(['--version']); print({heavy} & {{*sys.modules}})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.endswith("set()\n"), found.stderr


def test_a_command_imports_no_other():
    code = (
        "import sys; from kvnmt.cli import main; "
        "main(['systems', '--systems', 'memdec', '--json']); "
        "print(*(name for name in sys.modules if name.startswith('kvnmt.cli.')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    modules = set(found.stdout.splitlines()[-1].split())
    parts = ("main", "flag_files", "own_code", "systems", "flags")
    assert modules == {f"kvnmt.cli.{name}" for name in parts}


@pytest.mark.parametrize("first", [True, False])
def test_the_program_cache_is_a_flag_of_every_command(kvnmt, first):
    flag = ["--program-cache", "none"]
    arguments = [*flag, "validate"] if first else ["validate", *flag]
    assert kvnmt(*arguments, "--help").status == 0
    check_sentence(kvnmt("validate", flag[0]), "--program-cache")


def test_an_existing_folder_is_refused(kvnmt, tmp_path, run):
    said = kvnmt("train", run, *flags(tmp_path / "data"))
    check_sentence(said, f"'{run}' exists already", "--resume")


def test_a_system_sets_the_defaults_of_its_flags(kvnmt, captured):
    assert kvnmt("train", "new", "--system", "kvmematt-r2-atteos").status == 0
    kvnmt("train", "new", "--system=mematt", "--objective.atteos", "0.5")
    kvnmt("train", "--model.state", "8", "new", "--attention", "kv_memory")
    two, rewritten, mixed = captured
    assert two.model.attention == kv_memory.Options()
    assert two.model.decoder == conditional.Options(rounds=2)
    assert two.objective.atteos == 1.0
    assert rewritten.model.attention == kv_memory.Options(values="rewritten")
    assert rewritten.objective.atteos == 0.5
    assert mixed.model.attention == kv_memory.Options()
    assert mixed.model.decoder == conditional.Options()
    assert mixed.model.state == 8


def test_a_system_can_be_changed_flag_by_flag(kvnmt, captured):
    changes = "--model.attention.values rewritten --model.decoder.share-rounds"
    kvnmt("train", "new", "--system", "kvmematt-r3", *changes.split())
    once = "--attention additive --model.decoder.rounds 1"
    kvnmt("train", "new", "--system", "kvmematt-r2", *once.split())
    shared, plain = (exp.model for exp in captured)
    assert shared.attention == kv_memory.Options(values="rewritten")
    assert shared.decoder == conditional.Options(rounds=3, share_rounds=True)
    assert plain.attention == additive.Options()
    assert plain.decoder == conditional.Options()


def test_training_can_be_taken_up_again(kvnmt, tmp_path, run):
    """Then every flag has the value of the run; before, some stand in a file."""
    folder, file = tmp_path / "new", tmp_path / "mine.flags"
    file.write_text(shlex.join(map(str, flags(tmp_path / "data"))))
    said = kvnmt("train", folder, "--training.epochs", "1", f"@{file}")
    assert said.status == 0 and said.out == b""
    assert "best checkpoint: step 4" in said.err
    assert f"kvnmt translate {folder} < source > target" in said.err
    assert load_experiment(folder) == tiny(toy_data(tmp_path / "data"), epochs=1)
    again = kvnmt("train", "--training.epochs", "2", folder, "--resume")
    assert again.status == 0
    assert "resuming after step 4" in again.err
    assert [record["step"] for record in records(folder)] == [4, 8]
    assert load_experiment(folder) == tiny(toy_data(tmp_path / "data"), epochs=2)


@pytest.mark.parametrize(
    "change, flag",
    [
        (["--system", "mematt"], "--attention kv_memory"),
        (["--attention=kv_memory"], "--attention kv_memory"),
        (["--model.state=9"], "--model.state 9"),
        (
            ["--data.vocabularies", "nowhere"],
            "--data.vocabularies is for a training",
        ),
        (
            ["--training.warm-start", "nowhere"],
            "--training.warm-start is for a train",
        ),
        (
            ["--training.source-vectors", "nowhere"],
            "--training.source-vectors is for",
        ),
    ],
)
def test_a_run_cannot_become_another_one(kvnmt, tmp_path, run, change, flag):
    folder = shutil.copytree(run, tmp_path / "run")
    check_sentence(kvnmt("train", folder, "--resume", *change), flag, str(folder))
    assert load_experiment(folder) == load_experiment(run)


def test_an_early_stop_tells_what_goes_on():
    figures = dict.fromkeys(Result._fields, 1) | {"best": {"valid_loss": 1.0}}
    assert "--training.patience" in summary(Result(**figures))
    assert "early" not in summary(Result(**figures | {"stopped_early": False}))
    assert "validation text; 1 target tokens/s, 1.0 minutes" in summary(
        Result(**figures)
    )
    assert "validation text; 1.0 minutes" in summary(
        Result(**figures | {"tokens_per_second": 0.0})
    )
    assert "no validation that gave a number" in summary(
        Result(**figures | {"best": {}})
    )


def test_json_is_utf8_as_it_is(capfdbinary):
    print_json({"a": "\u00e9\u2028"})
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == '{"a": "\u00e9\u2028"}\n'.encode()


def test_interrupting_is_no_crash(kvnmt, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "run", interrupted)
    said = kvnmt("train", "new")
    assert said.status == 130
    assert said.err == "kvnmt: interrupted.\n"


def expected(run: Path, lines: list[str], config: SearchConfig) -> list[str]:
    found = load_run(run)
    return translate_lines(found, lines, config)


ODD = (
    "a b\r\n\n   \nc\x0cd e\n\u2028\n\t\nunseen \u0085 b\r\na\rb\n\x0b\nlast a"
).encode()


def test_a_line_comes_out_for_every_line_that_goes_in(kvnmt, run):
    said = kvnmt("translate", run, given=ODD)
    assert (said.status, said.err) == (0, "")
    lines = ["a b", "", "   ", "c\x0cd e", "\u2028", "\t", "unseen \x85 b"]
    lines += ["a\rb", "\x0b", "last a"]
    assert said.out.endswith(b"\n")
    ours = said.out.decode().removesuffix("\n").split("\n")
    assert ours == expected(run, lines, SearchConfig())
    assert ours[1] == ours[2] == ""


@pytest.mark.parametrize("given", [b"\n", b"\n\n\n", b"a", b"a\n\n"])
def test_no_line_is_lost_or_added(kvnmt, run, given):
    said = kvnmt("translate", run, given=given)
    assert said.out.count(b"\n") == len(given.removesuffix(b"\n").split(b"\n"))


def test_nothing_in_gives_nothing_out(kvnmt, run):
    assert kvnmt("translate", run) == Said(0, b"", "")


def test_the_record_of_an_empty_line_has_what_all_have(kvnmt, run):
    said = kvnmt("translate", run, "--json", given=b"a b\n\n")
    line, empty = (json.loads(text) for text in said.out.splitlines())
    assert line.keys() == empty.keys()
    assert empty["tokens"] == empty["token_log_probs"] == empty["alignment"] == []
    assert (empty["translation"], empty["links"], empty["log_prob"]) == ("", "", 0)


def test_input_that_is_not_utf8_is_told_with_its_line(kvnmt, run):
    said = kvnmt("translate", run, given=b"a\nb\n\xff\n")
    assert said.out.count(b"\n") == 2  # what stands before it is not lost
    check_sentence(said._replace(out=b""), "standard input, line 3", "0xff")


def test_evaluation_prints_scores_with_their_signature(kvnmt, run, text, tmp_path):
    sides = ["--source", text / "test.src", "--reference", text / "test.ref"]
    said = kvnmt("evaluate", *sides, run, "--output", tmp_path / "out")
    assert (said.status, said.err) == (0, "")
    ours = expected(run, read_lines(text / "test.src"), SearchConfig())
    assert read_lines(tmp_path / "out") == ours
    score = corpus_bleu(ours, read_lines(text / "test.ref"), tokenize="none")
    for part in ("BLEU", f"{score.score:.2f}", score.signature, "chrF2", "tok:none"):
        assert part in said.out.decode()


def test_evaluation_prints_json(kvnmt, run, text, tmp_path):
    """Against its own output a model is perfect, but for the case."""
    given = (text / "test.src").read_bytes()
    own = kvnmt("translate", run, "--search.beam=1", given=given).out
    (tmp_path / "own").write_bytes(own.lower())
    sides = ["--source", text / "test.src", "--reference", tmp_path / "own"]
    common = ["--search.beam=1", "--json", "--tokenize", "13a"]
    said = kvnmt("evaluate", run, *sides, *common, "--lowercase")
    found = json.loads(said.out)
    (row,) = found["score"][0]["rows"]
    assert "tok:13a" in row["bleu_signature"]
    assert "case:lc" in row["bleu_signature"]
    assert row["chrf"] == pytest.approx(100)
    assert row["length_ratio"] == pytest.approx(1)
    cased = json.loads(kvnmt("evaluate", run, *sides, *common).out)
    assert cased["score"][0]["rows"][0]["chrf"] < 50


def command(*arguments: object, **choices) -> subprocess.CompletedProcess[bytes]:
    """Runs the command in its own process."""
    words = [sys.executable, "-m", "kvnmt", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, timeout=300, **choices)


def test_the_command_works_in_its_own_process(run):
    """Where standard output is bytes, whatever the locale is."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    given = "a\u2028b é\n\nb c".encode()
    found = command("translate", run, input=given, env=environment)
    assert found.returncode == 0, found.stderr
    ours = found.stdout.decode().split("\n")
    assert len(ours) == 4 and ours[1] == ours[3] == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("arguments", [["--help"], ["systems", "--systems", "memdec"]])
def test_output_that_cannot_be_written_is_told(arguments):
    with open("/dev/full", "wb") as full:
        words = [sys.executable, "-m", "kvnmt", *arguments]
        found = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, timeout=300)
    assert found.returncode == 2
    assert b"cannot be written (No space left" in found.stderr
    assert found.stderr.count(b"\n") == 1


def test_closed_streams_are_told(run):
    words = f"{sys.executable} -m kvnmt translate {run}"
    found = subprocess.run(f"{words} <&-", shell=True, capture_output=True, timeout=300)
    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")
    found = subprocess.run(f"{words} >&-", shell=True, capture_output=True, timeout=300)
    assert found.returncode == 2 and b"standard output is closed" in found.stderr


def test_a_device_that_is_not_there_is_told(run):
    environment = {**os.environ, "JAX_PLATFORMS": "nothing"}
    found = command("translate", run, input=b"a\n", env=environment)
    assert (found.returncode, found.stdout) == (2, b"")
    said = found.stderr.decode().splitlines()[-1]
    assert said.startswith("kvnmt: JAX finds no device of the kind 'nothing'")
    assert "Traceback" not in found.stderr.decode()


def test_a_device_that_cannot_be_started_is_told(kvnmt, run, monkeypatch):
    """Asked for devices once more JAX has the processor, which was not meant."""

    def work() -> None:
        why = "Unable to initialize backend 'cuda': no driver. (you may need to set X)"
        raise RuntimeError(why)

    monkeypatch.setattr(sys.modules["kvnmt.cli.main"], "_parse", lambda *_: work)
    before = jax.config.jax_platforms  # pyright: ignore
    jax.config.update("jax_platforms", None)
    try:
        said = kvnmt("translate", run)
    finally:
        jax.config.update("jax_platforms", before)
    assert said.status == 2
    assert "started (Unable to initialize backend 'cuda': no driver.);" in said.err
    assert "set JAX_PLATFORMS=cpu to work on" in said.err


@pytest.mark.parametrize("room, sizes", [(8, [2, 2, 1]), (2**28, [4, 1]), (1, [1] * 5)])
def test_long_pairs_are_scored_few_at_a_time(monkeypatch, room, sizes):
    """An alignment is as large as its pair is long; that of no more is held."""
    monkeypatch.setattr("kvnmt.cli.pairs.WINDOW", 4)
    monkeypatch.setattr("kvnmt.cli.pairs.ROOM", room)
    text = Parallel(["a", "b", "", "d", "e"], ["A", "B", "C", "D", "E"])
    lines = [*range(5)]
    parts = [lines[part] for part in windows(text)]
    assert [len(part) for part in parts] == sizes and sum(parts, []) == lines
    assert not [*windows(Parallel([], []))]


@pytest.mark.parametrize("command", ["score", "align", "shortlist", "evaluate"])
def test_pairs_are_read_in_batches_of_the_size_that_is_asked_for(
    kvnmt, run, text, tmp_path, monkeypatch, command
):
    made, batches = [], scoring.pairs_in_batches

    def noting(source, target, size, tokens, **options):
        made.append((size, tokens))
        return batches(source, target, size, tokens, **options)

    monkeypatch.setattr(scoring, "pairs_in_batches", noting)
    files = "--source", text / "test.src", "--target", text / "test.ref"
    sizes = "--batch-size", 3, "--batch-tokens", 64
    if command == "shortlist":
        files += "--output", tmp_path / "table"
    if command == "evaluate":
        gold = tmp_path / "gold"
        gold.write_text("0-0\n" * 3 + "\n" + "0-0\n" * 3)
        files = "--source", text / "test.src", "--reference", text / "test.ref"
        files += "--gold", gold, "--measures", "alignment"
        sizes = "--search.batch-size", 3, "--search.batch-tokens", 64
    said = kvnmt(command, run, *files, *sizes)
    assert said.status == 0, said.err
    assert made and {*made} == {(3, 64)}


def test_what_has_no_probability_is_null(kvnmt, run, tmp_path, monkeypatch):
    (tmp_path / "text").write_text("a\n")
    scored = Scored([-math.inf, -1.0], [], [])
    monkeypatch.setattr("kvnmt.cli.score.score_lines", lambda *_, **__: [scored])
    text = "--source", tmp_path / "text", "--target", tmp_path / "text"
    (line,) = kvnmt("score", run, *text, "--json").out.splitlines()
    told = json.loads(line)
    assert (told["log_prob"], told["token_log_probs"]) == (None, [None, -1.0])


def test_a_language_model_ends_with_its_perplexity(kvnmt, tmp_path):
    """It translates nothing, so there is no BLEU to tell."""
    folder = tmp_path / "new"
    given = [*flags(tmp_path / "data"), "--training.epochs", "1"]
    for flag, sentence in (
        ("--model.encoder", "does nothing while --model.merge is none"),
        ("--model.dropout.annotations", "is of a source, and a language model reads n"),
        ("--training.bleu-tokenize", "is of translations"),
    ):
        said = kvnmt("train", folder, "--system", "lm-lstm", *given)
        check_sentence(said, f"{flag} {sentence}")
        del given[(place := given.index(flag)) : place + 2]
    said = kvnmt("train", folder, "--system", "lm-lstm", *given, "--objective.risk", 1)
    check_sentence(said, "--objective.risk is of translations")
    vectors = "--training.source-vectors", tmp_path / "vectors"
    said = kvnmt("train", folder, "--system", "lm-lstm", *given, *vectors)
    check_sentence(said, "--training.source-vectors is of a table of source")
    said = kvnmt("train", folder, "--system", "lm-lstm", *given)
    assert said.status == 0, said.err
    (record,) = records(folder)
    last = said.err.splitlines()[-2]
    assert f"perplexity {math.exp(record['valid_loss']):.2f} on the" in last
    assert "BLEU" not in said.err
    assert f"kvnmt score {folder}" in said.err
    text = tmp_path / "data" / "source.txt"
    said = kvnmt("score", folder, "--source", text, "--target", text)
    check_sentence(said, "a language model, which reads no source")
    lists = tmp_path / "lists"  # numbers are of lines that nobody has to name
    lists.write_text(
        "".join(f"7 ||| {line}\n" for line in text.read_text().splitlines())
    )
    alone = kvnmt("score", folder, "--target", text).out.decode().splitlines()
    said = kvnmt("score", folder, "--nbest", lists)
    assert [one.split("= ")[1] for one in said.out.decode().splitlines()] == alone


def test_a_terminal_that_is_closed_ends_a_training_that_is_saved(tmp_path):
    """Who looked is gone, and the signal comes from the kernel and from a shell."""
    folder, (master, slave) = tmp_path / "run", pty.openpty()
    given = [*flags(tmp_path / "data"), "--training.epochs", "100000"]
    # The process takes the terminal for its own, as that of a shell does.
    lead = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    words = ["-c", f"{lead}; {KVNMT[1]}", "train", folder, *given]
    words += ["--training.validate-every", "10000000"]
    training = subprocess.Popen(
        [sys.executable, *map(str, words)],
        **dict.fromkeys(("stdin", "stdout", "stderr"), slave),
        start_new_session=True,
    )
    os.close(slave)
    seen, deadline = b"", time.monotonic() + 120
    while b"target tokens/s" not in seen and time.monotonic() < deadline:
        seen += os.read(master, 65536)
    os.close(master)
    os.kill(training.pid, signal.SIGHUP)
    assert training.wait(120) == 128 + signal.SIGHUP, seen[-500:]
    assert [
        path for path in (folder / "checkpoints").iterdir() if path.name.isdecimal()
    ]


KVNMT = ["-c", "from kvnmt.cli import main; main()"]


@pytest.mark.parametrize(
    "words",
    [
        [*KVNMT, "--help"],
        [*KVNMT, "systems", "--systems", "memdec"],
        ["-m", "experiments.growth", "--help"],
    ],
)
def test_a_reader_that_leaves_ends_it_silently(words):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, *words]
    found = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=300)
    os.close(writer)
    assert (found.returncode, found.stderr) == (141, b"")
