# SPDX-License-Identifier: Apache-2.0
"""Lines that go in and come out: translations, scores, evaluations."""

import json
import math
from pathlib import Path

import pytest

from kvnmt.cli.pairs import windows
from kvnmt.data.text import Parallel, read_lines
from kvnmt.inference import score as scoring
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.score import Scored
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.bleu import corpus_bleu
from kvnmt.runs.directory import load_run
from tests.cli.commands import check_sentence, flags
from tests.helpers import Said, records


def expected(place: Path, lines: list[str], config: SearchConfig) -> list[str]:
    found = load_run(place)
    return translate_lines(found, lines, config)


ODD = (
    "a b\r\n\n   \nc\x0cd e\n\u2028\n\t\nunseen \u0085 b\r\na\rb\n\x0b\nlast a"
).encode()


def test_a_line_comes_out_for_every_line_that_goes_in(kvnmt, folder):
    said = kvnmt("translate", folder, given=ODD)
    assert (said.status, said.err) == (0, "")
    lines = ["a b", "", "   ", "c\x0cd e", "\u2028", "\t", "unseen \x85 b"]
    lines += ["a\rb", "\x0b", "last a"]
    assert said.out.endswith(b"\n")
    ours = said.out.decode().removesuffix("\n").split("\n")
    assert ours == expected(folder, lines, SearchConfig())
    assert ours[1] == ours[2] == ""


@pytest.mark.parametrize("given", [b"\n", b"\n\n\n", b"a", b"a\n\n"])
def test_no_line_is_lost_or_added(kvnmt, folder, given):
    said = kvnmt("translate", folder, given=given)
    assert said.out.count(b"\n") == len(given.removesuffix(b"\n").split(b"\n"))


def test_nothing_in_gives_nothing_out(kvnmt, folder):
    assert kvnmt("translate", folder) == Said(0, b"", "")


def test_the_record_of_an_empty_line_has_what_all_have(kvnmt, folder):
    said = kvnmt("translate", folder, "--json", given=b"a b\n\n")
    line, empty = (json.loads(text) for text in said.out.splitlines())
    assert line.keys() == empty.keys()
    assert empty["tokens"] == empty["token_log_probs"] == empty["alignment"] == []
    assert (empty["translation"], empty["links"], empty["log_prob"]) == ("", "", 0)


def test_input_that_is_not_utf8_is_told_with_its_line(kvnmt, folder):
    said = kvnmt("translate", folder, given=b"a\nb\n\xff\n")
    assert said.out.count(b"\n") == 2  # what stands before it is not lost
    check_sentence(said._replace(out=b""), "standard input, line 3", "0xff")


def test_evaluation_prints_scores_with_their_signature(kvnmt, folder, texts, tmp_path):
    sides = ["--source", texts / "test.src", "--reference", texts / "test.ref"]
    said = kvnmt("evaluate", *sides, folder, "--output", tmp_path / "out")
    assert (said.status, said.err) == (0, "")
    ours = expected(folder, read_lines(texts / "test.src"), SearchConfig())
    assert read_lines(tmp_path / "out") == ours
    score = corpus_bleu(ours, read_lines(texts / "test.ref"), tokenize="none")
    for part in ("BLEU", f"{score.score:.2f}", score.signature, "chrF2", "tok:none"):
        assert part in said.out.decode()


def test_evaluation_prints_json(kvnmt, folder, texts, tmp_path):
    """Against its own output a model is perfect, but for the case."""
    given = (texts / "test.src").read_bytes()
    own = kvnmt("translate", folder, "--search.beam=1", given=given).out
    (tmp_path / "own").write_bytes(own.lower())
    sides = ["--source", texts / "test.src", "--reference", tmp_path / "own"]
    common = ["--search.beam=1", "--json", "--tokenize", "13a"]
    said = kvnmt("evaluate", folder, *sides, *common, "--lowercase")
    found = json.loads(said.out)
    (row,) = found["score"][0]["rows"]
    assert "tok:13a" in row["bleu_signature"]
    assert "case:lc" in row["bleu_signature"]
    assert row["chrf"] == pytest.approx(100)
    assert row["length_ratio"] == pytest.approx(1)
    cased = json.loads(kvnmt("evaluate", folder, *sides, *common).out)
    assert cased["score"][0]["rows"][0]["chrf"] < 50


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
    kvnmt, folder, texts, tmp_path, monkeypatch, command
):
    made, batches = [], scoring.pairs_in_batches

    def noting(source, target, size, tokens, **options):
        made.append((size, tokens))
        return batches(source, target, size, tokens, **options)

    monkeypatch.setattr(scoring, "pairs_in_batches", noting)
    files = "--source", texts / "test.src", "--target", texts / "test.ref"
    sizes = "--batch-size", 3, "--batch-tokens", 64
    if command == "shortlist":
        files += "--output", tmp_path / "table"
    if command == "evaluate":
        gold = tmp_path / "gold"
        gold.write_text("0-0\n" * 3 + "\n" + "0-0\n" * 3)
        files = "--source", texts / "test.src", "--reference", texts / "test.ref"
        files += "--gold", gold, "--measures", "alignment"
        sizes = "--search.batch-size", 3, "--search.batch-tokens", 64
    said = kvnmt(command, folder, *files, *sizes)
    assert said.status == 0, said.err
    assert made and {*made} == {(3, 64)}


def test_what_has_no_probability_is_null(kvnmt, folder, tmp_path, monkeypatch):
    (tmp_path / "text").write_text("a\n")
    scored = Scored([-math.inf, -1.0], [], [])
    monkeypatch.setattr("kvnmt.cli.score.score_lines", lambda *_, **__: [scored])
    text = "--source", tmp_path / "text", "--target", tmp_path / "text"
    (line,) = kvnmt("score", folder, *text, "--json").out.splitlines()
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
