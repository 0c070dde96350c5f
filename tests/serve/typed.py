# SPDX-License-Identifier: Apache-2.0
"""A sentence that is typed into the live page."""

from dataclasses import replace

from tests.serve.serving import SEARCH

LONG = replace(SEARCH, min_length=3)  # the models say little


def type_line(page, line: str) -> None:
    page.fill("#line", line)
    shown = page.locator(".text.source p")
    page.wait_for_function(
        "line => document.querySelector('.text.source p')?.textContent === line",
        arg=line,
    )
    assert shown.text_content() == line
