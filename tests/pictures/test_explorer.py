# SPDX-License-Identifier: Apache-2.0
"""The explorer: what the file holds, and what a browser makes of it."""

import json
import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from kvnmt.errors import UserError
from kvnmt.pictures.explorer import Explorer
from tests.pictures.explorer import (
    DATA,
    LONG,
    MARKUP,
    TEXTS,
    numbers_of,
    show,
    values_of,
)

BY_DIFFERENCE = ["2", "4", "1", "3", "5"]


def test_data_read_back(written):
    text = written.read_text(encoding="utf-8")
    found = re.findall(r'<script id="data" type="application/json">(.*?)</script', text)
    assert [json.loads(data) for data in found] == [DATA]


def test_no_text_ends_an_element(written):
    text = written.read_text(encoding="utf-8")
    assert len(re.findall(r"</script", text, re.IGNORECASE)) == 2
    assert len(re.findall(r"</style", text, re.IGNORECASE)) == 1
    (title,) = re.findall(r"<title>(.*?)</title>", text)
    assert unescape(title) == DATA["title"]


class Elements(HTMLParser):
    """The elements of a page, and the addresses that they name."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses, self.pages = set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.pages += [value for name, value in attrs if name == "srcdoc"]
        names = ("src", "srcset", "href", "action", "data")
        self.addresses += [value for name, value in attrs if name in names]


def test_self_contained(written):
    """Whatever the sentences hold, the page itself asks for nothing."""
    text = written.read_text(encoding="utf-8")
    page, count = re.subn(r"(?s)(<script id=.data.[^>]*>).*?(?=</script)", r"\1", text)
    assert count == 1 and len(page) < len(text)
    elements = Elements()
    elements.feed(page)
    assert {"script", "style"} <= elements.tags and elements.addresses
    assert all(address.startswith("data:") for address in elements.addresses)
    assert not re.findall(r"@import|url\(|\b(?:fetch|import)\(|XMLHttpRequest", page)
    assert not re.findall(r"innerHTML|document\.write|\{\{", page)
    assert "default-src 'none'" in page
    assert ".panel {" in page and "function createPanel" in page


def test_lone_surrogates_stay_json(tmp_path):
    Explorer({**DATA, "sentences": [], "title": "\udc80"}).write(tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert '"title":"\\udc80"' in text


def test_numbers_that_json_lacks_are_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        Explorer({**DATA, "more": float("nan")}).write(tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()


@pytest.mark.parametrize("name", ["", "missing/a.html"])
def test_path_that_cannot_be_written(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(UserError) as error:
        Explorer(DATA).write(path)
    assert re.fullmatch(rf"'{path}' cannot be written: [A-Z][^.]*\.", str(error.value))


def test_a_frame_holds_the_whole_page(written, tmp_path):
    explorer = Explorer(DATA)
    frame = Elements()
    frame.feed(explorer._repr_html_())
    assert frame.tags == {"iframe"}
    assert frame.pages == [written.read_text(encoding="utf-8")]
    assert frame.addresses == []
    assert MARKUP not in explorer._repr_html_()
    assert repr(explorer).startswith("Explorer of 5 sentences")
    explorer.write(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_bytes() == written.read_bytes()


def test_opens_with_the_most_different_sentence(page, written):
    show(page, written)
    assert page.title() == DATA["title"]
    assert numbers_of(page) == BY_DIFFERENCE
    assert page.locator("[aria-selected=true] .number").text_content() == "2"
    assert page.locator(".text.source p").inner_text() == TEXTS[1][0]
    assert page.locator(".panel").count() == 2


def test_click_and_arrows_choose_a_sentence(page, written):
    show(page, written)
    page.click("#list li >> nth=2")
    assert page.locator(".text.source p").inner_text() == TEXTS[0][0]
    assert page.locator(".text.reference p").inner_text() == TEXTS[0][1]
    page.keyboard.press("ArrowUp")
    assert page.locator(".text.source p").inner_text() == LONG
    assert page.locator("[aria-selected=true]").count() == 1


def test_words_that_differ_are_marked(page, written):
    show(page, written, "sentence=1")
    first, second = (page.locator(f".hypothesis >> nth={i}") for i in (0, 1))
    assert first.locator("mark.apart").all_inner_texts() == ["cat", "under the"]
    assert second.locator("mark.apart").all_inner_texts() == ["dog", "on a"]
    assert first.locator("mark.unlike").all_inner_texts() == ["sleeps"]
    marked = page.locator(".reference mark").all_inner_texts()
    assert marked == ["is sleeping"]


def test_order_and_filter(page, written):
    show(page, written)
    page.select_option("#sort", "score-2")  # 60, 50, 40, 30, none
    assert numbers_of(page) == ["4", "3", "2", "1", "5"]
    page.click("#reverse")
    assert numbers_of(page) == ["1", "2", "3", "4", "5"]
    page.select_option("#sort", "length")
    assert numbers_of(page)[-1] == "4"
    page.select_option("#sort", "number")
    assert numbers_of(page) == ["1", "2", "3", "4", "5"]
    page.keyboard.press("/")
    page.keyboard.type("STAR")
    assert numbers_of(page) == ["2"]
    assert page.locator("#count").inner_text() == "1 of 5 sentences"
    page.keyboard.type("less")
    assert page.locator("#count").inner_text() == "no sentence has this text"
    page.keyboard.press("Escape")
    assert page.input_value("#filter") == "STARless"
    assert page.evaluate("document.activeElement.id") != "filter"


def _bars(page) -> list[list[list[float]]]:
    """Heights by round, kind and slot."""
    kinds = ("changed", "forgotten", "added")
    panel = "figure.memory >> nth={} >> g rect.{}"
    code = "Number(node.getAttribute('height'))"
    return [[values_of(page, panel.format(r, k), code) for k in kinds] for r in (0, 1)]


def _expected_bars(step: int) -> np.ndarray:
    memory = DATA["sentences"][0]["outputs"][0]["memory"]
    norms = np.array([list(write.values()) for write in memory])  # [R, 3, T, S]
    return 76 * norms[:, :, step] / norms.max()


def test_keys_step_through_words_and_writes(page, written):
    show(page, written, "sentence=1")
    np.testing.assert_allclose(_bars(page), _expected_bars(0), atol=0.01)
    for key, step in [("j", 1), ("ArrowRight", 2), ("k", 1), ("End", 7), ("Home", 0)]:
        page.keyboard.press(key)
        assert page.locator("#where").inner_text() == f"word {step + 1} of 8"
        word = DATA["sentences"][0]["outputs"][0]["target"][step]
        assert page.locator(".word b").first.inner_text() == word
        assert page.input_value("#step") == str(step + 1)
        np.testing.assert_allclose(_bars(page), _expected_bars(step), atol=0.01)
    assert page.locator("#back").is_disabled()
    page.click("#on")
    assert page.locator(".down .current").all_inner_texts() == ["old"] * 4


def test_step_is_told_in_words(page, written):
    show(page, written, "sentence=1&systems=1&step=4")
    output = DATA["sentences"][0]["outputs"][0]
    told = page.locator(".readout").inner_text()
    assert f"log-prob −{-output['token_log_probs'][3]:.2f}" in told
    for matrix in output["rounds"]:
        best = max(matrix[3])
        assert f"{output['source'][matrix[3].index(best)]} 0.{best:03d}" in told
    page.click("summary")
    row = page.locator(".values tbody tr").nth(2).inner_text()
    expected = [f"{m[3][2] / 1000:.3f}" for m in output["rounds"]]
    assert row.split()[:3] == ["Katze", *expected]


def test_two_systems_share_the_step(page, written):
    show(page, written, "sentence=4&systems=1,2")
    page.keyboard.press("End")
    told = page.locator(".word span").all_inner_texts()
    words = [len(output["target"]) for output in DATA["sentences"][3]["outputs"]]
    assert [text.split(" · ")[0] for text in told] == [
        f"word {n} of {n}" for n in words
    ]
    page.select_option("#other", "")
    assert page.locator(".panel h2").all_inner_texts() == ["Akv-memory"]
    page.select_option("#system", "1")
    assert page.locator(".panel h2").all_inner_texts() == ["Bresidual"]
    assert page.locator(".panel h3").all_inner_texts() == [
        "Alignment",
        "Self-attention",
    ]
    page.select_option("#other", "0")
    assert page.locator(".panel").count() == 2
