# SPDX-License-Identifier: Apache-2.0
"""A browser for tests of pages, and what went wrong in it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

# Texts that would do something if they became markup or script.
MARKUP = (
    "</script><script>alert(1)</script>",
    "<script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "<svg/onload=alert(4)>",
    '"><iframe srcdoc="<script>parent.alert(5)</script>">',
    "' onmouseover='alert(6)' autofocus onfocus='alert(7)",
    "<style>*{display:none}</style>",
    "<a href=javascript:alert(8)>x</a>",
    "<!-- --!> <!--<script>",
    "&lt;b&gt; &amp; &#x3c;",
    "{{script}} ${alert(9)} `x` \\u003cscript>",
    "</textarea></title></style></template><plaintext>",
    "]]> <?php ?> <math><mtext></form><form>",
)


@contextmanager
def open_tab() -> Iterator[Any]:
    """One page of one browser; the test is skipped where there is none."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None or util.find_spec("playwright") is None:
        pytest.skip("needs chromium and the package playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.set_default_timeout(5000)
        yield page
        browser.close()


@contextmanager
def watched(tab: Any, expected: str = "\0") -> Iterator[list[str]]:
    """Within it nothing may go wrong; gives the addresses that are asked for.

    Args:
        tab: In which.
        expected: A message that has this in it may be logged.
    """
    wrong: list[str] = []
    requests: list[str] = []
    listeners = {
        "console": lambda message: wrong.append(message.text),
        "pageerror": lambda error: wrong.append(str(error)),
        "dialog": lambda dialog: (wrong.append(dialog.message), dialog.dismiss()),
        "request": lambda request: requests.append(request.url),
    }
    tab.goto("about:blank")
    tab.emulate_media(color_scheme="light")
    tab.set_viewport_size({"width": 1400, "height": 950})
    for event, listener in listeners.items():
        tab.on(event, listener)
    yield requests
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    assert not [message for message in wrong if expected not in message]
