# SPDX-License-Identifier: Apache-2.0
"""One pass over any bytes: lines, words and places of faults."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.data.inspection.scan import BLOCK, ODD_CHARACTER, Index, scan
from tests.data.inspection.helpers import (
    look_bytes,
    only,
)


def test_bytes_that_are_not_utf8_are_told_with_their_place(tmp_path):
    bad = "né\n".encode() + b"caf\xe9 au\nok\n\xff\xfe\n" + b"x\n" * 5 + b"\xc3"
    finding = only(look_bytes(tmp_path, bad, b"y\n" * 10), "undecodable")
    assert (finding.severity, finding.count) == ("error", 3)
    assert [place.line for place in finding.examples] == [2, 4, 10]
    notes = [place.note for place in finding.examples]
    assert notes[0] == "byte 4, 0xe9, byte 8 of the file"
    assert notes[1] == f"byte 1, 0xff, byte {bad.index(0xFF) + 1} of the file"
    assert notes[2] == f"byte 1, 0xc3, byte {len(bad)} of the file"
    for part in ("a.src", "lines 2, 4 and 10", "byte 4 of line 2", "0xe9"):
        assert part in finding.message
    for block in (1, 7):
        undecodable = scan(tmp_path / "a.src", Index(), block=block).undecodable
        assert undecodable == [
            (2, 4, 8, 0xE9),
            (4, 1, bad.index(0xFF) + 1, 0xFF),
            (10, 1, len(bad), 0xC3),
        ]
    marked = only(
        look_bytes(tmp_path, b"\xef\xbb\xbf" + bad, b"y\n" * 10), "undecodable"
    )
    assert marked.examples[0].note == "byte 4, 0xe9, byte 11 of the file"


def test_every_character_that_python_takes_for_a_space_is_odd():
    """Or words would not be what stands between ASCII spaces."""
    spaces = {c for c in map(chr, range(0x110000)) if c.isspace()} - {" ", "\n"}
    assert all(ODD_CHARACTER.match(space) for space in spaces)


@pytest.mark.parametrize("block", [1, 3, BLOCK])
def test_words_and_lines_are_numbered(tmp_path, block):
    path = tmp_path / "text"
    path.write_bytes("é a\r\n\n  b\u2028 \nlast".encode())
    index = Index()
    text = scan(path, index, block=block)
    assert list(index) == ["é", "a", "b\u2028", "last"]
    assert text.words.tolist() == [0, 1, 2, 3]
    assert text.starts.tolist() == [0, 2, 2, 3, 4]
    assert text.letters.tolist() == [3, 0, 1, 4]
    assert text.blank.tolist() == [False, True, False, False]


@given(
    st.lists(st.binary(max_size=9), max_size=9).map(b"\n".join),
    st.sampled_from([1, 2, 8]),
)
def test_blocks_do_not_change_what_is_read(tmp_path_factory, data, block):
    """Whatever the bytes are, where faults are included."""
    path = tmp_path_factory.mktemp("scan") / "text"
    path.write_bytes(b"a " + data)  # not to be taken for gzip
    scans = [scan(path, Index(), block=size) for size in (block, BLOCK)]
    parts, whole = map(dataclasses.asdict, scans)
    for name, value in whole.items():
        np.testing.assert_array_equal(parts[name], value)
