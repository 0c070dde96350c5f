# SPDX-License-Identifier: Apache-2.0
"""The live page in a browser: words that are forced, and what goes on behind them."""

from tests.serve.typed import type_line


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
        if len(held) == 2:
            break
        page.wait_for_timeout(20)
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
