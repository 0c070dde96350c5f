# SPDX-License-Identifier: Apache-2.0
"""Lines end at the line feed and nowhere else; bad files are named with the line."""

import bz2
import gzip
import io
import lzma
import os
from codecs import BOM_UTF8
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnmt.data.lines import count_lines
from kvnmt.data.text import (
    clean,
    collect,
    count_tsv,
    decode_lines,
    is_blank,
    parallel_blocks,
    read_lines,
    read_parallel,
    tsv_blocks,
)
from kvnmt.errors import UserError
from tests.data.helpers import BREAKS

NO_LINE_FEED = st.characters(exclude_characters="\n", exclude_categories=["Cs"])


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def pair(folder: Path, source: bytes, target: bytes) -> tuple[Path, Path]:
    return write(folder, "a.src", source), write(folder, "a.trg", target)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\nb\r", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\n\na\n\n", ["", "", "a", ""]),
        (b" a\t\n", [" a\t"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        (gzip.compress(b"\xef\xbb\xbfa\n", mtime=0), ["a"]),
        (b"\xef\xbb\xbf", []),
    ],
)
def test_lines_end_at_the_line_feed(tmp_path, data, lines):
    assert read_lines(write(tmp_path, "text", data)) == lines


@pytest.mark.parametrize("character", BREAKS)
def test_other_line_breaks_neither_split_nor_join(tmp_path, character):
    text = f"a{character}b\n{character}c\n"
    path = write(tmp_path, "text", text.encode())
    assert read_lines(path) == [f"a{character}b", f"{character}c"]


@given(st.lists(st.text(NO_LINE_FEED)), st.booleans(), st.booleans())
def test_what_is_written_is_read(lines, windows, last_is_open):
    end = "\r\n" if windows else "\n"
    lines = [line.rstrip("\r") for line in lines]  # a return is part of the line end
    text = "".join(line + end for line in lines)
    if last_is_open and lines and lines[-1]:
        text = text.removesuffix(end)
    assert decode_lines(io.BytesIO(text.encode()), "text") == lines


@pytest.mark.parametrize(
    ("line", "byte", "value"),
    [
        (b"ok \xff", 4, "0xff"),
        (b"\x80", 1, "0x80"),
        (b"caf\xe9 au lait", 4, "0xe9"),  # Latin-1
        (b"\xc3", 1, "0xc3"),  # cut in the middle of a character
        (b"\xed\xa0\x80", 1, "0xed"),  # half of a surrogate pair
    ],
)
def test_a_byte_that_is_not_utf8_is_named(tmp_path, line, byte, value):
    path = write(tmp_path, "bad", b"good\r\n" + line + b"\ngood\n")
    with pytest.raises(UserError) as error:
        read_lines(path)
    for part in (str(path), "line 2", f"byte {byte} ", value, "UTF-8"):
        assert part in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match="no file .*nowhere"):
        read_lines(tmp_path / "nowhere")
    with pytest.raises(UserError, match=f"'{tmp_path}' cannot be read"):
        read_lines(tmp_path)


def test_where_a_relative_path_begins_is_told(tmp_path, monkeypatch):
    """Also where that folder is gone."""
    with pytest.raises(UserError, match=f"no file '{tmp_path}/a.de'; check the path"):
        read_lines(tmp_path / "a.de")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UserError, match="'a.de', seen from the current folder; check"):
        read_lines("a.de")


def test_parallel_text_keeps_its_pairs(tmp_path):
    source, target = pair(tmp_path, b"a b\r\nc\n", "d\u2028\ne f".encode())
    assert read_parallel(source, target) == (["a b", "c"], ["d\u2028", "e f"], 0, 0)


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_blocks_hold_the_text_in_its_order(tmp_path, size):
    lines = [b"a", b"b", b"c", b"d", b"e"]
    source, target = pair(tmp_path, b"\n".join(lines), b"\n".join(lines).upper())
    blocks = list(parallel_blocks(source, target, size))
    assert [block.first for block in blocks] == list(range(1, 6, size))
    assert collect(blocks, "stop", "line") == (list("abcde"), list("ABCDE"), 0, 0)
    target.write_bytes(b"A\nB\nC\nD\n\n")
    with pytest.raises(UserError, match="a.trg, line 5 is empty"):
        [clean(block, "stop") for block in parallel_blocks(source, target, size)]


def test_different_line_counts_are_told(tmp_path):
    source, target = pair(tmp_path, b"a\nb\n", b"a\nb\nc\n")
    with pytest.raises(UserError) as error:
        read_parallel(source, target)
    for part in (f"'{source}' has 2", f"'{target}' has 3"):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("pack", "remedy"),
    [
        (lzma.compress, "xz -dc"),
        (bz2.compress, "bzip2 -dc"),
        (lambda data: b"\x28\xb5\x2f\xfd" + data[:9], "zstd -dc"),
        (lambda data: data.decode().encode("utf-16"), "iconv -f UTF-16"),
    ],
    ids=["xz", "bz2", "zstd", "utf-16"],
)
def test_files_of_other_kinds_are_told(tmp_path, pack, remedy):
    lines = "".join(f"{n} word\n" for n in range(40)).encode()
    source, target = pair(tmp_path, lines, pack(lines))
    with pytest.raises(UserError, match=f"a.trg' is no text: .*{remedy}"):
        read_parallel(source, target)
    with pytest.raises(UserError, match=f"a.trg' is no text: .*{remedy}"):
        read_lines(target)
    target.write_bytes(pack(lines)[:9] + b"\n" * 40)  # as many lines
    with pytest.raises(UserError, match=f"a.trg' is no text: .*{remedy}"):
        read_parallel(source, target, faulty="skip")


@pytest.mark.parametrize(
    ("pack", "remedy"),
    [(lzma.compress, "xz -dc"), (lambda data: data.decode().encode("utf-16"), "iconv")],
    ids=["xz", "utf-16"],
)
def test_pairs_of_other_kinds_are_told(tmp_path, pack, remedy):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(pack("".join(f"a {n}\tb\n" for n in range(40)).encode()))
    for reads in (count_tsv, lambda path: [*tsv_blocks(path, faulty="skip")]):
        with pytest.raises(UserError, match=f"pairs.tsv' is no text: .*{remedy}"):
            reads(path)


def test_lines_of_other_columns_may_be_skipped(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"a\tb\nc\nd\te\tf\ng\th\n")
    with pytest.raises(UserError, match="line 2 has 1 column; .* data.faulty skip"):
        [*tsv_blocks(path)]
    kept = collect(tsv_blocks(path, faulty="skip"), "skip", "line")
    assert (kept.source, kept.target, kept.empty) == (["a", "g"], ["b", "h"], 2)


@pytest.mark.parametrize("faulty", ["stop", "skip", "keep"])
@pytest.mark.parametrize("side", [0, 1])
def test_an_empty_side_is_told(tmp_path, side, faulty):
    texts = [b"a\nb\n", b"a\nb\n"]
    texts[side] = b""
    paths = pair(tmp_path, *texts)
    with pytest.raises(UserError, match=f"'{paths[side]}' is empty"):
        read_parallel(*paths, faulty=faulty)


@pytest.mark.parametrize("blank", [b"", b"  ", b"\t", b"\r"])
@pytest.mark.parametrize("side", [0, 1])
def test_an_empty_line_is_told(tmp_path, side, blank):
    texts = [b"a\nb\nc\n", b"a\nb\nc\n"]
    texts[side] = b"a\n" + blank + b"\nc\n"
    paths = pair(tmp_path, *texts)
    with pytest.raises(UserError, match="line 2 is empty") as error:
        read_parallel(*paths)
    assert str(paths[side]) in str(error.value)
    assert str(paths[1 - side]) not in str(error.value)


@pytest.mark.parametrize(
    "line", ["", " \u3000", "\u200b", "\ufeff \u200e", "\ufffd", "\x00\x9f\xad"]
)
def test_what_nobody_sees_is_blank(line):
    assert is_blank(line)
    assert not is_blank(f"{line}.{line}")


def test_empty_lines_are_kept_where_they_belong(tmp_path):
    paths = pair(tmp_path, b"a\n\n", b"\nB\n")
    assert read_parallel(*paths, faulty="keep") == (["a", ""], ["", "B"], 0, 0)


def test_a_side_that_changes_while_it_is_read_is_told(tmp_path):
    source, target = pair(tmp_path, b"a\nb\nc\n", b"A\nB\n")
    with pytest.raises(UserError, match="no longer have"):
        list(parallel_blocks(source, target))


def test_the_file_that_ends_too_early_is_named(tmp_path):
    whole = gzip.compress(b"a b c\n" * 9)
    source, target = pair(tmp_path, whole[:-12], b"A\n" * 9)
    with pytest.raises(UserError, match=f"'{source}' cannot be decompressed"):
        list(parallel_blocks(source, target))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, BOM_UTF8.__add__])
def test_a_pipe_is_read_where_once_is_enough(pack):
    read, write = os.pipe()
    os.write(write, pack(b"a b\nc\n"))
    os.close(write)
    with pytest.raises(UserError, match="is a pipe, and text is read several times"):
        count_lines(f"/dev/fd/{read}")
    assert read_lines(f"/dev/fd/{read}") == ["a b", "c"]
    os.close(read)
