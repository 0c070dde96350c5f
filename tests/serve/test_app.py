# SPDX-License-Identifier: Apache-2.0
"""The service as its askers see it: a real server on a free port, real clients."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvnmt.cli.answers import answers
from kvnmt.cli.translate import Translate
from kvnmt.evaluation.exploration import explore
from kvnmt.inference.describe import describe
from kvnmt.inference.score import score_lines
from kvnmt.inference.shortlist import NO_TOKEN, Lexicon, Shortlist
from kvnmt.inference.translate import translate_lines
from kvnmt.serve.traffic import Traffic
from tests.helpers import toy_lines
from tests.serve.asking import translations
from tests.serve.serving import LIMITS, SEARCH, started

ODD = (
    "a\u2028b|a\x85b|a\x0cb|a\rb|c\r|\x0b|\x00 a|a\tb|\ufeffa|\U0001f600 b||  |a b a c"
)


def test_lines_are_those_of_the_command_line(service, runs):
    lines = [*ODD.split("|"), "a b c d e f g h " * 4]
    options = Translate(run=Path("run"), search=SEARCH, max_input=LIMITS.tokens)
    read = [line.removesuffix("\r") for line in lines]
    (found,) = answers(runs["plain"], [read], options)
    assert found.long == 1
    assert translations(service.post("/translate", {"lines": lines})) == found.lines
    assert translations(service.post("/translate", {"lines": []})) == []


def test_everything_is_told_of_lines(service, runs):
    lines = ["a b c", "", "d"]
    search = {"nbest": 2, "mbr": 0, "alpha": 1, "beam": 3}
    asked = {"lines": lines, "search": search, "alignments": True, "system": "memory"}
    config = replace(SEARCH, nbest=2, mbr=0.0, alpha=1.0, beam=3)
    expected = describe(runs["memory"], lines, config, expected=16)
    found = service.post("/translate", asked).json()["translations"]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        assert ours["tokens"] == theirs["tokens"]
        np.testing.assert_allclose(
            ours["token_log_probs"], theirs["token_log_probs"], atol=1e-4
        )
        texts = [
            [(one["translation"], one["links"]) for one in x["nbest"]]
            for x in (ours, theirs)
        ]
        assert texts[0] == texts[1]
    plain = asked | {"search": search | {"mbr": None}}
    best, *_ = service.post("/translate", plain).json()["translations"]
    assert best["score"] == max(one["score"] for one in best["nbest"])
    np.testing.assert_allclose(
        found[0]["alignment"], expected[0]["alignment"], atol=1e-4
    )


def test_draws_are_those_of_the_seed(service, runs):
    lines = toy_lines(3, 20)
    search = {"sample": True, "temperature": 2000, "seed": 5}
    config = replace(SEARCH, sample=True, temperature=2000.0, seed=5)
    expected = translate_lines(runs["plain"], lines, config)
    for _ in range(2):
        found = service.post("/translate", {"lines": lines, "search": search})
        assert translations(found) == expected


def test_a_line_that_is_cut_changes_no_draw_of_others(service, runs):
    lines = toy_lines(3, 6)
    search = {"sample": True, "temperature": 2, "seed": 5}
    asked = {"lines": lines, "search": search}
    before = translations(service.post("/translate", asked))
    asked["lines"] = [" ".join("abcdefgh" * 5), *lines[1:]]
    after = translations(service.post("/translate", asked))
    assert before[0] != after[0] and before[1:] == after[1:]


def test_scores_are_those_of_forced_decoding(service, runs):
    source, target = ["a b", "", "c"], ["A B", "A", "zzz"]
    expected = score_lines(runs["plain"], source, target)
    found = service.post("/score", {"source": source, "target": target})
    assert found.status_code == 200, found.text
    for ours, theirs in zip(found.json()["scores"], expected, strict=True):
        assert ours["log_prob"] == pytest.approx(theirs.log_prob, abs=1e-4)
        assert len(ours["tokens"]) == len(theirs.token_log_probs)
        assert ours["tokens"][-1] == "</s>"


def test_the_page_gets_what_the_explorer_shows(service, runs):
    found = service.post("/explore", {"line": "a b c"}).json()
    data = explore(runs, ["a b c"], None, SEARCH).data
    (expected,) = data["sentences"]
    assert found["difference"] == expected["difference"]
    for ours, theirs in zip(found["outputs"], expected["outputs"], strict=True):
        assert ours.pop("begun") == ""  # what was forced
        assert ours.keys() == theirs.keys()
        for name in ("text", "source", "target"):
            assert ours[name] == theirs[name]
        np.testing.assert_allclose(ours["rounds"], theirs["rounds"], atol=1)
    assert found["outputs"][1]["memory"] and not found["outputs"][0]["memory"]


def test_translations_begin_as_asked(service, runs):
    free = translations(service.post("/translate", {"lines": ["a b c"]}))
    asked = {"lines": ["a b c", "a b c"], "prefixes": ["H G", ""]}
    forced, again = translations(service.post("/translate", asked))
    assert forced.startswith("H G") and [again] == free
    page = {"line": "a b c", "prefixes": ["H G", ""]}
    found = service.post("/explore", page).json()["outputs"]
    assert [one["begun"] for one in found] == ["H G", ""]
    assert found[0]["text"] == forced and not found[1]["text"].startswith("H G")


def test_an_ensemble_answers_as_one_and_writes_what_a_shortlist_lets_it(both):
    words = both.vocabularies
    pairs = [(NO_TOKEN, words.target.encode("A")[0])]
    pairs += [(words.source.encode(x)[0], words.target.encode("B")[0]) for x in "bc"]
    lexicon = Lexicon(*map(np.array, zip(*pairs)), np.ones(len(pairs)))
    few = Shortlist(lexicon.ranked(), len(words.source), len(words.target))
    lines, search = ["a c", "a a", "c b"], {"unknown": False, "min_length": 2}
    config = replace(SEARCH, unknown=False, min_length=2)
    expected = translate_lines(both, lines, config, shortlist=few)
    assert set("".join(expected)) == set("AB ") and "B" not in expected[1]
    with started({"both": both}, shortlists={"both": few}) as service:
        asked = {"lines": lines, "search": search}
        assert translations(service.post("/translate", asked)) == expected
        forced = service.post("/explore", {"line": "c", "prefixes": ["C"]}).json()
    (output,) = forced["outputs"]
    assert output["text"].startswith("C")  # what was asked for is a candidate
    assert output["memory"] is output["weights"] is output["self_attention"] is None
    assert np.shape(output["rounds"]) == (1, len(output["target"]), 2)  # their mean


def test_requests_are_counted_and_noted(runs, tmp_path):
    """What somebody made up is no new name, and no text is kept."""
    log = tmp_path / "log"
    with started(runs, log=log) as service:
        service.post("/translate", {"lines": ["a b"]})
        service.post("/translate", {"lines": "a b"})
        for number in range(3):
            service.get(f"/made-up/{number}")
        reply = service.get("/metrics")
    counts = reply.text.splitlines()
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    for count in (
        'kvnmt_requests_total{path="/translate",status="200"} 1',
        'kvnmt_requests_total{path="/translate",status="400"} 1',
        'kvnmt_requests_total{path="other",status="404"} 3',
        "kvnmt_waiting_lines 0",
    ):
        assert count in counts
    assert all(re.fullmatch(r"kvnmt_\w+({.+})? \S+|# TYPE \w+ \w+", x) for x in counts)
    noted = [json.loads(line) for line in log.read_text().splitlines()]
    assert [one["status"] for one in noted] == [200, 400, 404, 404, 404, 200]
    assert noted[0].keys() == {"time", "path", "status", "seconds"}
    assert 0 < noted[0]["seconds"] < 60


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path, capsys):
    log = tmp_path / "later" / "log"
    traffic = Traffic(log)
    for _ in range(2):
        traffic.note("/health", 200, 0.5)
    assert 'path="/health",status="200"} 2' in traffic.text({})
    assert capsys.readouterr().err.count("requests are not noted") == 1
    log.parent.mkdir()
    traffic.note("/health", 200, 0.5)
    assert log.read_text().count("\n") == 1
    log.unlink()
    os.mkfifo(log)  # that nobody reads
    traffic.note("/health", 200, 0.5)
    assert capsys.readouterr().err.count("requests are not noted") == 1


def test_the_page_is_whole(service):
    text = service.get("/").text
    assert "connect-src 'self'" in text and 'id="line"' in text
    assert not re.findall(r"innerHTML|document\.write|\{\{|https?://(?!www\.w3)", text)
