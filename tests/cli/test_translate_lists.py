# SPDX-License-Identifier: Apache-2.0
"""Several translations of a line, their links, and a choice among them."""

import json
from unittest.mock import Mock

import pytest

from kvnmt.cli import answers as answering
from kvnmt.errors import UserError
from kvnmt.inference import describe as describing
from tests.cli.translating import lines_of, narrow
from tests.helpers import toy_lines, untrained


def test_lists_go_on_where_they_were_cut(kvnmt, folder, tmp_path, monkeypatch):
    """The last list may not be whole, and is made again."""
    narrow(monkeypatch)
    text, output = tmp_path / "text", tmp_path / "output"
    text.write_text("".join(f"{line}\n" for line in toy_lines(3, 20)))
    beam = "--search.beam", 3, "--search.nbest", 2, "--moses"
    asked = "translate", folder, *beam, "--input", text, "--output", output
    assert kvnmt(*asked).status == 0
    whole = output.read_bytes().splitlines(keepends=True)
    said = [line.split(b" ||| ")[:2] for line in whole]
    for there in (0, 1, 14, 15, len(whole)):
        output.write_bytes(b"".join(whole[:there]) + b"7 ||| cut"[:there])
        assert kvnmt(*asked, "--resume").status == 0
        again = output.read_bytes().splitlines(keepends=True)
        assert [line.split(b" ||| ")[:2] for line in again] == said
    assert again[:-2] == whole[:-2]  # and nothing else is


def test_lists_as_moses_writes_them(kvnmt, folder, monkeypatch):
    """Those of --json, numbered; a line that is split has the sums of its parts."""
    text = b"a b c\n\nd e f a\na b c d e f g h a b\n"
    several = "translate", folder, "--search.beam", 4, "--search.nbest", 3
    split = "--max-input", 5, "--search.batch-size", 2
    told = [
        json.loads(line)
        for line in lines_of(kvnmt(*several, *split, "--json", given=text))
    ]
    got = [
        entry.split(" ||| ")
        for entry in lines_of(kvnmt(*several, *split, "--moses", given=text))
    ]
    assert [int(entry[0]) for entry in got] == [0, 0, 0, 1, 2, 2, 2, 3, 3, 3]
    narrow(monkeypatch)
    again = lines_of(kvnmt(*several, *split, "--moses", given=text))
    assert [entry.split(" ||| ")[:2] for entry in again] == [x[:2] for x in got]
    wanted = [way for one in told[:1] + told[2:3] for way in one["nbest"]]
    halves = [part["nbest"] for part in told[3]["parts"]]
    wanted += [
        {
            "translation": " ".join(way["translation"] for way in ways),
            **{key: sum(way[key] for way in ways) for key in ("log_prob", "score")},
        }
        for ways in zip(*halves)
    ]
    for entry, way in zip(got[:3] + got[4:], wanted, strict=True):
        assert entry[1] == way["translation"]
        name, log_prob = entry[2].split(" ")
        assert name == "logP="
        numbers = float(log_prob), float(entry[3])
        assert numbers == pytest.approx((way["log_prob"], way["score"]), abs=2e-6)
    assert got[3] == ["1", "", "logP= 0.000000", "0.000000"]
    for flag in ("--json", "--nearest", "--replace-unknown"):
        value = [folder] if flag == "--nearest" else []
        said = kvnmt(*several, "--moses", flag, *value, given=text)
        assert said.status == 2 and "--moses" in said.err and "leave" in said.err


def test_links_stand_behind_translations(kvnmt, folder):
    """Those of --json; of a line that is split they count on."""
    text = b"a b c\n\nd e f a\na b c d e f g h a b\n"
    asked = "translate", folder, "--search.beam", 4, "--max-input", 5
    told = [json.loads(one) for one in lines_of(kvnmt(*asked, "--json", given=text))]
    plain = [
        one.split(" ||| ") for one in lines_of(kvnmt(*asked, "--alignment", given=text))
    ]
    assert [one[0] for one in plain] == [one["translation"] for one in told]
    assert [one[1] for one in plain[:3]] == [one["links"] for one in told[:3]]
    first, second = told[3]["parts"]
    links, words = first["links"].split(), len(first["translation"].split())
    for link in second["links"].split():
        i, j = map(int, link.split("-"))
        links.append(f"{i + 5}-{j + words}")
    assert plain[3][1].split() == links
    best = lines_of(kvnmt(*asked, "--moses", "--alignment", given=text))
    assert [one.split(" ||| ")[1::3] for one in best] == plain
    for flag in ("--json", "--nearest", "--replace-unknown"):
        value = [folder] if flag == "--nearest" else []
        said = kvnmt(*asked, "--alignment", flag, *value, given=text)
        assert said.status == 2 and "--alignment" in said.err and "leave" in said.err


def test_alignments_are_read_in_parts(kvnmt, folder, monkeypatch):
    """Which do not show."""
    text = b"a b c\n\nd e f a\na b c d e f g h a b\nc\n"
    asked = "translate", folder, "--search.beam", 4, "--search.nbest", 4

    def told() -> list:
        records = [json.loads(x) for x in lines_of(kvnmt(*asked, "--json", given=text))]
        names = "translation", "links", "tokens"  # numbers differ in their last digits
        ways = (way for one in records for way in one.get("nbest", [one]))
        linked = kvnmt(*asked, "--moses", "--alignment", given=text)
        return [lines_of(linked), *([way.get(name) for name in names] for way in ways)]

    whole = told()
    monkeypatch.setattr("kvnmt.inference.score.ROOM", 30)
    spy = Mock(wraps=describing.score)
    monkeypatch.setattr(describing, "score", spy)
    assert told() == whole
    assert spy.call_count > 4


def test_a_model_without_attention_has_no_links(kvnmt, tmp_path_factory):
    other = untrained(tmp_path_factory.getbasetemp(), "rnnencdec")
    said = kvnmt("translate", other, "--alignment", given=b"a b\n")
    assert said.status == 2 and "no attention" in said.err and not said.out


def test_of_several_the_nearest_to_the_reference_is_written(
    kvnmt, folder, tmp_path, monkeypatch
):
    """Of a line that is split, whose parts have no reference, the best of each part."""
    lines = ["a b c", "", "d e f a", "a b c d e f g h a b"]
    text = "".join(f"{line}\n" for line in lines).encode()
    several = "translate", folder, "--search.beam", 4, "--search.nbest", 4
    split = "--max-input", 5, "--search.batch-size", 2
    told = lines_of(kvnmt(*several, *split, "--json", given=text))
    best = [json.loads(line) for line in told]
    wanted = [[way["translation"] for way in one.get("nbest", [])] for one in best]
    path = tmp_path / "references"
    for place in (0, 2, 3):
        chosen = [ways[min(place, len(ways) - 1)] if ways else "x" for ways in wanted]
        path.write_text("".join(f"{line}\n" for line in chosen))
        said = kvnmt(*several, *split, "--nearest", path, given=text)
        assert lines_of(said)[:3] == [chosen[0], "", chosen[2]]
        assert lines_of(said)[3] == best[3]["translation"]
        with monkeypatch.context() as patch:
            narrow(patch)
            again = kvnmt(*several, *split, "--nearest", path, given=text)
        assert lines_of(again) == lines_of(said)
    assert len({*wanted[0]}) == len({*wanted[2]}) == 4
    path.write_text("a b\n" * 3)
    said = kvnmt(*several, "--nearest", path, given=text)
    assert said.status == 2 and "has 3 lines but the input has more" in said.err
    path.write_text("a b\n" * 5)
    said = kvnmt(*several, "--nearest", path, given=text)
    assert said.status == 2 and "has 5 lines but the input 4" in said.err
    assert said.out.count(b"\n") == 4


def test_of_several_the_most_alike_is_written(kvnmt, folder):
    """The first of --json too; no line is compared with another."""
    text = b"a b c\n\nd e f a\nb c d e f g h\nh a h b c\nc\n"
    several = "translate", folder, "--search.beam", 8, "--search.nbest", 8
    plain, chosen = (
        [json.loads(line) for line in lines_of(kvnmt(*asked, "--json", given=text))]
        for asked in (several, (*several, "--search.mbr", 0))
    )
    said = kvnmt(*several, "--search.mbr", 0, given=text)
    assert lines_of(said) == [record["translation"] for record in chosen]

    def texts(record):
        return [way["translation"] for way in record.get("nbest", [])]

    for before, after in zip(plain, chosen, strict=True):
        assert sorted(texts(before)) == sorted(texts(after))
    assert [texts(one) for one in plain] != [texts(one) for one in chosen]
    said = kvnmt("translate", folder, "--search.mbr", 0, given=text)
    assert said.status == 2
    assert "--search.mbr chooses among several" in said.err
    assert "with --search.nbest" in said.err
    said = kvnmt(*several, "--search.mbr", 0, "--nearest", folder, given=text)
    assert said.status == 2
    assert "--nearest and --search.mbr each choose" in said.err


def test_nearest_of_one_or_of_all_is_refused(kvnmt, folder, tmp_path, monkeypatch):
    path = tmp_path / "references"
    path.write_text("a\n")
    said = kvnmt("translate", folder, "--nearest", path, given=b"a\n")
    assert said.status == 2 and "--nearest chooses among several" in said.err
    several = "--search.beam", 4, "--search.nbest", 4
    monkeypatch.setattr(answering, "bleu_metric", Mock(side_effect=UserError("none.")))
    said = kvnmt("translate", folder, *several, "--nearest", path, given=b"a\n")
    assert (said.status, said.out, said.err) == (2, b"", "kvnmt: none.\n")
    said = kvnmt("translate", folder, *several, "--json", "--nearest", path)
    assert said.status == 2 and "leave out either it or --json" in said.err
    said = kvnmt("translate", folder, *several, given=b"a\n")
    assert said.status == 2 and "--nearest or --search.mbr, which choose" in said.err
