# SPDX-License-Identifier: Apache-2.0
"""The explorer: what the file holds, and what a browser makes of it."""

import io
import json
import re
from base64 import b64decode
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from itertools import chain

import numpy as np
import pytest
from matplotlib.image import imread

from kvnmt.errors import UserError
from kvnmt.pictures.explorer import Explorer
from tests.browser import MARKUP as HOSTILE
from tests.browser import open_tab, watched

MARKUP = "</script><script>alert(1)</script>"
LONG = (
    "the committee that was to look into the matter met again on Thursday evening and "
    "after hearing nine witnesses from four countries came to the view that nobody had "
    "known of the letter before the minister himself read it aloud"
)
TEXTS = [  # source, reference, a hypothesis of each system
    (
        "die alte Katze schläft unter dem Tisch",
        "the old cat is sleeping under the table",
        "the old cat sleeps under the table",
        "the old dog sleeps on a table",
    ),
    ("科学 者 は 星 を 見つけ た", "he found a star", "found a star", "a star"),
    (f"<b>fett</b> {MARKUP}", "<i>bold</i>", "<b>bold</b>", "<img src=x onerror=a()>"),
    (LONG, LONG, LONG.replace("nine", "ten"), " ".join(LONG.split()[:22])),
    ("ja .", None, "yes .", ""),
]
DIFFERENCES = [40.0, 90.0, 10.0, 70.0, 0.0]
BY_DIFFERENCE = ["2", "4", "1", "3", "5"]
KINDS = ("memory", "weights", "self_attention")


def _system(name: str, rounds: int, *kinds: str) -> dict:
    return {"name": name, "rounds": rounds} | {kind: kind in kinds for kind in KINDS}


SYSTEMS = [
    _system("kv-memory", 2, "memory"),
    _system("residual", 1, "self_attention"),
]
HEADS = 2
PLAIN, LINEAR = _system("plain", 0), _system("linear", 1, "weights")


def _alignment(rng, rows: int, columns: int, sharpness: float) -> np.ndarray:
    diagonal = np.arange(rows)[:, None] * (columns - 1) / max(rows - 1, 1)
    energies = -sharpness * np.abs(np.arange(columns) - diagonal)
    weights = np.exp(energies + rng.normal(size=(rows, columns)))
    return weights / weights.sum(axis=1, keepdims=True)


def _per_mille(weights: np.ndarray) -> list[list[int]]:
    return np.round(1000 * weights).astype(int).tolist()


def _write(rng, alignment: np.ndarray) -> dict[str, list[list[float]]]:
    def norms(size: float) -> list[list[float]]:
        return (size * alignment * rng.uniform(0.2, 1, alignment.shape)).tolist()

    return {"changed": norms(3), "forgotten": norms(2), "added": norms(2.5)}


def _read(rng, alignment: np.ndarray) -> dict[str, list]:
    """Signs, and what the decoder had written: nothing before the first word."""
    signed = 0.5 * alignment * rng.choice([-1, 1], (HEADS, *alignment.shape))
    own = np.round(1000 * rng.uniform(0.1, 0.9, len(alignment))).astype(int)
    own[0] = 0
    return {"signed": np.round(signed, 3).tolist(), "own": own.tolist()}


def _output(rng, system, source: str, text: str, score: float | None) -> dict:
    sources, targets = [*source.split(), "</s>"], [*text.split(), "</s>"]
    T, S = len(targets), len(sources)
    rounds = [_alignment(rng, T, S, 0.7 + r) for r in range(system["rounds"])]
    writes = [_write(rng, alignment) for alignment in rounds]
    earlier = np.tril(_alignment(rng, T, T, 0.3))
    earlier /= earlier.sum(axis=1, keepdims=True)
    log_probs = np.round(-rng.exponential(0.5, T), 3)
    return {
        "text": text,
        "score": score,
        "log_prob": float(log_probs.sum()),
        "source": sources,
        "target": targets,
        "token_log_probs": log_probs.tolist(),
        "rounds": [_per_mille(alignment) for alignment in rounds],
        "memory": writes if system["memory"] else None,
        "weights": [_read(rng, a) for a in rounds] if system["weights"] else None,
        "self_attention": [_per_mille(earlier)] if system["self_attention"] else None,
    }


def _sample(systems=SYSTEMS, texts=TEXTS) -> dict:
    """Random but plausible data; system 2 scores sentence 1 worst, and so on."""
    rng = np.random.default_rng(0)
    sentences = []
    for i, (source, reference, *hypotheses) in enumerate(texts):
        outputs = []
        for j, (system, text) in enumerate(zip(systems, hypotheses, strict=False)):
            score = None if reference is None else 20.0 + 10 * i * (1 - 2 * j) + 40 * j
            outputs.append(_output(rng, system, source, text, score))
        sentences.append(
            {
                "number": i + 1,
                "source": source,
                "reference": reference,
                "difference": DIFFERENCES[i % 5] if len(systems) > 1 else 0.0,
                "outputs": outputs,
            }
        )
    told = [{"members": 1} | {k: s[k] for k in ("name", "rounds")} for s in systems]
    return {"title": f"KVMemAtt {MARKUP}", "systems": told, "sentences": sentences}


DATA = _sample()


# --- without a browser ---------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    Explorer(DATA).write(path)
    return path


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


# --- in a browser --------------------------------------------------------------------


@pytest.fixture(scope="module")
def tab() -> Iterator:
    """One page of one browser."""
    with open_tab() as page:
        yield page


@pytest.fixture
def page(tab):
    """An empty page in light, with room; it asks for documents alone."""
    with watched(tab) as requests:
        yield tab
    documents = [url for url in requests if re.fullmatch(r"file:.*\.html(#.*)?", url)]
    assert [url for url in requests if not url.startswith("data:")] == documents


def _show(page, written, hash_: str = "") -> None:
    page.goto(f"{written.as_uri()}#{hash_}")


def _show_other(page, path, data) -> None:
    Explorer(data).write(path)
    page.goto(path.as_uri())


def _numbers(page) -> list[str]:
    # Not the inner texts: rows that were not painted yet have none.
    return page.locator("#list .number").all_text_contents()


def _values(page, selector: str, code: str) -> list:
    """What a JavaScript expression of `node` is for every element."""
    return page.locator(selector).evaluate_all(f"nodes => nodes.map(node => {code})")


def test_opens_with_the_most_different_sentence(page, written):
    _show(page, written)
    assert page.title() == DATA["title"]
    assert _numbers(page) == BY_DIFFERENCE
    assert page.locator("[aria-selected=true] .number").text_content() == "2"
    assert page.locator(".text.source p").inner_text() == TEXTS[1][0]
    assert page.locator(".panel").count() == 2


def test_click_and_arrows_choose_a_sentence(page, written):
    _show(page, written)
    page.click("#list li >> nth=2")
    assert page.locator(".text.source p").inner_text() == TEXTS[0][0]
    assert page.locator(".text.reference p").inner_text() == TEXTS[0][1]
    page.keyboard.press("ArrowUp")
    assert page.locator(".text.source p").inner_text() == LONG
    assert page.locator("[aria-selected=true]").count() == 1


def test_words_that_differ_are_marked(page, written):
    _show(page, written, "sentence=1")
    first, second = (page.locator(f".hypothesis >> nth={i}") for i in (0, 1))
    assert first.locator("mark.apart").all_inner_texts() == ["cat", "under the"]
    assert second.locator("mark.apart").all_inner_texts() == ["dog", "on a"]
    assert first.locator("mark.unlike").all_inner_texts() == ["sleeps"]
    marked = page.locator(".reference mark").all_inner_texts()
    assert marked == ["is sleeping"]


def test_order_and_filter(page, written):
    _show(page, written)
    page.select_option("#sort", "score-2")  # 60, 50, 40, 30, none
    assert _numbers(page) == ["4", "3", "2", "1", "5"]
    page.click("#reverse")
    assert _numbers(page) == ["1", "2", "3", "4", "5"]
    page.select_option("#sort", "length")
    assert _numbers(page)[-1] == "4"
    page.select_option("#sort", "number")
    assert _numbers(page) == ["1", "2", "3", "4", "5"]
    page.keyboard.press("/")
    page.keyboard.type("STAR")
    assert _numbers(page) == ["2"]
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
    return [[_values(page, panel.format(r, k), code) for k in kinds] for r in (0, 1)]


def _expected_bars(step: int) -> np.ndarray:
    memory = DATA["sentences"][0]["outputs"][0]["memory"]
    norms = np.array([list(write.values()) for write in memory])  # [R, 3, T, S]
    return 76 * norms[:, :, step] / norms.max()


def test_keys_step_through_words_and_writes(page, written):
    _show(page, written, "sentence=1")
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
    _show(page, written, "sentence=1&systems=1&step=4")
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
    _show(page, written, "sentence=4&systems=1,2")
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


def _cells(page, number: int, shape: tuple[int, ...], place: float) -> np.ndarray:
    """Colours of a matrix' cells, near their corners (0.1) or centres (0.45)."""
    code = "canvas => canvas.toDataURL().split(',')[1]"
    picture = b64decode(page.locator("figure canvas").nth(number).evaluate(code))
    pixels = imread(io.BytesIO(picture), format="png")[..., :3]
    height, width = pixels.shape[0] // shape[0], pixels.shape[1] // shape[1]
    return pixels[int(place * height) :: height, int(place * width) :: width]


@pytest.mark.parametrize("round_", [0, 1])
def test_darker_cells_are_larger_weights(page, written, round_):
    _show(page, written, "sentence=1&systems=1")
    weights = np.array(DATA["sentences"][0]["outputs"][0]["rounds"][round_])
    brightness = _cells(page, round_, weights.shape, 0.1).mean(axis=2)
    assert brightness.shape == weights.shape
    order = np.argsort(weights, axis=None, kind="stable")
    assert (np.diff(brightness.ravel()[order]) <= 1 / 255).all()
    assert np.ptp(brightness) > 0.3


def test_dots_where_the_strongest_word_moved(page, written):
    _show(page, written, "sentence=1&systems=1")
    rounds = np.array(DATA["sentences"][0]["outputs"][0]["rounds"])
    first, second = rounds.argmax(axis=2)
    (moved,) = np.nonzero(first != second)
    assert 0 < len(moved) < len(first)
    for round_, expected in [(0, []), (1, [(t, second[t]) for t in moved])]:
        red, green, blue = np.moveaxis(_cells(page, round_, (8, 8), 0.45), 2, 0)
        dots = np.argwhere((red > green + 0.3) & (red > blue))
        assert dots.tolist() == [list(cell) for cell in expected]
    for t in (moved[0], np.flatnonzero(first == second)[0]):
        page.locator(".chip").nth(t).click()
        assert page.locator(".moved").count() == (t in moved)


def _isolated(word: str) -> str:
    """As where words may be of a script from right to left."""
    return f"\u2068{word}\u2069"


def test_hover_tells_the_value(page, written):
    _show(page, written, "sentence=1")
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


def test_self_attention_is_of_earlier_words(page, written):
    _show(page, written, "sentence=1&systems=2")
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
    data = _sample([LINEAR], TEXTS[:1])
    _show_other(page, tmp_path / "linear.html", data)
    titles = page.locator(".panel h3").all_inner_texts()
    assert titles == ["Alignment", "Signed weights"]
    (output,) = data["sentences"][0]["outputs"]
    (read,) = output["weights"]
    heads = np.array(read["signed"])
    for n, signed in enumerate(heads):
        red, _, blue = np.moveaxis(_cells(page, 1 + n, signed.shape, 0.1), 2, 0)
        clear = np.abs(signed) > 0.1 * np.abs(signed).max()
        assert clear.sum() > 10
        assert ((blue > red) == (signed > 0))[clear].all()
        caption = page.locator("figcaption").nth(1 + n).inner_text()
        assert caption == f"read of round 1, head {n + 1}"
    share = _cells(page, 1 + HEADS, (len(heads[0]), 1), 0.1).mean(axis=2)[:, 0]
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
    _show(page, written, "sentence=1&systems=1&step=3")
    assert page.locator("#rounds").is_hidden()
    page.keyboard.press("l")
    rounds = DATA["sentences"][0]["outputs"][0]["rounds"]
    for name, matrix in [("Round 2", rounds[1]), ("Round 1", rounds[0])]:
        page.get_by_role("button", name=name).click()
        # Whoever uses keys goes on from there.
        assert page.evaluate("document.activeElement.textContent") == name
        drawn = _values(page, ".curves path.lit", "Number(node.dataset.s)")
        assert drawn == [s for s, weight in enumerate(matrix[2]) if weight >= 50]
        curves = _values(
            page, ".curves path", "Number(node.getAttribute('stroke-width'))"
        )
        assert len(curves) == (np.array(matrix) >= 50).sum()
        assert max(curves) == pytest.approx(1 + 3.5 * np.max(matrix) / 1000, abs=0.01)
    assert page.locator("#links").get_attribute("aria-pressed") == "true"
    page.keyboard.press("m")
    assert page.locator(".curves").count() == 0
    assert page.locator("figure:not(.memory)").count() == 2


def test_markup_is_text(page, written):
    _show(page, written, "sentence=3&step=2")
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
    data = _sample(systems, texts)
    _show_other(page, tmp_path / "plain.html", data)
    assert page.locator("script").count() == 2
    assert page.locator("iframe, img, body style, plaintext, math, a").count() == 0
    for n, option in enumerate(page.locator("#list li").all()):
        option.click()
        page.keyboard.press("lm"[n % 2])
        page.locator(".chip").first.hover()
        assert page.locator(".text.source p").text_content() in HOSTILE


def test_hash_restores_the_view(page, written):
    _show(page, written)
    page.click("#list li >> nth=1")
    page.select_option("#system", "1")
    for key in ("j", "j", "l", "r", "t"):
        page.keyboard.press(key)
    page.select_option("#sort", "length")
    state = "#sentence=4&systems=2,1&step=3&view=links&round=1&sort=length&theme=dark"
    page.wait_for_url(lambda url: url.endswith(state))
    before = page.locator("main").inner_text(), _numbers(page)
    page.reload()
    assert (page.locator("main").inner_text(), _numbers(page)) == before
    assert page.locator("#where").inner_text().startswith("word 3 of")


@pytest.mark.parametrize("hash_", ["sentence=99&systems=7,x&step=-3", "round=9&step=x"])
def test_hash_of_something_else(page, written, hash_):
    _show(page, written, hash_)
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
    _show(page, written, "sentence=1&step=2")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (
        background == {"light": "rgb(244, 245, 247)", "dark": "rgb(14, 17, 22)"}[scheme]
    )
    found = page.locator(TEXT).evaluate_all(f"nodes => nodes.map({CONTRAST})")
    assert len(found) > 100
    assert [(name, ratio) for name, ratio in found if ratio < 4.5] == []


def test_theme_button_changes_cells_too(page, written):
    _show(page, written, "sentence=1&systems=1")
    light = _cells(page, 0, (8, 8), 0.1).mean(axis=2)
    page.click("#theme")
    dark = _cells(page, 0, (8, 8), 0.1).mean(axis=2)
    assert light.max() > 0.9 and dark.min() < 0.2
    assert np.corrcoef(light.ravel(), dark.ravel())[0, 1] < -0.7
    assert page.locator("#theme").inner_text() == "Light"


@pytest.mark.parametrize("width, view", [(800, "matrix"), (1400, "links")])
def test_long_sentences_do_not_widen_the_page(page, written, width, view):
    page.set_viewport_size({"width": width, "height": 600})
    _show(page, written, f"sentence=4&view={view}&step=40")
    taken = page.evaluate("document.documentElement.scrollWidth")
    assert width - 20 <= taken <= width  # but for the place of a scrollbar
    scrolled = _values(page, ".scroller", "node.scrollWidth > node.clientWidth")
    assert any(scrolled)
    frame = page.locator(".scroller").first.bounding_box()
    for word in page.locator("figure").first.locator(".current, .strong").all():
        box = word.bounding_box()
        for start, size in (("x", "width"), ("y", "height")):
            assert frame[start] <= box[start]
            assert box[start] + box[size] <= frame[start] + frame[size]


def test_controls_have_names_and_visible_focus(page, written):
    _show(page, written)
    names = _values(page, "button", "node.ariaLabel || node.innerText || node.id")
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


def test_the_box_that_is_read_keeps_the_focus(page, written):
    """Panels are made anew for every sentence."""
    _show(page, written)
    page.locator(".panel summary").nth(1).focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("[aria-selected=true] .number").text_content() == "4"
    where = "[...document.querySelectorAll('.panel summary')]"
    assert page.evaluate(f"{where}.indexOf(document.activeElement)") == 1


def test_paper_shows_all_of_two_systems(page, written):
    """One below the other: their matrices are as wide as on the screen."""
    page.set_viewport_size({"width": 1400, "height": 600})
    _show(page, written, "sentence=4")
    page.emulate_media(media="print")
    first, second = (panel.bounding_box() for panel in page.locator(".panel").all())
    assert first["y"] + first["height"] <= second["y"]
    hidden = "node.scrollHeight - node.clientHeight"
    assert max(_values(page, ".chips, .scroller", hidden)) <= 0
    page.emulate_media(media="screen")


def test_system_that_does_not_align(page, tmp_path):
    _show_other(page, tmp_path / "plain.html", _sample([PLAIN]))
    assert "does not align" in page.locator(".panel").inner_text()
    assert page.locator("canvas, .curves").count() == 0
    assert page.locator("#versus").is_hidden()
    assert _numbers(page) == ["1", "2", "3", "4", "5"]
    assert page.locator("#sort option").all_inner_texts()[1:] == [
        "score of A plain",
        "length of the source",
    ]
    page.keyboard.press("l")
    assert "does not align" in page.locator(".panel").inner_text()


def test_empty_hypothesis(page, written):
    _show(page, written, "sentence=5&systems=2")
    assert page.locator(".hypothesis em").inner_text() == "(empty)"
    assert page.locator("#where").inner_text() == "word 1 of 1"
    assert page.locator(".reference").count() == 0
    page.keyboard.press("l")
    assert page.locator(".curves path").count() >= 1


@pytest.mark.parametrize("systems", [[], SYSTEMS])
def test_no_sentence(page, tmp_path, systems):
    _show_other(page, tmp_path / "none.html", _sample(systems, []))
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
