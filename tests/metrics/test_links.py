# SPDX-License-Identifier: Apache-2.0
"""Files of links, their mistakes, and two directions joined."""

from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.errors import UserError
from kvnmt.metrics.links import (
    Gold,
    Heuristic,
    Links,
    check_links,
    diagonal,
    format_pharaoh,
    invert,
    parse_pharaoh,
    read_gold,
    symmetrize,
)

links = st.frozensets(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12)


def test_the_diagonal_links_words_at_the_same_share():
    assert diagonal(2, 4) == {(0, 0), (0, 1), (1, 2), (1, 3)}
    assert diagonal(4, 2) == {(1, 0), (3, 1)}
    assert diagonal(3, 3) == {(0, 0), (1, 1), (2, 2)}
    assert diagonal(0, 2) == diagonal(2, 0) == frozenset()


@given(st.integers(1, 40), st.integers(1, 40))
def test_the_diagonal_rises_from_word_to_word(source, target):
    links = sorted(diagonal(source, target), key=lambda link: link[1])
    assert [j for _, j in links] == [*range(target)]
    places = [i for i, _ in links]
    assert places == sorted(places) and {*places} <= {*range(source)}


def test_sure_links_are_possible():
    assert parse_pharaoh(" 0-1 2?3\r") == Gold(
        frozenset({(0, 1)}), frozenset({(0, 1), (2, 3)})
    )
    with pytest.raises(ValueError, match="possible"):
        Gold(frozenset({(0, 0)}), frozenset())


@given(links)
def test_format_and_parse_are_inverse(drawn):
    text = format_pharaoh(drawn)
    assert parse_pharaoh(text) == Gold(drawn, drawn)
    assert parse_pharaoh(text.replace("-", "?")) == Gold(frozenset(), drawn)


def test_format_is_sorted_by_number():
    assert format_pharaoh([(10, 0), (2, 1), (2, 0)]) == "2-0 2-1 10-0"


@pytest.mark.parametrize(
    "token", ["1", "1-", "-1-2", "1-2-3", "a-b", "1:2", "١-٢", "9" * 5000 + "-1"]
)
def test_malformed_token(tmp_path, token):
    path = tmp_path / "gold.align"
    path.write_text(f"0-0\n\n0-1 {token}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"gold\.align, line 3: .* is not a link"):
        read_gold(path)


def test_a_number_that_no_sentence_has(tmp_path):
    path = tmp_path / "gold.wa"
    path.write_text(f"{'9' * 5000} 1 1\n")
    with pytest.raises(UserError, match=r"gold\.wa, line 1: .* is not a link"):
        read_gold(path, 1)


def test_read_splits_on_line_feeds_only(tmp_path):
    path = tmp_path / "gold.align"
    path.write_bytes("0-0\u20281-1\x0b2-2\r\n\n3?3".encode())
    assert [len(gold.possible) for gold in read_gold(path)] == [3, 0, 1]


def test_unreadable_files(tmp_path):
    path = tmp_path / "gold.align"
    with pytest.raises(UserError, match=r"gold\.align"):
        read_gold(path)
    path.write_bytes(b"0-0\n\xff\n")
    with pytest.raises(UserError, match=r"gold\.align, line 2"):
        read_gold(path)
    path.write_bytes(b"\n\n")
    with pytest.raises(UserError, match="holds no links"):
        read_gold(path)


def test_as_many_lines_as_sentence_pairs(tmp_path):
    path = tmp_path / "gold.align"
    path.write_text("0-0\n0-0\n")
    assert len(read_gold(path, 2)) == 2
    with pytest.raises(UserError, match=r"has 2 lines for 3 sentence pairs"):
        read_gold(path, 3)


NAACL = "0001 1 1 S\n0001 2 3 P\n\n0003 1 2\n3 2 2 S 0.75\n3 0 1 S\n"


def test_the_naacl_format(tmp_path):
    """Counted from 1; sure unless it says P; 0 is no word; gaps are empty pairs."""
    path = tmp_path / "gold.naacl"
    path.write_text(NAACL)
    texts = "0-0 1?2", "", "0-1 1-1"
    assert read_gold(path) == [parse_pharaoh(text) for text in texts]
    assert read_gold(path, 4) == [*read_gold(path), parse_pharaoh("")]
    with pytest.raises(UserError, match=r"line 4: there is no sentence pair 3"):
        read_gold(path, 2)
    with pytest.raises(UserError, match="gold.naacl, pair 3: link 1-1 lies outside"):
        check_links(read_gold(path), [2, 1, 1], [3, 1, 2], path)
    path.write_text(NAACL + "5 1 0 S\n")  # a pair that has no link is one, too
    assert read_gold(path)[3:] == [parse_pharaoh("")] * 2
    path.write_text(NAACL + "4 x 1 S\n")
    with pytest.raises(UserError, match=r"line 7: '4 x 1 S' is not a link"):
        read_gold(path)


def test_a_heading_of_a_table_of_links_is_told(tmp_path):
    path = tmp_path / "gold.naacl"
    path.write_text(f"sent src tgt type\n{NAACL}")
    with pytest.raises(UserError, match="line 1 is no link, and what follows .*NAACL"):
        read_gold(path, 5)


def test_links_outside_their_sentence():
    gold = [parse_pharaoh("0-0"), parse_pharaoh("1?2 0-1")]
    check_links(gold, [1, 2], [1, 3], Path("gold.align"))
    with pytest.raises(UserError, match="line 2: link 1-2 .* 1 source and 3"):
        check_links(gold, [1, 1], [1, 3], Path("gold.align"))
    with pytest.raises(UserError, match="line 2: link 1-2 .* 2 source and 2"):
        check_links(gold, [1, 2], [1, 2], Path("gold.align"))
    with pytest.raises(UserError, match="2 lines for 1 source and 2 target"):
        check_links(gold, [1], [1, 3], Path("gold.align"))


def test_symmetrization_by_hand():
    # forward  00 11 12 33      backward  00 11 21 44      (source, target)
    #
    # intersection  00 11
    # grow-diag     12: source 1 has a link, target 2 has none and it is beside 11: in.
    #               21: source 2 has none, beside 11: in. 33: beside nothing that is in
    #               (22 is not in the union). 44: no neighbour.
    # final         33, then 44: both their words are free; final-and the same.
    forward = parse_pharaoh("0-0 1-1 1-2 3-3").sure
    backward = parse_pharaoh("0-0 1-1 2-1 4-4").sure
    expected = {
        "intersection": "0-0 1-1",
        "union": "0-0 1-1 1-2 2-1 3-3 4-4",
        "grow-diag": "0-0 1-1 1-2 2-1",
        "grow-diag-final": "0-0 1-1 1-2 2-1 3-3 4-4",
        "grow-diag-final-and": "0-0 1-1 1-2 2-1 3-3 4-4",
    }
    for heuristic, text in expected.items():
        found = symmetrize(forward, backward, heuristic)
        assert format_pharaoh(found) == text, heuristic


def test_final_adds_what_final_and_does_not():
    # 05 stands alone: its source word has the link 00, its target word has none.
    forward, backward = parse_pharaoh("0-0 0-5").sure, parse_pharaoh("0-0").sure
    assert symmetrize(forward, backward, "grow-diag") == {(0, 0)}
    assert symmetrize(forward, backward, "grow-diag-final") == {(0, 0), (0, 5)}
    assert symmetrize(forward, backward, "grow-diag-final-and") == {(0, 0)}


def test_straight_neighbours_come_before_diagonal_ones():
    # 12 and 21 are straight neighbours of 11; they take target word 2 and source word
    # 2, so that 22, a diagonal one, has no free word left.
    forward = parse_pharaoh("1-1 1-2 2-1 2-2").sure
    backward = parse_pharaoh("1-1").sure
    assert symmetrize(forward, backward, "grow-diag") == {(1, 1), (1, 2), (2, 1)}


def test_the_forward_direction_comes_first():
    # 03 and 53 compete for target word 3; neither has a neighbour to grow from.
    forward, backward = parse_pharaoh("0-3").sure, parse_pharaoh("5-3").sure
    assert symmetrize(forward, backward, "grow-diag-final-and") == forward
    assert symmetrize(backward, forward, "grow-diag-final-and") == backward


@pytest.mark.parametrize("place", [(a, b) for a in (1, 2, 3) for b in (1, 2, 3)])
def test_growth_reaches_all_eight_neighbours(place):
    """And nothing that is two words away."""
    middle, far = (2, 2), ((2, 4), (4, 2), (2, 0), (0, 2))
    assert symmetrize({middle, place, *far}, {middle}, "grow-diag") >= {middle, place}
    assert symmetrize({middle, *far}, {middle}, "grow-diag") == {middle}


def test_growth_goes_on_from_what_was_added():
    # From 00 to 11 to 22: each is a neighbour of the one before alone.
    forward, backward = parse_pharaoh("0-0 1-1 2-2").sure, parse_pharaoh("0-0").sure
    assert symmetrize(forward, backward, "grow-diag") == forward


@given(links, links)
def test_symmetrization_laws(forward, backward):
    names = get_args(Heuristic)
    found = {name: symmetrize(forward, backward, name) for name in names}
    assert found["intersection"] == forward & backward
    assert found["union"] == forward | backward
    for name in ("grow-diag-final", "grow-diag-final-and"):  # neither holds the other
        for smaller, larger in pairwise(("intersection", "grow-diag", name, "union")):
            assert found[smaller] <= found[larger]
    for name in names:
        assert symmetrize(forward, forward, name) == forward
    final = found["grow-diag-final"]  # every word with a link in a direction has one
    for side in (0, 1):
        assert {x[side] for x in final} == {x[side] for x in forward | backward}


@given(links)
def test_inverting_twice_changes_nothing(drawn: Links):
    assert invert(invert(drawn)) == drawn
    gold = Gold(frozenset(), drawn)
    assert gold.inverted() == Gold(frozenset(), invert(drawn))
