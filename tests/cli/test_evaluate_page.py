# SPDX-License-Identifier: Apache-2.0
"""`kvnmt evaluate --html`: the page that shows systems beside each other."""

import json
from pathlib import Path

import numpy as np
import pytest

from kvnmt.inference.program import SearchConfig
from kvnmt.inference.recording import memory_changes, signed_weights
from kvnmt.inference.score import score_lines
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.bleu import sentence_chrf
from kvnmt.runs.directory import load_ensemble, load_run
from tests.cli.commands import check_sentence
from tests.cli.evaluating import BEAM, LINES
from tests.helpers import untrained


def page(path: Path) -> dict:
    """The data in a page."""
    written = path.read_text(encoding="utf-8")
    start = written.index(">", written.index('type="application/json"')) + 1
    return json.loads(written[start : written.index("</script>", start)])


def test_a_page_of_an_ensemble_beside_another_run(kvnmt, text, tmp_path):
    """It has the name of its first run; what it says is what all of it says."""
    path = tmp_path / "page.html"
    runs = text.memory, text.looking
    one, *others = "--ensemble", text.good
    said = kvnmt("explore", *runs, one, *others, *text.sides, "--output", path)
    assert said.status == 0, said.err
    both, alone = page(path)["systems"]
    assert (both["name"], both["members"]) == (text.memory.name, 2)
    assert alone["members"] == 1
    together = load_ensemble([text.memory, text.good])
    search = SearchConfig(beam=1)
    lines = [sentence["source"] for sentence in page(path)["sentences"]]
    texts = [sentence["outputs"][0]["text"] for sentence in page(path)["sentences"]]
    assert texts == translate_lines(together, lines, search)


def test_a_page_to_look_at_systems(kvnmt, text, tmp_path):
    """What it shows is what was translated, aligned and written."""
    path = tmp_path / "page.html"
    runs = text.memory, text.looking
    said = kvnmt("explore", *runs, *text.sides, "--output", path, "--first", 7)
    assert said.status == 0, said.err
    assert "7 sentences" in said.err
    data = page(path)
    assert [each["rounds"] for each in data["systems"]] == [2, 1]
    parts = data["sentences"][0]["outputs"]
    told = [(o["memory"] is None, o["self_attention"] is None) for o in parts]
    assert told == [(False, True), (True, False)]
    assert [one["number"] for one in data["sentences"]] == list(range(1, 8))
    for k, folder in enumerate(runs):
        run = load_run(folder)
        parts = (run,)
        ours = translate_lines(*parts, LINES[:7], SearchConfig(beam=1))
        assert [one["outputs"][k]["text"] for one in data["sentences"]] == ours
    first = data["sentences"][0]
    output = first["outputs"][0]
    run = load_run(text.memory)
    parts = (run,)
    (scored,) = score_lines(*parts, LINES[:1], [output["text"]])
    shape = len(output["target"]), len(output["source"])
    for told, matrix in zip(output["rounds"], scored.alignments):
        assert np.shape(told) == shape
        np.testing.assert_allclose(np.array(told) / 1000, matrix, atol=0.0006)
    ids = (run.vocabularies.target.encode(output["text"]),)
    x = (run.vocabularies.source.encode(LINES[0]),)
    (changes,) = memory_changes(run.experiment.model, run.params, x, ids)
    for told, matrix in zip(output["memory"], changes.added):
        np.testing.assert_allclose(told["added"], matrix, atol=0.0006)
    references = [line.upper() for line in LINES]
    assert output["score"] == round(sentence_chrf(output["text"], references[0]), 2)
    assert output["log_prob"] == pytest.approx(scored.log_prob, abs=1e-3)
    (looking,) = first["outputs"][1]["self_attention"]
    assert np.all(np.triu(looking, 1) == 0) and np.tril(looking, -1).any()
    chrf = sentence_chrf(first["outputs"][1]["text"], output["text"])
    assert first["difference"] == pytest.approx(100 - chrf, abs=0.01)
    empty = data["sentences"][5]["outputs"][0]
    assert (empty["text"], empty["target"], empty["source"]) == ("", ["</s>"], ["</s>"])


def test_a_page_tells_what_is_read_and_what_is_taken_away(kvnmt, text, tmp_path):
    """Of every head, with the share that the decoder has written itself."""
    folder, path = untrained(text.folder, "gated-delta-memory"), tmp_path / "page.html"
    said = kvnmt("explore", folder, *text.sides, "--output", path, "--first", 2)
    assert said.status == 0, said.err
    run, written = load_run(folder), False
    for line, sentence in zip(LINES, page(path)["sentences"]):
        (output,) = sentence["outputs"]
        x = run.vocabularies.source.encode(line)
        y = run.vocabularies.target.encode(output["text"])
        (weights,) = signed_weights(run.experiment.model, run.params, [x], [y])
        for told, signed, own in zip(output["weights"], *weights, strict=True):
            np.testing.assert_allclose(told["signed"], signed, atol=0.0006)
            np.testing.assert_allclose(np.array(told["own"]) / 1000, own, atol=0.0006)
            assert (signed < -0.001).any()
            written |= own[-1] > 0.001
    assert written


def test_references_can_be_forced(kvnmt, text, tmp_path):
    path = tmp_path / "page.html"
    common = "explore", text.good, "--output", path, "--first", 2, "--forced"
    assert kvnmt(*common, *text.files).status == 0
    texts = [one["outputs"][0]["text"] for one in page(path)["sentences"]]
    assert texts == [line.upper() for line in LINES[:2]]
    assert "(nothing is translated, references are read)" in page(path)["title"]
    given = "--source", text.folder / "test.src", *BEAM
    check_sentence(kvnmt(*common, *given), "--forced reads the references")
    check_sentence(kvnmt(*common, *text.sides), "--forced only reads; leave")
    given = *text.files, "--search.batch-size", 1
    assert kvnmt(*common, *given).status == 0  # in batches that it is read in


@pytest.mark.parametrize("referenced", [True, False])
def test_a_page_reads_no_more_than_it_shows(kvnmt, text, tmp_path, referenced):
    """Of whatever is behind the first lines; only how many there are."""
    source, reference = tmp_path / "source", tmp_path / "reference"
    whole = "".join(f"{line}\n" for line in LINES[:2]).encode()
    source.write_bytes(whole + b"\xff\n")
    reference.write_bytes(whole.upper() + b"\n")
    sides = "--reference", reference
    given = "--source", source, *(sides if referenced else ()), *BEAM
    path = tmp_path / "page.html"
    said = kvnmt("explore", text.good, *given, "--output", path, "--first", 2)
    assert said.status == 0, said.err
    assert len(page(path)["sentences"]) == 2
    said = kvnmt("explore", text.good, *given, "--output", path)
    check_sentence(said, "source, line 3: byte 1")


def test_mistakes_of_the_page_are_told(kvnmt, text, tmp_path):
    source = "--source", text.folder / "test.src", *BEAM
    check_sentence(kvnmt("explore", *source), "name at least one run")
    given = "explore", text.good, *source
    check_sentence(kvnmt(*given, "--first", 0), "--first")
    said = kvnmt(*given, "--output", tmp_path / "no" / "page.html")
    check_sentence(said, "cannot be written")
    nothing = text.write("empty", [])
    said = kvnmt("explore", text.good, "--source", nothing, *BEAM)
    check_sentence(said, "empty' is empty")
