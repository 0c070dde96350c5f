# SPDX-License-Identifier: Apache-2.0
"""A process that trains begins anew, once, where Linux has large pages for it."""

import os
import subprocess
import sys

import pytest

from kvnmt.cli import large_pages, main

HERE = "import os, sys; from kvnmt.cli.large_pages import use_large_pages as use; "
HERE += "use(); print(os.environ.get('GLIBC_TUNABLES'), os.getpid(), sys.argv)"


@pytest.fixture
def begun(tmp_path, monkeypatch) -> list[list[str]]:
    """The arguments with which a process would begin anew."""
    begun = []
    monkeypatch.setattr(os, "execv", lambda path, words: begun.append(words))
    monkeypatch.setattr(large_pages.platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(large_pages, "SETTING", tmp_path / "enabled")
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    monkeypatch.delenv(large_pages.VARIABLE)
    return begun


@pytest.mark.parametrize("words, times", [(["train"], 1), (["score"], 0)])
def test_a_process_that_trains_begins_anew_once(begun, monkeypatch, words, times):
    monkeypatch.setattr(sys, "argv", ["kvnmt", *words, "--help"])
    for _ in range(2):
        with pytest.raises(SystemExit):
            main()
    assert len(begun) == times
    assert all(words == [sys.executable, *sys.orig_argv[1:]] for words in begun)


def test_arguments_that_are_handed_in_begin_nothing(begun):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert not begun


@pytest.mark.parametrize(
    "setting", ["[always] madvise never", "always madvise [never]"]
)
def test_nothing_is_asked_of_who_decides_alone(begun, setting):
    large_pages.SETTING.write_text(setting)
    large_pages.use_large_pages()
    assert not begun


@pytest.mark.parametrize("libc", [("glibc", "2.34"), ("", ""), ("glibc", "2.x")])
def test_another_library_is_not_asked(begun, monkeypatch, libc):
    monkeypatch.setattr(large_pages.platform, "libc_ver", lambda: libc)
    large_pages.use_large_pages()
    large_pages.SETTING.unlink()
    large_pages.use_large_pages()
    assert not begun


def test_a_program_from_standard_input_goes_on(monkeypatch):
    monkeypatch.delenv(large_pages.VARIABLE)
    words = [sys.executable, "-", "a"]
    said = subprocess.run(words, input=HERE, capture_output=True, text=True).stdout
    assert said.startswith("None ") and said.endswith(" ['-', 'a']\n")


def test_what_cannot_begin_anew_goes_on(begun, monkeypatch):
    def refused(path, words):
        begun.append(words)
        raise PermissionError

    monkeypatch.setattr(os, "execv", refused)
    large_pages.use_large_pages()
    assert len(begun) == 1


def test_number_and_arguments_of_the_process_stay(monkeypatch):
    monkeypatch.delenv(large_pages.VARIABLE)
    process = subprocess.Popen(
        [sys.executable, "-c", HERE, "a b", "--c"], stdout=subprocess.PIPE, text=True
    )
    said, _ = process.communicate(timeout=60)
    asked = large_pages.ASKING if large_pages._can_ask() else None
    assert said == f"{asked} {process.pid} ['-c', 'a b', '--c']\n"
