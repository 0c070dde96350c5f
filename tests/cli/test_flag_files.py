# SPDX-License-Identifier: Apache-2.0
"""Flags in files."""

import pytest

from kvnmt.cli.flag_files import expanded
from kvnmt.errors import UserError
from tests.cli.commands import check_sentence

LINES = """\
# What all my runs have.
--data.source 'my text.de'   # quoted as in a shell
--search.beam 3

--training.warm-start ~/$HOME
"""


def test_a_file_stands_for_its_words(tmp_path):
    path = tmp_path / "mine.flags"
    path.write_text(LINES)
    said = ["train", f"@{path}", "--search.beam", "5", "@"]
    words = ["--data.source", "my text.de", "--search.beam", "3"]
    words += ["--training.warm-start", "~/$HOME"]
    assert expanded(said) == (["train", *words, "--search.beam", "5", "@"], words)


def test_a_comment_begins_where_a_word_would(tmp_path):
    path = tmp_path / "mine.flags"
    path.write_text(
        "--a x#1 'y #2' \"z # \\\" #3\" \\#4 '5'#6 7\\ #8 --b  # don't #7\n#8\nc#\n"
    )
    words = ["--a", "x#1", "y #2", 'z # " #3', "#4", "5#6", "7 #8", "--b", "c#"]
    assert expanded([f"@{path}"]) == (words, words)


def test_lines_may_go_on_as_those_of_a_shell(tmp_path):
    path = tmp_path / "mine.flags"
    path.write_text("--a 1 \\\n    --b '2 \\' \\\n--c \\\n")
    words = ["--a", "1", "--b", "2 \\", "--c"]
    assert expanded([f"@{path}"]) == (words, words)


def test_a_list_stands_once_in_files_and_once_beside_them(tmp_path, kvnmt):
    path = tmp_path / "mine.flags"
    path.write_text("--data.symbols '<a>'\n--data.symbols '<b>'\n")
    once = tmp_path / "once.flags"
    once.write_text("--data.symbols '<a>'\n")
    for files in ([f"@{path}"], [f"@{once}", f"@{once}"]):
        check_sentence(kvnmt("prepare", *files), "--data.symbols stands twice")
    said = kvnmt("prepare", f"@{once}", "--data.symbols", "<b>")
    assert said.status == 2 and "stands twice" not in said.err


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("none", None, "there is no file"),
        ("open", b"--data.source 'x", "no closing quotation"),
        ("nul", b"--data.source a\0b", "has a NUL character"),
        ("latin", b"--data.source caf\xe9", "line 1: byte 18 .0xe9. is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        expanded([f"@{tmp_path / name}"])
