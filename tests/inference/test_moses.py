# SPDX-License-Identifier: Apache-2.0
"""N-best lists in Moses' format, of parts of a line that are not all alike."""

from types import SimpleNamespace
from typing import Any

from kvnmt.data.vocabulary import Words
from kvnmt.inference.moses import Part, entries, read_lists
from kvnmt.inference.translate import NOTHING, Translation

WORDS = Words(("a", "b", "|||"))  # ids from 2
RUN: Any = SimpleNamespace(vocabularies=SimpleNamespace(target=WORDS))


def test_a_part_with_fewer_translations_leaves_the_list_long():
    first = [Translation([2], -1.0, -2.0), Translation([3], -3.0, -4.0)]
    second = [Translation([3, 3], -0.5, -0.25)]
    parts = [Part([0, 1], first), Part([2], second)]
    assert [*map(str, entries(RUN, parts))] == [
        "a b b ||| logP= -1.500000 ||| -2.250000",
        "b b b ||| logP= -3.500000 ||| -4.250000",
    ]
    parts = [
        Part([0, 1], first, [{(0, 0)}, {(1, 0)}]),
        Part([2], second, [{(0, 1), (0, 0)}]),
    ]
    assert [entry.links for entry in entries(RUN, parts)] == [
        "0-0 2-1 2-2",
        "1-0 2-1 2-2",
    ]


def test_what_is_impossible_is_not_certain():
    (entry,) = entries(RUN, [Part([0], [NOTHING])])
    assert str(entry) == " ||| logP= -inf ||| -inf"


def test_a_translation_does_not_part_the_fields():
    (entry,) = entries(RUN, [Part([0], [Translation([2, 4], -1.0, -1.0)])])
    fields = str(entry).split(" ||| ")
    assert fields[0] == "a &#124;&#124;&#124;" and len(fields) == 3


def test_blanks_that_are_no_spaces_belong_to_a_translation(tmp_path):
    (tmp_path / "list").write_text("0 ||| \u3000a b\u00a0 ||| logP= -1 ||| -1\n")
    (entry,) = read_lists(tmp_path / "list")
    assert entry.fields[0] == "\u3000a b\u00a0"
