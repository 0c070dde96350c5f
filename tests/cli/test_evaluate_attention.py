# SPDX-License-Identifier: Apache-2.0
"""What `kvnmt evaluate` tells of attention: alignment, adequacy, what was read."""

import os

import pytest

from kvnmt.inference.forced import force_lines
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.translate import translate_lines
from kvnmt.metrics.adequacy import Coverage, coverage_by_attention
from kvnmt.metrics.alignment import alignment_error_rate, hard_links
from kvnmt.metrics.links import parse_pharaoh
from kvnmt.runs.directory import load_run
from tests.cli.commands import check_sentence
from tests.cli.evaluating import BEAM, GOLD, LINES, evaluated, rows
from tests.helpers import untrained


def test_alignment_error_round_by_round(kvnmt, text, tmp_path_factory):
    turned = untrained(tmp_path_factory.getbasetemp(), "rnnsearch-star", turned=True)
    found = evaluated(
        *(kvnmt, text.memory, *text.files, "--measures", "alignment"),
        *("--gold", text.folder / "test.align", "--reverse", turned),
        *("--links", text.folder / "test.align"),
    )
    told = rows(found, "alignment")
    assert "score" not in found
    run = load_run(text.memory)
    references = [line.upper() for line in LINES]
    gold = [parse_pharaoh(line) for line in GOLD]
    for name, r in (
        ("untrained-kvmematt-r2, round 1", 0),
        ("untrained-kvmematt-r2", 1),
    ):
        links = [
            hard_links(rounds[r], len(line.split()), len(line.split()))
            for rounds, line in zip(run.align(LINES, references), LINES)
        ]
        assert told[name]["aer"] == alignment_error_rate(links, gold).aer
        assert len(told[name]["sentences"]) == len(LINES)
    assert told[str(text.folder / "test.align")]["aer"] == 0
    assert "untrained-kvmematt-r2, grow-diag-final-and" in told
    assert 0 <= told["untrained-kvmematt-r2"]["soft_aer"] <= 1


def test_gold_links_may_be_of_either_direction(kvnmt, text):
    """Links from target to source are the same links, swapped."""
    last = [len(line.split()) - 1 for line in LINES]
    lines = [f"0-0 {n}-0" if n >= 0 else "" for n in last]
    turned = [f"0-0 0-{n}" if n >= 0 else "" for n in last]
    straight, swapped = text.write("one.align", lines), text.write("two.align", turned)
    common = kvnmt, text.memory, *text.files, "--measures", "alignment"
    first = evaluated(*common, "--gold", straight)
    assert first == evaluated(*common, "--gold", swapped, "--swap")
    links = "--gold", swapped, "--links", swapped, "--swap"
    both = evaluated(*common, *links, "--swap-links")
    assert rows(both, "alignment")[str(swapped)]["aer"] == 0
    count = [
        f"1p1 {n + 1}-1" if n > 0 else "1-1" if n == 0 else "" for n in last
    ]  # of a pair the first word is but possible
    pharaoh = [f"0?0 {n}-0" if n > 0 else "0-0" if n == 0 else "" for n in last]
    ones, zeros = text.write("ones.align", count), text.write("zeros.align", pharaoh)
    assert evaluated(*common, "--gold", zeros) == evaluated(
        *common, "--gold", ones, "--from-one"
    )
    asked = "evaluate", *common[1:], "--gold"
    check_sentence(kvnmt(*asked, ones), "outside", "or say --from-one if the file co")
    check_sentence(kvnmt(*asked, zeros, "--from-one"), "leave out --from-one.")
    naacl = text.write("naacl.align", ["1 1 1"])
    said = kvnmt(*asked, naacl, "--from-one")
    check_sentence(said, "NAACL format, which counts from 1 in any case; leave out")
    own = text.folder / os.fsdecode(b"caf\xe9.align")  # no name that can be printed
    own.write_text(straight.read_text())
    said = kvnmt("evaluate", *common[1:], *links[:2], "--swap", "--links", own)
    assert said.status == 0 and b"caf\\udce9.align" in said.out
    assert (
        b"have no gold link: whatever is linked there counts as wrong" not in said.out
    )


def test_pairs_without_gold_are_counted(kvnmt, text):
    """Whoever drew the links may have drawn them for some pairs alone."""
    gold = text.write("some.align", ["0-0", *[""] * (len(LINES) - 1)])
    asked = text.memory, *text.sides, "--measures", "alignment", "adequacy"
    told = evaluated(kvnmt, *asked, "--gold", gold)
    empty = sum(bool(line) for line in LINES[1:])
    count = f"{empty} of {len(LINES)} pairs have no gold link: "
    for name in ("alignment", "adequacy"):
        assert any(note.startswith(count) for note in told[name][0]["notes"])


def test_adequacy_is_exact_where_gold_is(kvnmt, text):
    """Of 36 words one is missing, one said twice, one never asked for."""
    whole = [line.upper().split() for line in LINES]
    words = sum(map(len, whole))
    n = next(i for i, line in enumerate(whole) if len(set(line)) == len(line) > 2)
    broken = [list(line) for line in whole]
    broken[n] = [*broken[n][1:], broken[n][-1], "Z"]
    perfect = text.write("perfect", [" ".join(line) for line in whole])
    worse = text.write("worse", [" ".join(line) for line in broken])
    found = evaluated(
        *(kvnmt, perfect, worse, text.memory, *text.sides, "--measures", "adequacy"),
        *("--gold", text.folder / "test.align"),
    )
    told = rows(found, "adequacy")
    kinds = "dropped", "repeated", "invented"
    assert [told["perfect"][kind] for kind in kinds] == [0, 0, 0]
    shares = [1 / words, 1 / words, 1 / (words + 1)]
    assert [told["worse"][kind] for kind in kinds] == pytest.approx(shares)
    assert told["perfect"]["repeated_1"] == 0 < told["worse"]["repeated_1"]
    assert "unread" in told["untrained-kvmematt-r2"] and "unread" not in told["worse"]


def test_what_is_read_is_of_the_attention_and_the_gold(kvnmt, text):
    given = text.memory, *text.sides, "--search.min-length", 4
    asked = (*given, "--measures", "adequacy", "--gold", text.folder / "test.align")
    found = rows(evaluated(kvnmt, *asked), "adequacy")[text.memory.name]
    run, total = load_run(text.memory), Coverage()
    config = SearchConfig(beam=1, min_length=4)
    hypotheses = translate_lines(run, LINES, config)
    for pair, line in zip(force_lines(run, LINES, hypotheses), GOLD, strict=True):
        links = parse_pharaoh(line)
        total += coverage_by_attention(
            pair.matrix(), pair.links(), links, readable=set(pair.source)
        )
    assert found["unread"] == pytest.approx(total.under)
    assert found["overread"] == pytest.approx(total.over)
    without = rows(evaluated(kvnmt, *given, "--measures", "adequacy"), "adequacy")
    assert found["overread"] != without[text.memory.name]["overread"]


def test_words_may_be_compared_by_their_first_letters(kvnmt, text):
    references = [line.upper() for line in LINES]
    longer = [" ".join(f"{word}x" for word in line.split()) for line in references]
    asked = (
        *(text.write("longer", longer), *text.files, "--measures", "adequacy"),
        *("--gold", text.folder / "test.align"),
    )
    dropped = [
        rows(evaluated(kvnmt, *asked, *stem), "adequacy")["longer"]["dropped"]
        for stem in ([], ["--stem", 1])
    ]
    assert dropped == [1, 0]


def test_trees_from_self_attention(kvnmt, text):
    lines = [line for line in LINES if line]
    sides = (
        *("--source", text.write("full.src", lines)),
        *("--reference", text.write("full.ref", [line.upper() for line in lines])),
    )
    right = []
    for line in lines:
        words = line.upper().split()
        right.append("(" + " (".join(words) + ")" * len(words))
    brackets = text.write("brackets", right)
    common = kvnmt, text.looking, *sides, *BEAM
    found = evaluated(*common, "--brackets", brackets)
    assert list(found) == ["score", "self-attention"]
    near, trees = rows(found, "self-attention"), rows(found, "self-attention", 1)
    shares = [near[text.looking.name][key] for key in [*"12345", "more"]]
    assert sum(shares) == pytest.approx(1)
    assert trees["right-branching"]["f1"] == 1
    assert 0 < trees[text.looking.name]["f1"] <= 1


def test_translations_and_pictures_are_written(kvnmt, text, tmp_path):
    said = kvnmt(
        *("evaluate", text.good, text.looking, text.memory, *text.sides),
        *("--output", tmp_path / "outputs", "--measures", "score"),
        *("--pictures", tmp_path / "pictures", "--draw", 1, 6),
        *("--gold", text.folder / "test.align"),
    )
    assert said.status == 0, said.err
    written = {path.name for path in (tmp_path / "outputs").iterdir()}
    names = text.good.name, text.looking.name, text.memory.name
    assert written == {f"{name}.txt" for name in names}
    drawn = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert drawn == {
        "bleu-by-length.png",
        "relative-positions.png",
        *(f"self-attention-{n}.png" for n in (1, 6)),
        *(f"attention-1-{name}.png" for name in names),
    }  # line 6 is empty
    assert "no attention is drawn: line 6" in said.err
    paper = "--pictures", tmp_path / "paper", "--picture-kind", "pdf", "--draw", 1
    said = kvnmt("evaluate", text.good, *text.sides, *paper, "--measures", "score")
    assert said.status == 0, said.err
    names = "bleu-by-length", f"attention-1-{text.good.name}"
    files = {path.name: path.read_bytes() for path in (tmp_path / "paper").iterdir()}
    assert files.keys() == {f"{name}.pdf" for name in names}
    for content in files.values():
        assert content.startswith(b"%PDF") and b"/Type3" not in content
    said = kvnmt("evaluate", text.good, *text.sides, *paper[2:4])
    check_sentence(said, "--picture-kind is of pictures; give --pictures too")


def test_an_alignment_asked_of_a_system_that_has_none(kvnmt, text, tmp_path_factory):
    fixed = untrained(tmp_path_factory.getbasetemp(), "rnnencdec")
    said = kvnmt("evaluate", fixed, *text.sides, "--gold", text.folder / "test.align")
    check_sentence(said, "rnnencdec", "none is a run with attention")
    gold = "--gold", text.folder / "test.align"
    said = kvnmt("evaluate", text.good, *text.sides, *gold, "--reverse", fixed)
    check_sentence(said, "rnnencdec", "no attention")
    found = evaluated(kvnmt, text.good, fixed, *text.sides, *gold)
    assert list(rows(found, "alignment")) == [text.good.name, "the diagonal"]
    assert any("rnnencdec" in note for note in found["alignment"][0]["notes"])
