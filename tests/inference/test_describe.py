# SPDX-License-Identifier: Apache-2.0
"""What is told of a translation agrees with what scores and aligns it."""

import dataclasses
import io
import json
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import jax
import numpy as np
import pytest

from kvnmt import cli
from kvnmt.data.vocabulary import SPACE, UNK
from kvnmt.errors import UserError
from kvnmt.inference import unknown_words
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.describe import describe, join, summary
from kvnmt.inference.forced import Forced
from kvnmt.inference.score import Scored, score_lines
from kvnmt.inference.translate import (
    NOTHING,
    Translation,
    translate,
    translate_nbest,
)
from kvnmt.inference.unknown_words import (
    check_replaceable,
    fill_in,
    read_dictionary,
    replace_unknown,
)
from kvnmt.metrics.alignment import hard_links
from kvnmt.metrics.links import format_pharaoh
from kvnmt.runs.directory import Run, load_run
from tests.helpers import drawn, untrained

LINES = ["a b c", "", "d zzz a a", "h"]


@pytest.fixture(scope="module", name="run")
def _run(folder) -> Run:
    return load_run(folder)


def ids(run: Run) -> list[list[int]]:
    return [run.vocabularies.source.encode(line) for line in LINES]


def test_the_best_of_many_is_the_one(run):
    wide = SearchConfig(beam=4, nbest=4)
    many = translate_nbest(run.model, run.params, ids(run), wide)
    one = translate(run.model, run.params, ids(run), SearchConfig(beam=4))
    assert [ways[0].ids for ways in many] == [best.ids for best in one]
    assert [len(ways) for ways in many] == [4, 1, 4, 4]
    for ways in many:
        scores = [way.score for way in ways]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(way.ids) for way in ways}) == len(ways)


def test_nothing_that_may_be_written_is_no_number(run):
    """JSON has none that is infinite."""
    record = summary(run, NOTHING)
    assert record == {"translation": "", "score": None, "log_prob": None}
    whole = summary(run, Translation([], -1.0, -1.0))
    assert join([whole, whole])["log_prob"] == -2
    assert join([whole, record])["log_prob"] is None
    params = jax.tree.map(lambda leaf: leaf * np.nan, run.params)
    (told,) = describe(run._replace(params=params), ["a b"], SearchConfig(beam=1))
    json.dumps(told, allow_nan=False)
    assert set(told["token_log_probs"]) == {None}


@pytest.mark.parametrize("beam", [1, 3])
def test_length_and_unknown_words_are_in_hand(run, beam):
    params = run.params.replace(
        output=run.params.output.replace(b=run.params.output.b.at[UNK].add(50.0))
    )
    config = SearchConfig(beam=beam, length_extra=6)
    loud = translate(run.model, params, ids(run)[:1], config)[0]
    assert set(loud.ids) == {UNK}
    config = dataclasses.replace(config, unknown=False, min_length=5)
    quiet = translate(run.model, params, ids(run)[:1], config)[0]
    assert UNK not in quiet.ids and len(quiet.ids) >= 5
    assert np.isfinite(quiet.log_prob)
    config = dataclasses.replace(config, min_length=99)  # the limit wins
    longest = translate(run.model, params, ids(run)[:1], config)[0]
    assert len(longest.ids) == int(1.5 * 3) + 6 - 1


def test_all_that_is_told(run):
    told = describe(run, LINES, SearchConfig(beam=3, nbest=2))
    found = [one["translation"] for one in told]
    scored = score_lines(run, LINES, found)
    for one, again in zip(told, scored):
        if not one["translation"] and "nbest" in one and len(one["nbest"]) == 1:
            continue  # an empty line is not searched for
        assert one["log_prob"] == pytest.approx(again.log_prob, abs=1e-4)
        assert sum(one["token_log_probs"]) == pytest.approx(one["log_prob"], abs=1e-4)
        assert one["nbest"][0].items() <= one.items()
        soft = np.array(one["alignment"])
        assert soft.shape[0] == len(one["tokens"])
        np.testing.assert_allclose(soft.sum(axis=1), 1, atol=1e-4)
    empty = told[1]
    assert (empty["translation"], empty["links"], empty["log_prob"]) == ("", "", 0)
    assert empty["tokens"] == empty["token_log_probs"] == empty["alignment"] == []
    assert json.loads(json.dumps(told)) == told
    every = [way for one in told for way in one["nbest"]]
    assert [len(one["nbest"]) for one in told] == [2, 1, 2, 2]
    lines = [line for line, one in zip(LINES, told) for _ in one["nbest"]]
    again = score_lines(run, lines, [way["translation"] for way in every])
    for line, way, pair in zip(lines, every, again, strict=True):
        if line:
            np.testing.assert_allclose(
                way["token_log_probs"], pair.token_log_probs, atol=1e-4
            )
            np.testing.assert_allclose(way["alignment"], pair.alignments[-1], atol=1e-4)
            assert way["log_prob"] == pytest.approx(pair.log_prob, abs=1e-4)
        assert way.keys() == told[0]["nbest"][0].keys()


def test_words_are_linked_if_any_piece_is():
    # Source pieces 0 1 | 2, target pieces 0 | 1 2; the first is on 1, the last on 2.
    looks = np.array([[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]])
    pair = Forced(Scored([0.0] * 4, [looks], []), [0, 0, 1], [0, 1, 1], (2, 2))
    assert pair.links() == {(0, 0), (1, 1)}


def test_a_translation_without_words_has_no_links():
    """Such as a piece that is nothing but the mark of a space."""
    scored = Scored([0.0, 0.0], [np.full((2, 2), 0.5)], [])
    pair = Forced(scored, source=[0], target=[0], counts=(1, 0))
    assert pair.links() == frozenset() and pair.matrix().shape == (0, 1)


def test_unknown_words_are_filled_in():
    """A word, two that are looked up or copied, one that attends to the end."""
    looks = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 1]], float)
    tokens, unknown = ["A", *["<unk>"] * 3], [False, True, True, True]
    source = ["xx", "yy"]
    assert fill_in(tokens, unknown, source, looks, {}) == ["A", "yy", "xx"]
    written = fill_in(tokens, unknown, source, looks, {"yy": "Y Y"})
    assert written == ["A", "Y Y", "xx"]
    assert fill_in(tokens, unknown, source, looks, {"yy": ""}) == ["A", "xx"]


def test_unknown_words_are_replaced(run, tmp_path_factory, monkeypatch):
    """By the words that the alignment of the pair says."""
    known = run.vocabularies.target.encode("A")[0]
    hypotheses = [[known, UNK, UNK], [known]]
    lines = ["xx yy", "a"]
    (pair,) = score_lines(run, lines[:1], ["A Z Z"])
    places = pair.alignments[-1].argmax(axis=1)[1:3]
    words = [["xx", "yy"][place] for place in places if place < 2]
    assert replace_unknown(run, lines, hypotheses, {}) == [" ".join(["A", *words]), "A"]
    fixed = load_run(untrained(tmp_path_factory.getbasetemp(), "rnnencdec"))
    with pytest.raises(UserError, match="attention"):
        check_replaceable(fixed)
    pieces: Any = run._replace(
        vocabularies=run.vocabularies._replace(source="no words")
    )
    with pytest.raises(UserError, match="words"):
        check_replaceable(pieces)
    check_replaceable(run)
    # The second line's words are its own.
    lines, hypotheses = ["a", "xx yy"], [[known], [known, UNK, UNK]]
    again = replace_unknown(run, lines, hypotheses, {"xx": "X", "yy": "Y"})
    assert again == ["A", " ".join(["A", *(word[0].upper() for word in words)])]
    # Nor does it show that alignments are held in parts.
    lines, hypotheses = lines[1:] * 3, hypotheses[1:] * 3
    spy = Mock(wraps=unknown_words.score)
    monkeypatch.setattr(unknown_words, "score", spy)
    monkeypatch.setattr("kvnmt.inference.score.ROOM", 30)
    thrice = replace_unknown(run, lines, hypotheses, {"xx": "X", "yy": "Y"})
    assert thrice == again[1:] * 3 and spy.call_count == 2


def test_the_last_of_two_rounds_is_told(tmp_path_factory):
    run = load_run(untrained(tmp_path_factory.getbasetemp(), "kvmematt-r2"))
    run = run._replace(params=drawn(run.model))
    line = "a b c d e f"
    (told,) = describe(run, [line], SearchConfig(beam=2, min_length=4))
    (pair,) = score_lines(run, [line], [told["translation"]])
    first, last = pair.alignments
    assert (first.argmax(1) != last.argmax(1)).any()
    np.testing.assert_allclose(told["alignment"], last, atol=1e-5)
    links = hard_links(last, len(line.split()), len(last) - 1)
    assert told["links"] == format_pharaoh(links)
    unknown = [[UNK] * 6]
    (pair,) = score_lines(run, [line], ["?1 ?2 ?3 ?4 ?5 ?6"])
    first, last = (alignment[:6].argmax(1) for alignment in pair.alignments)
    assert (first != last).any()
    words = [line.split()[place] for place in last if place < 6]
    assert replace_unknown(run, [line], unknown, {}) == [" ".join(words)]


def test_links_are_those_of_aligning(tmp_path_factory, tmp_path, capsys):
    """On subwords too: a no-break space is within a word, though it begins a piece."""
    base = tmp_path_factory.getbasetemp()
    folder = untrained(base, "rnnsearch-star", vocabulary="bpe", subwords=14)
    run = load_run(folder)
    source_words = run.vocabularies.source
    lines = ["a\u00a0b c d", "f\u00a0g\u00a0a h c", "d\u00a0a b"]
    letters = [[0, 0, 1, 2], [0, 0, 0, 1, 2], [0, 0, 1]]  # the word of every letter
    forced = run.vocabularies.target.encode("A B C A")
    config = SearchConfig(beam=3, max_length=len(forced))
    told = describe(run, lines, config, prefixes=[forced] * len(lines))
    odd = False
    for line, one, words in zip(lines, told, letters):
        tokens = source_words.pieces(source_words.encode(line))
        ends = list(accumulate(token != SPACE for token in tokens))
        numbers = [words[n - (token != SPACE)] for n, token in zip(ends, tokens)]
        best = np.array(one["alignment"]).argmax(axis=1)[:-1]
        read = {numbers[place] for place in best if place < len(tokens)}
        assert {int(link.split("-")[0]) for link in one["links"].split()} == read
        marks = [n - 1 for n in accumulate(SPACE in token for token in tokens)]
        odd |= any(numbers[n] != marks[n] for n in best if n < len(tokens))
    assert odd  # what pieces alone would number otherwise is among what was read
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("".join(f"{line}\n" for line in lines))
    target.write_text("".join(f"{one['translation']}\n" for one in told))
    cli.main(["align", str(folder), "--source", str(source), "--target", str(target)])
    aligned = capsys.readouterr().out.splitlines()
    assert [one["translation"] for one in told] == ["A B C A"] * len(lines)
    assert [one["links"] for one in told] == aligned


def test_a_dictionary_is_read(tmp_path):
    path = tmp_path / "dictionary"
    path.write_text("a\tA\nb\tB C\na\tE\n")  # the best of a word comes first
    assert read_dictionary(path) == {"a": "A", "b": "B C"}
    for line in ("b B", "b\tB\t0.9"):
        path.write_text(f"a\tA\n{line}\n")
        with pytest.raises(UserError, match="dictionary, line 2"):
            read_dictionary(path)


def translated(folder: Path, monkeypatch, capfdbinary, *flags: str) -> list[str]:
    given = "".join(f"{line}\n" for line in LINES).encode()
    stdin = SimpleNamespace(buffer=io.BytesIO(given))
    monkeypatch.setattr("sys.stdin", stdin)
    cli.main(["translate", *flags, str(folder)])
    return capfdbinary.readouterr().out.decode().splitlines()


def test_the_command(folder, run, monkeypatch, capfdbinary, tmp_path):
    plain = translated(folder, monkeypatch, capfdbinary)
    told = translated(folder, monkeypatch, capfdbinary, "--json", "--search.nbest", "2")
    assert [json.loads(line)["translation"] for line in told] == plain
    assert [len(json.loads(line)["nbest"]) for line in told] == [2, 1, 2, 2]
    path = tmp_path / "dictionary"
    path.write_text("zzz\tZZZ\n")
    replaced = translated(
        *(folder, monkeypatch, capfdbinary),
        *("--replace-unknown", "--dictionary", str(path)),
    )
    with pytest.raises(SystemExit):  # neither is left out silently
        translated(folder, monkeypatch, capfdbinary, "--json", "--replace-unknown")
    assert b"--json" in capfdbinary.readouterr().err
    assert len(replaced) == len(LINES) and not any("<unk>" in r for r in replaced)
    given = []
    monkeypatch.setattr(
        "kvnmt.inference.translate.replace_unknown",
        lambda run, lines, found, words, *rest: given.append(words) or ["x"] * 4,
    )
    for flags in (["--replace-unknown"], ["--dictionary", str(path)]):
        assert translated(folder, monkeypatch, capfdbinary, *flags) == ["x"] * 4
    assert given == [{}, {"zzz": "ZZZ"}]
