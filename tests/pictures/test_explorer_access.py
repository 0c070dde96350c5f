# SPDX-License-Identifier: Apache-2.0
"""The explorer for all: contrast, names, focus, paper, odd text and odd systems."""

import numpy as np
import pytest

from kvnmt.pictures.explorer import Explorer
from tests.browser import MARKUP as HOSTILE
from tests.pictures.explorer import (
    DATA,
    PLAIN,
    SYSTEMS,
    TEXTS,
    cells_of,
    numbers_of,
    sample,
    show,
    show_other,
    values_of,
)


def test_markup_is_text(page, written):
    show(page, written, "sentence=3&step=2")
    assert page.locator(".text.source p").inner_text() == TEXTS[2][0]
    assert page.locator("h1").inner_text() == DATA["title"]
    hypotheses = page.locator(".text.hypothesis p").all_inner_texts()
    assert hypotheses == list(TEXTS[2][2:])
    assert page.locator("#main img, #main script, .text b, #list b").count() == 0
    assert page.locator("script").count() == 2


def test_no_text_becomes_markup(page, tmp_path):
    """In any place that a text has: names, lines, tokens, tooltips, labels."""
    texts = [(text, text, text, text) for text in HOSTILE]
    systems = [{**one, "name": text} for one, text in zip(SYSTEMS, HOSTILE)]
    data = sample(systems, texts)
    show_other(page, tmp_path / "plain.html", data)
    assert page.locator("script").count() == 2
    assert page.locator("iframe, img, body style, plaintext, math, a").count() == 0
    for n, option in enumerate(page.locator("#list li").all()):
        option.click()
        page.keyboard.press("lm"[n % 2])
        page.locator(".chip").first.hover()
        assert page.locator(".text.source p").text_content() in HOSTILE


def test_hash_restores_the_view(page, written):
    show(page, written)
    page.click("#list li >> nth=1")
    page.select_option("#system", "1")
    for key in ("j", "j", "l", "r", "t"):
        page.keyboard.press(key)
    page.select_option("#sort", "length")
    state = "#sentence=4&systems=2,1&step=3&view=links&round=1&sort=length&theme=dark"
    page.wait_for_url(lambda url: url.endswith(state))
    before = page.locator("main").inner_text(), numbers_of(page)
    page.reload()
    assert (page.locator("main").inner_text(), numbers_of(page)) == before
    assert page.locator("#where").inner_text().startswith("word 3 of")


@pytest.mark.parametrize("hash_", ["sentence=99&systems=7,x&step=-3", "round=9&step=x"])
def test_hash_of_something_else(page, written, hash_):
    show(page, written, hash_)
    assert page.locator(".panel").count() == 2
    assert page.locator("#where").inner_text().startswith("word 1 of")


CONTRAST = """node => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).map((c) => c / 255).map(
      (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const isClear = (colour) => channels(colour)[3] === 0;
  let behind = node;
  while (isClear(getComputedStyle(behind).backgroundColor)) behind = behind.parentNode;
  const pair = [getComputedStyle(node).color, getComputedStyle(behind).backgroundColor];
  const [low, high] = pair.map(luminance).sort((a, b) => a - b);
  return [node.className || node.tagName, (high + 0.05) / (low + 0.05)];
}"""

TEXT = (
    "h1, h2, h3, label, select, button:enabled, #count, .number, .start, .scores, "
    ".text p, mark, .legend, .letter, .word b, .word span, .readout dt, .readout dd, "
    ".moved, .chip, .across span, .down span, .axis span, figcaption, .note, summary"
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(page, written, scheme):
    page.emulate_media(color_scheme=scheme)
    show(page, written, "sentence=1&step=2")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (
        background == {"light": "rgb(244, 245, 247)", "dark": "rgb(14, 17, 22)"}[scheme]
    )
    found = page.locator(TEXT).evaluate_all(f"nodes => nodes.map({CONTRAST})")
    assert len(found) > 100
    assert [(name, ratio) for name, ratio in found if ratio < 4.5] == []


def test_theme_button_changes_cells_too(page, written):
    show(page, written, "sentence=1&systems=1")
    light = cells_of(page, 0, (8, 8), 0.1).mean(axis=2)
    page.click("#theme")
    dark = cells_of(page, 0, (8, 8), 0.1).mean(axis=2)
    assert light.max() > 0.9 and dark.min() < 0.2
    assert np.corrcoef(light.ravel(), dark.ravel())[0, 1] < -0.7
    assert page.locator("#theme").inner_text() == "Light"


@pytest.mark.parametrize("width, view", [(800, "matrix"), (1400, "links")])
def test_long_sentences_do_not_widen_the_page(page, written, width, view):
    page.set_viewport_size({"width": width, "height": 600})
    show(page, written, f"sentence=4&view={view}&step=40")
    taken = page.evaluate("document.documentElement.scrollWidth")
    assert width - 20 <= taken <= width  # but for the place of a scrollbar
    scrolled = values_of(page, ".scroller", "node.scrollWidth > node.clientWidth")
    assert any(scrolled)
    frame = page.locator(".scroller").first.bounding_box()
    for word in page.locator("figure").first.locator(".current, .strong").all():
        box = word.bounding_box()
        for start, size in (("x", "width"), ("y", "height")):
            assert frame[start] <= box[start]
            assert box[start] + box[size] <= frame[start] + frame[size]


def test_controls_have_names_and_visible_focus(page, written):
    show(page, written)
    names = values_of(page, "button", "node.ariaLabel || node.innerText || node.id")
    assert all(names)
    seen = []
    for _ in range(8):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id"))
        style = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(style) != "none", seen[-1]
    assert seen == "filter sort reverse list system other matrix links".split()
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("j")
    page.keyboard.press("Escape")
    assert page.locator("dialog").is_hidden()
    assert page.locator("#where").inner_text().startswith("word 1 of")


def test_keys_without_a_modifier_can_be_turned_off(page, written):
    """Who dictates types letters that nobody pressed; other keys and Help stay."""
    show(page, written, "sentence=1&view=matrix")
    page.keyboard.press("?")
    page.get_by_label("single-key shortcuts").uncheck()
    page.keyboard.press("Escape")
    page.wait_for_url(lambda url: url.endswith("&keys=off"))
    page.reload()
    before = page.locator("main").inner_text()
    for key in "kjmlrt/?":
        page.keyboard.press(key)
    assert page.locator("main").inner_text() == before
    assert page.locator("dialog").is_hidden()
    assert page.evaluate("document.activeElement.id") != "filter"
    page.keyboard.press("ArrowRight")
    assert page.locator("#where").inner_text() == "word 2 of 8"
    page.click("#help")
    page.get_by_label("single-key shortcuts").check()
    page.click("#close")
    page.keyboard.press("j")
    assert page.locator("#where").inner_text() == "word 3 of 8"


def test_a_small_window_keeps_its_list_and_what_is_read(page, written):
    """As a phone has it, and a page that is read at 400%."""
    page.set_viewport_size({"width": 320, "height": 256})
    show(page, written)
    assert page.locator("#list").bounding_box()["height"] >= 100
    style = "getComputedStyle(document.querySelector('#toolbar')).position"
    assert page.evaluate(style) == "static"
    page.set_viewport_size({"width": 1280, "height": 720})


def test_colours_of_the_system_leave_what_is_chosen(page, written):
    page.emulate_media(forced_colors="active")
    show(page, written, "sentence=1")
    code = "getComputedStyle(node).backgroundColor"
    chosen = values_of(page, "#list li[aria-selected=true], .chip.current", code)
    others = values_of(page, "#list li:not([aria-selected=true])", code)
    assert len(chosen) == 1 + page.locator(".panel").count()
    assert {*chosen}.isdisjoint(others)
    page.emulate_media(forced_colors="none")


def test_keys_scroll_a_table_and_select_text(page, written):
    show(page, written)
    page.get_by_text("All values of this step").first.click()
    table = page.get_by_role("region", name="All values of this step").first
    table.focus()
    page.keyboard.press("ArrowRight")
    page.locator("#on").focus()
    page.keyboard.press("Shift+ArrowRight")
    assert page.locator("#where").inner_text().startswith("word 1 of")
    page.keyboard.press("ArrowRight")
    assert page.locator("#where").inner_text().startswith("word 2 of")


def test_the_box_that_is_read_keeps_the_focus(page, written):
    """Panels are made anew for every sentence."""
    show(page, written)
    page.locator(".panel summary").nth(1).focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("[aria-selected=true] .number").text_content() == "4"
    where = "[...document.querySelectorAll('.panel summary')]"
    assert page.evaluate(f"{where}.indexOf(document.activeElement)") == 1


def test_paper_shows_all_of_two_systems(page, written):
    """One below the other: their matrices are as wide as on the screen."""
    page.set_viewport_size({"width": 1400, "height": 600})
    show(page, written, "sentence=4")
    page.emulate_media(media="print")
    first, second = (panel.bounding_box() for panel in page.locator(".panel").all())
    assert first["y"] + first["height"] <= second["y"]
    hidden = "node.scrollHeight - node.clientHeight"
    assert max(values_of(page, ".chips, .scroller", hidden)) <= 0
    page.emulate_media(media="screen")


def test_system_that_does_not_align(page, tmp_path):
    show_other(page, tmp_path / "plain.html", sample([PLAIN]))
    assert "does not align" in page.locator(".panel").inner_text()
    assert page.locator("canvas, .curves").count() == 0
    assert page.locator("#versus").is_hidden()
    assert numbers_of(page) == ["1", "2", "3", "4", "5"]
    assert page.locator("#sort option").all_inner_texts()[1:] == [
        "score of A plain",
        "length of the source",
    ]
    page.keyboard.press("l")
    assert "does not align" in page.locator(".panel").inner_text()


def test_empty_hypothesis(page, written):
    show(page, written, "sentence=5&systems=2")
    assert page.locator(".hypothesis em").inner_text() == "(empty)"
    assert page.locator("#where").inner_text() == "word 1 of 1"
    assert page.locator(".reference").count() == 0
    page.keyboard.press("l")
    assert page.locator(".curves path").count() >= 1


@pytest.mark.parametrize("systems", [[], SYSTEMS])
def test_no_sentence(page, tmp_path, systems):
    show_other(page, tmp_path / "none.html", sample(systems, []))
    assert page.get_by_text("There is no sentence.").is_visible()
    assert page.locator("#count").inner_text() == "no sentence"
    for key in ("j", "ArrowDown", "l", "r", "t", "/"):
        page.keyboard.press(key)
    assert page.locator("main").is_hidden()


def test_a_notebook_shows_the_page(page, tmp_path):
    """Target words label rows, source words columns, without a network."""
    page.context.set_offline(True)
    page.set_viewport_size({"width": 700, "height": 900})
    # A notebook's page may come from a server or a file; here it is a file.
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<body>{Explorer(DATA)._repr_html_()}</body>", "utf-8")
    page.goto(notebook.as_uri())
    frame = page.frame_locator("iframe")
    output = DATA["sentences"][1]["outputs"][0]
    panel = frame.locator(".panel").first
    for labels, words in ((".across", "source"), (".down", "target")):
        spans = panel.locator(labels).first.locator("span")
        assert spans.all_text_contents() == output[words]
    frame.locator("#on").click()
    assert frame.locator("#where").inner_text().startswith("word 2 of")
    frame.locator("#help").click()
    assert frame.locator("#sharing").is_hidden()  # a frame has no address
    frame.locator("#close").click()
    assert frame.locator("dialog").is_hidden()
    page.wait_for_timeout(200)  # the time after which a page keeps its address
    page.context.set_offline(False)
