# SPDX-License-Identifier: Apache-2.0
"""The live page in a browser: typing, forcing words, and texts that are no markup."""

from kvnmt.inference.translate import translate_lines
from kvnmt.serve.guard import Guard
from tests.browser import MARKUP
from tests.serve.serving import started
from tests.serve.typed import LONG, type_line


def written(page, system: int) -> str:
    """The words of a hypothesis."""
    words = page.locator(".text.hypothesis").nth(system).locator(".spoken")
    return " ".join(words.all_text_contents())


def held_questions(page) -> list:
    """Those of a kept sentence and of the next one, before they are answered."""
    held = []
    page.route("**/explore", lambda route: held.append(route))
    page.fill("#line", "a b c")
    page.keyboard.press("Enter")
    page.fill("#line", "d")
    for _ in range(500):
        if len(held) == 2:
            return held
        page.wait_for_timeout(20)
    raise AssertionError(f"{len(held)} questions")


def test_what_is_typed_is_translated_by_both(page, patient, runs):
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


def test_a_word_is_forced_and_the_rest_translated_anew(page, patient, runs):
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
    (expected,) = patient.post("/translate", asked).json()["translations"]
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


def test_a_word_that_is_typed_stays_where_a_window_is_resized(page):
    type_line(page, "a b c d")
    assert page.locator("#texts").get_attribute("aria-live") == "polite"
    page.locator(".text.hypothesis").first.locator(".spoken").nth(1).click()
    page.locator(".text input").fill("half")
    page.evaluate("document.querySelector('.panel').id = 'before'")
    page.set_viewport_size({"width": 500, "height": 700})
    page.locator("#before").wait_for(state="detached")  # drawn anew
    assert page.locator(".text input").input_value() == "half"


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


def test_refusals_are_told(page, patient):
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
