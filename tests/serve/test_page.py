# SPDX-License-Identifier: Apache-2.0
"""The live page in a browser: typing, forcing words, and texts that are no markup."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kvnmt.inference.translate import translate_lines
from kvnmt.serve.guard import Guard
from tests.browser import MARKUP, open_tab, watched
from tests.serve.serving import SEARCH, Started, started

LONG = replace(SEARCH, min_length=3)  # the models say little


@pytest.fixture(scope="module", name="service")
def _service(runs) -> Iterator[Started]:
    with started(runs, search=LONG, tokens=40) as service:
        yield service


@pytest.fixture(scope="module", name="tab")
def _tab() -> Iterator:
    with open_tab() as tab:
        tab.set_default_timeout(30_000)  # a program may be compiled
        yield tab


@pytest.fixture(name="page")
def _page(tab, service) -> Iterator:
    """The page of the service, which asks nothing of anybody else."""
    with watched(tab, "status of 413") as requests:
        tab.goto(service.url)
        yield tab
        tab.goto("about:blank")
    own = (f"{service.url}/", f"{service.url}/explore", "data:", "about:")
    assert all(url.startswith(own) for url in requests), requests


def written(page, system: int) -> str:
    """The words of a hypothesis."""
    words = page.locator(".text.hypothesis").nth(system).locator(".spoken")
    return " ".join(words.all_text_contents())


def type_line(page, line: str) -> None:
    page.fill("#line", line)
    shown = page.locator(".text.source p")
    page.wait_for_function(
        "line => document.querySelector('.text.source p')?.textContent === line",
        arg=line,
    )
    assert shown.text_content() == line


def held_questions(page) -> list:
    """Those of a kept sentence and of the next one, before they are answered."""
    held = []
    page.route("**/explore", lambda route: held.append(route))
    page.fill("#line", "a b c")
    page.keyboard.press("Enter")
    page.fill("#line", "d")
    page.wait_for_timeout(400)
    assert len(held) == 2
    return held


def test_what_is_typed_is_translated_by_both(page, service, runs):
    assert page.locator("main").is_hidden()
    assert not page.locator("#sharing").is_visible()
    page.locator("#line").press_sequentially("a b", delay=20)
    page.locator(".panel").first.wait_for()
    type_line(page, "a b c")
    for n, run in enumerate(runs.values()):
        assert [written(page, n)] == translate_lines(run, ["a b c"], LONG)
    assert page.locator(".panel").count() == 2
    assert page.locator(".panel").nth(1).locator("figure.memory").count() == 2
    assert page.locator("#list li").count() == 1  # what is typed is one sentence
    page.keyboard.press("Enter")
    type_line(page, "d")
    assert page.locator("#list li").count() == 2
    page.locator("#list li").filter(has_text="a b c").click()
    assert page.locator(".text.source p").text_content() == "a b c"


def test_a_word_is_forced_and_the_rest_translated_anew(page, service, runs):
    type_line(page, "a b c d")
    before = written(page, 0).split()
    assert len(before) > 2
    other = next(word for word in "ABCDEFGH" if word != before[1])
    hypothesis = page.locator(".text.hypothesis").first
    hypothesis.locator(".spoken").nth(1).click()
    page.locator(".text input").fill(other)
    page.keyboard.press("Enter")
    page.locator(".text .forced").first.wait_for()
    asked = {"lines": ["a b c d"], "prefixes": [f"{before[0]} {other}"]}
    asked["search"] = {"min_length": 3}
    (expected,) = service.post("/translate", asked).json()["translations"]
    assert written(page, 0) == expected["translation"]
    assert expected["translation"].split()[:2] == [before[0], other]
    forced = page.locator(".text .forced").all_text_contents()
    assert forced == [before[0], other]
    page.get_by_role("button", name="free").click()
    page.locator(".text .forced").first.wait_for(state="detached")
    assert written(page, 0).split() == before
    page.get_by_role("button", name="+").first.click()
    page.keyboard.press("Escape")
    assert page.locator(".text input").count() == 0


def test_no_text_becomes_markup(page):
    type_line(page, "a b c d")
    elements = "iframe, img, body style, plaintext, math, a, form form"
    for text in ("  ".join(MARKUP[n::3]) for n in range(3)):
        type_line(page, text)
        page.locator(".text.hypothesis .spoken").first.click()
        page.locator(".text input").fill(text)
        with page.expect_response("**/explore"):
            page.keyboard.press("Enter")
        page.locator(".chip").first.hover()
        assert page.locator(elements).count() == 0
        assert page.locator("script").count() == 2
        page.locator("#line").press("Enter")


def test_of_an_ensemble_it_says_what_is_not_shown(tab, both):
    with started({"both": both}, search=LONG) as service:
        tab.goto(service.url)
        type_line(tab, "a b c")
        note = tab.locator(".panel .members").text_content()
        assert note.startswith("2 models as one") and "not shown" in note
        assert tab.locator("figure").count() == 1  # the alignment
        readout, pictures = (
            tab.locator(f".panel > {part}").bounding_box()
            for part in (".readout", "div:last-child")
        )
        assert readout["y"] + readout["height"] <= pictures["y"]
        tab.goto("about:blank")


def test_a_sentence_that_is_kept_waits_for_its_answer(page):
    """Though the next one is typed before it comes."""
    for route in reversed(held_questions(page)):  # that of the kept one comes last
        route.continue_()
    page.locator("#list li").nth(1).wait_for()
    texts = page.locator("#list li .start").all_text_contents()
    assert sorted(texts) == ["a b c", "d"]
    assert page.locator(".text.source p").text_content() == "d"
    page.unroute("**/explore")
    for _ in range(3):
        page.keyboard.press("Enter")
    page.wait_for_timeout(400)
    assert page.locator("#list li").count() == 2


def test_words_of_two_systems_are_forced_one_after_the_other(page):
    """The second before the first is answered."""
    type_line(page, "a b c d")
    held = []
    page.route("**/explore", lambda route: held.append(route))
    for system in (0, 1):
        page.locator(".text.hypothesis").nth(system).locator(".spoken").first.click()
        page.locator(".text input").fill("AB"[system])
        with page.expect_request("**/explore"):
            page.keyboard.press("Enter")
    for _ in range(500):
        page.wait_for_timeout(20 if len(held) < 2 else 0)
    asked = [route.request.post_data_json["prefixes"] for route in held]
    assert asked == [["A", ""], ["A", "B"]]
    held[1].continue_()
    page.unroute("**/explore")
    page.locator(".text .forced").nth(1).wait_for()


def test_text_without_blanks_goes_on_without_one(page):
    def answer(route):
        asked.append(route.request.post_data_json["prefixes"][0])
        reply = route.fetch().json()
        reply["outputs"][0] |= {"text": "今日は。", "begun": ""}
        route.fulfill(json=reply)

    asked = []
    page.route("**/explore", answer)
    type_line(page, "a b c")
    page.get_by_role("button", name="+").first.click()
    page.locator(".text input").fill("良い")
    with page.expect_response("**/explore"):
        page.keyboard.press("Enter")
    page.unroute("**/explore")
    assert asked[1:] == ["今日は。良い"]


def test_words_run_in_the_direction_of_their_text(page):
    """Words of another direction stand as they would in one piece of text."""

    def answer(route):
        reply = route.fetch().json()
        reply["outputs"][0] |= {"text": "أ Microsoft Windows ب", "begun": ""}
        route.fulfill(json=reply)

    page.route("**/explore", answer)
    type_line(page, "a b c")
    words = page.locator(".text.hypothesis").first.locator(".spoken")
    left = words.evaluate_all("all => all.map(one => one.getBoundingClientRect().x)")
    page.unroute("**/explore")
    assert left[3] < left[1] < left[2] < left[0]


def test_keys_go_on_where_a_word_was_replaced(page):
    type_line(page, "a b c d")
    words = page.locator(".text.hypothesis").first.locator(".spoken")
    place = words.nth(1).get_attribute("data-place")
    focused = "document.activeElement.dataset.place"
    words.nth(1).click()
    page.keyboard.press("Escape")
    assert page.evaluate(focused) == place
    page.keyboard.press("Enter")
    page.locator(".text input").fill("A")
    with page.expect_response("**/explore"):
        page.keyboard.press("Enter")
    page.locator(".text .forced").nth(1).wait_for()
    assert page.evaluate(focused) == place
    page.get_by_role("button", name="+").first.click()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == "+"


def test_a_kept_sentence_can_be_read_though_the_next_one_fails(page):
    kept, draft = held_questions(page)
    draft.fulfill(status=413, json={"error": "too long"})
    page.locator("#state.wrong").wait_for()
    kept.continue_()
    page.locator(".panel").first.wait_for()
    assert page.locator(".text.source p").text_content() == "a b c"
    assert "too long" in page.locator("#state").text_content()
    scores = page.locator("#sort option").filter(has_text="score")
    assert scores.count() == 0  # there is no reference
    page.unroute("**/explore")


def test_an_unknown_word_that_was_forced_stays_what_was_typed(page):
    """Though `<unk>` is shown in its place."""
    type_line(page, "a b c d")
    hypothesis = page.locator(".text.hypothesis").first
    prefixes = []
    for place, word in ((0, "naïveté"), (2, "C"), (1, "B")):
        hypothesis.locator(".spoken").nth(place).click()
        page.locator(".text input").fill(word)
        with page.expect_response("**/explore") as answer:
            page.keyboard.press("Enter")
        prefixes.append(answer.value.request.post_data_json["prefixes"])
        forced = page.locator(".text .forced")
        forced.nth(place).wait_for()
        page.wait_for_function(
            "count => document.querySelectorAll('.forced').length === count",
            arg=place + 1,
        )
    first, second, third = (asked[0] for asked in prefixes)
    assert first == "naïveté"
    assert second.startswith("naïveté ") and second.endswith(" C")
    assert third == "naïveté B"


def test_a_forced_beginning_of_a_word_may_go_on(page):
    """Of subwords; what was shown behind it stays when a later word is forced."""

    def answer(route):
        asked = route.request.post_data_json
        reply = route.fetch().json()
        for output, prefix in zip(reply["outputs"], asked["prefixes"]):
            if prefix == "hou":
                output["text"], output["begun"] = "houses are big", "hou"
            if prefix.startswith("na"):
                output["text"], output["begun"] = "na ⁇ ve are", "na ⁇ ve"
        prefixes.append(asked["prefixes"][0])
        route.fulfill(json=reply)

    prefixes = []
    type_line(page, "a b c d")
    page.route("**/explore", answer)
    words = page.locator(".text.hypothesis").first.locator(".spoken")
    for start, count in (("hou", 1), ("naïve", 3)):
        words.nth(0).click()
        page.locator(".text input").fill(start)
        with page.expect_response("**/explore"):
            page.keyboard.press("Enter")
        forced = page.locator(".text .forced")
        forced.nth(count - 1).wait_for()
        words.filter(has_text="are").click()
        page.locator(".text input").fill("X")
        with page.expect_response("**/explore"):
            page.keyboard.press("Enter")
        assert prefixes[-1] == {"hou": "houses X", "naïve": "naïve X"}[start]
        page.get_by_role("button", name="free").click()
        forced.first.wait_for(state="detached")
    page.unroute("**/explore")


def test_one_box_at_a_time_and_a_click_beside_it_counts(page):
    type_line(page, "a b c d")
    words = page.locator(".text.hypothesis").first.locator(".spoken")
    texts = words.all_text_contents()
    words.nth(0).click()
    page.locator(".text input").fill("lost")
    place = words.nth(1).bounding_box()  # of the third, while the first is a box
    assert place
    page.mouse.move(place["x"] + place["width"] - 2, place["y"] + 5)
    page.mouse.down()
    page.wait_for_timeout(100)
    page.mouse.up()
    page.wait_for_timeout(100)
    box = page.locator(".text input")
    assert (box.count(), box.input_value()) == (1, texts[2])
    page.locator("#line").click()
    box.wait_for(state="detached")
    assert words.all_text_contents() == texts


def test_refusals_are_told(page, service):
    page.fill("#line", "a " * 41)
    page.locator("#state.wrong").wait_for()
    assert "may have 40 here" in page.locator("#state").text_content()


def test_a_browser_gives_the_token_as_a_password(tab, runs):
    token = "a token that is long enough"
    with started({"plain": runs["plain"]}, guard=Guard(token)) as service:
        known = {"username": "anybody", "password": token}
        for credentials, status in (({**known, "password": "x"}, 401), (known, 200)):
            context = tab.context.browser.new_context(http_credentials=credentials)
            page = context.new_page()
            assert page.goto(service.url).status == status
        type_line(page, "a b c")
        assert page.locator(".panel").count() == 1
        context.close()
