# SPDX-License-Identifier: Apache-2.0
"""Weights in the explorer: cells, signs, links, and what a pointer is told."""

from itertools import chain

import numpy as np
import pytest

from tests.pictures.explorer import (
    DATA,
    HEADS,
    LINEAR,
    TEXTS,
    cells_of,
    sample,
    show,
    show_other,
    values_of,
)


@pytest.mark.parametrize("round_", [0, 1])
def test_darker_cells_are_larger_weights(page, written, round_):
    show(page, written, "sentence=1&systems=1")
    weights = np.array(DATA["sentences"][0]["outputs"][0]["rounds"][round_])
    brightness = cells_of(page, round_, weights.shape, 0.1).mean(axis=2)
    assert brightness.shape == weights.shape
    order = np.argsort(weights, axis=None, kind="stable")
    assert (np.diff(brightness.ravel()[order]) <= 1 / 255).all()
    assert np.ptp(brightness) > 0.3


def test_dots_where_the_strongest_word_moved(page, written):
    show(page, written, "sentence=1&systems=1")
    rounds = np.array(DATA["sentences"][0]["outputs"][0]["rounds"])
    first, second = rounds.argmax(axis=2)
    (moved,) = np.nonzero(first != second)
    assert 0 < len(moved) < len(first)
    for round_, expected in [(0, []), (1, [(t, second[t]) for t in moved])]:
        red, green, blue = np.moveaxis(cells_of(page, round_, (8, 8), 0.45), 2, 0)
        dots = np.argwhere((red > green + 0.3) & (red > blue))
        assert dots.tolist() == [list(cell) for cell in expected]
    for t in (moved[0], np.flatnonzero(first == second)[0]):
        page.locator(".chip").nth(t).click()
        assert page.locator(".moved").count() == (t in moved)
    page.locator(".chip").nth(moved[0]).click()
    word = DATA["sentences"][0]["outputs"][0]["source"][first[moved[0]]]
    assert page.locator(".moved").inner_text() == f"moved from {_isolated(word)}"


def _isolated(word: str) -> str:
    """As where words may be of a script from right to left."""
    return f"\u2068{word}\u2069"


def test_hover_tells_the_value(page, written):
    show(page, written, "sentence=1")
    output = DATA["sentences"][0]["outputs"][0]
    canvas = page.locator("figure canvas").first
    size = canvas.bounding_box()["width"] / len(output["source"])
    canvas.hover(position={"x": 2.5 * size, "y": 3.5 * size})
    first, second = (f"{matrix[3][2] / 1000:.3f}" for matrix in output["rounds"])
    lines = page.locator("#tip").inner_text().split()
    look = [_isolated("sleeps"), "←", _isolated("Katze")]
    assert lines == [*look, "round", "1", first, "round", "2", second]
    assert page.locator(".cell-mark:visible").count() == 2  # in both rounds
    assert page.locator(".across .aimed").all_inner_texts() == ["Katze"] * 4
    canvas.click(position={"x": 2.5 * size, "y": 3.5 * size})
    assert page.locator("#where").inner_text() == "word 4 of 8"
    page.mouse.move(700, 5)
    assert page.locator("#tip").is_hidden()


def test_escape_hides_the_tooltip_and_nothing_else(page, written):
    """The pointer stays where it is; the next one does what it does otherwise."""
    show(page, written, "sentence=1")
    tip, focused = page.locator("#tip"), "document.activeElement.id"
    page.keyboard.press("/")
    page.locator(".chip").first.hover()
    assert tip.is_visible()
    page.keyboard.press("Escape")
    assert tip.is_hidden() and page.evaluate(focused) == "filter"
    page.keyboard.press("Escape")
    assert page.evaluate(focused) != "filter"
    page.mouse.move(700, 5)
    # As of a browser that tells of no leaving when a dialog opens.
    page.locator(".chip").first.dispatch_event("pointermove")
    assert tip.is_visible()
    page.keyboard.press("?")
    assert tip.is_hidden()
    page.keyboard.press("Escape")
    assert page.locator("dialog").is_hidden()


def test_self_attention_is_of_earlier_words(page, written):
    show(page, written, "sentence=1&systems=2")
    output = DATA["sentences"][0]["outputs"][1]
    target, (weights,) = output["target"], output["self_attention"]
    labels = page.locator(".across").nth(1).locator("span").all_inner_texts()
    assert labels == ["(start)", *target[:-1]]
    canvas = page.locator("figure canvas").nth(1)
    size = canvas.bounding_box()["width"] / len(target)
    canvas.hover(position={"x": 1.5 * size, "y": 2.5 * size})
    look = [_isolated(target[2]), "←", _isolated(target[0])]
    told = [*look, "self-attention", f"0.{weights[2][1]:03d}"]
    assert page.locator("#tip").inner_text().split() == told
    canvas.hover(position={"x": 3.5 * size, "y": 2.5 * size})
    assert page.locator("#tip").is_hidden()


def _signed(weight: float) -> str:
    sign = "\u2212" if weight < 0 else "+"
    return f"{sign}{abs(weight):.3f}"


def test_signs_are_two_colours_and_told(page, tmp_path):
    data = sample([LINEAR], TEXTS[:1])
    show_other(page, tmp_path / "linear.html", data)
    titles = page.locator(".panel h3").all_inner_texts()
    assert titles == ["Alignment", "Signed weights"]
    (output,) = data["sentences"][0]["outputs"]
    (read,) = output["weights"]
    heads = np.array(read["signed"])
    for n, signed in enumerate(heads):
        red, _, blue = np.moveaxis(cells_of(page, 1 + n, signed.shape, 0.1), 2, 0)
        clear = np.abs(signed) > 0.1 * np.abs(signed).max()
        assert clear.sum() > 10
        assert ((blue > red) == (signed > 0))[clear].all()
        caption = page.locator("figcaption").nth(1 + n).inner_text()
        assert caption == f"read of round 1, head {n + 1}"
    share = cells_of(page, 1 + HEADS, (len(heads[0]), 1), 0.1).mean(axis=2)[:, 0]
    assert (np.diff(share[np.argsort(read["own"])]) <= 1 / 255).all()
    canvas = page.locator("figure canvas").nth(1)
    size = canvas.bounding_box()["width"] / len(output["source"])
    canvas.hover(position={"x": 2.5 * size, "y": 3.5 * size})
    told = page.locator("#tip").inner_text().split()
    weights = [_signed(heads[n, 3, 2]) for n in range(HEADS)]
    lines = [["weight", "1,", "head", str(n + 1), weights[n]] for n in range(HEADS)]
    look = [_isolated("sleeps"), "←", _isolated("Katze")]
    assert told == [*look, *chain(*lines)]
    canvas.click(position={"x": 2.5 * size, "y": 3.5 * size})
    said = page.locator(".readout").inner_text()
    strongest = np.abs(heads[:, 3]).sum(axis=0).argmax()
    its = " ".join(map(_signed, heads[:, 3, strongest]))
    assert f"{output['source'][strongest]} {its}" in said
    assert f"decoder's own writes {read['own'][3] / 1000:.3f}" in said
    page.get_by_text("All values of this step").click()
    headings = page.locator(".values thead th")
    headings.nth(1 + HEADS).wait_for()
    columns = headings.all_inner_texts()
    assert columns[2:] == [f"signed 1, head {n + 1}" for n in range(HEADS)]
    page.locator("#back").click(click_count=3)
    assert "own writes" not in page.locator(".readout").inner_text()


def test_links_of_a_round(page, written):
    show(page, written, "sentence=1&systems=1&step=3")
    assert page.locator("#rounds").is_hidden()
    page.keyboard.press("l")
    rounds = DATA["sentences"][0]["outputs"][0]["rounds"]
    for name, matrix in [("Round 2", rounds[1]), ("Round 1", rounds[0])]:
        page.get_by_role("button", name=name).click()
        # Whoever uses keys goes on from there.
        assert page.evaluate("document.activeElement.textContent") == name
        drawn = values_of(page, ".curves path.lit", "Number(node.dataset.s)")
        assert drawn == [s for s, weight in enumerate(matrix[2]) if weight >= 50]
        curves = values_of(
            page, ".curves path", "Number(node.getAttribute('stroke-width'))"
        )
        assert len(curves) == (np.array(matrix) >= 50).sum()
        assert max(curves) == pytest.approx(1 + 3.5 * np.max(matrix) / 1000, abs=0.01)
    assert page.locator("#links").get_attribute("aria-pressed") == "true"
    page.keyboard.press("m")
    assert page.locator(".curves").count() == 0
    assert page.locator("figure:not(.memory)").count() == 2


# Pieces of a script from right to left; the mark begins a word, so it stands right.
PIECES = ("▁مرحبا", "▁يا", "▁صديقي")
MARK_FROM_RIGHT = """(() => {
  const range = document.createRange();
  const place = node.textContent.indexOf('▁');
  range.setStart(node.firstChild, place);
  range.setEnd(node.firstChild, place + 1);
  const [mark, word] = [range, node].map((one) => one.getBoundingClientRect());
  return (word.right - mark.right) / word.width;
})()"""


def test_links_of_words_from_right_to_left(page, tmp_path):
    text = " ".join(PIECES)
    data = sample(texts=[(text, text, text, text)])
    show_other(page, tmp_path / "arabic.html", data)
    page.select_option("#other", "")
    page.keyboard.press("l")
    words = ":is(.source-word, .target-word):not(:last-child)"
    places = values_of(page, words, MARK_FROM_RIGHT)
    assert len(places) == 2 * len(PIECES) and max(places) < 0.1
    shown = [_isolated(word) for word in (*PIECES, "</s>")]
    for kind in ("source", "target"):
        page.locator(f".{kind}-word").nth(1).hover()
        heading = page.locator("#tip strong").inner_text()
        assert heading == (shown[1] if kind == "source" else f"2 {shown[1]}")
        names = page.locator("#tip p span").all_inner_texts()
        assert names and {name.split()[-1] for name in names} <= {*shown}
