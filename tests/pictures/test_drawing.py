# SPDX-License-Identifier: Apache-2.0
"""Fonts are looked for until every character has one, or it is said which has none.

No test depends on the fonts of the machine: a font is made for each.
"""

import logging
import os
from pathlib import Path

import matplotlib
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry

from kvnmt.errors import UserError
from kvnmt.pictures import drawing
from kvnmt.pictures.drawing import font_families, missing_font, save, style
from tests.helpers import full


def _square():
    pen = TTGlyphPen(None)
    pen.moveTo((100, 0))
    for corner in [(100, 700), (700, 700), (700, 0)]:
        pen.lineTo(corner)
    pen.closePath()
    return pen.glyph()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Makes a machine with matplotlib's own fonts, and a function that adds some."""
    manager = font_manager.fontManager
    own = matplotlib.get_data_path()
    known = [face for face in manager.ttflist if face.fname.startswith(own)]
    monkeypatch.setattr(manager, "ttflist", known)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [])
    drawing._look_again.cache_clear()

    def add(name, characters, listed=True):
        path = tmp_path / f"{name}.ttf"
        glyphs = [".notdef", *(f"u{ord(c):04X}" for c in characters)]
        font = FontBuilder(1000, isTTF=True)
        font.setupGlyphOrder(glyphs)
        font.setupCharacterMap(dict(zip(map(ord, characters), glyphs[1:])))
        font.setupGlyf(dict.fromkeys(glyphs, _square()))
        font.setupHorizontalMetrics(dict.fromkeys(glyphs, (800, 100)))
        font.setupHorizontalHeader(ascent=800, descent=-200)
        font.setupNameTable({"familyName": name, "styleName": "Regular"})
        font.setupOS2(sTypoAscender=800, usWeightClass=400)
        font.setupPost()
        font.save(path)
        if listed:
            manager.addfont(path)
        return str(path)

    yield add
    manager._findfont_cached.cache_clear()
    drawing._look_again.cache_clear()


def test_plain_text_needs_no_other_font(install, monkeypatch):
    install("IPAGothic", "字")
    monkeypatch.setattr(font_manager, "findSystemFonts", pytest.fail)
    texts = ["Ähre ∅ …", "\n\t\u200b", "наука"]
    assert font_families(texts) == ["DejaVu Sans"]
    assert missing_font(texts) is None
    assert font_families([]) == ["DejaVu Sans"]


def test_preferred_fonts_come_first(install):
    install("AAA", "字한国们")
    install("WenQuanYi Zen Hei", "字国")
    install("IPAGothic", "字国")
    assert font_families(["字国"]) == ["DejaVu Sans", "IPAGothic"]


def test_fewest_fonts_that_have_all(install):
    install("IPAGothic", "字")
    install("WenQuanYi Zen Hei", "字国们")
    install("NanumGothic", "한")
    assert font_families(["字x"]) == ["DejaVu Sans", "IPAGothic"]
    assert font_families(["字们国"]) == ["DejaVu Sans", "WenQuanYi Zen Hei"]
    assert font_families(["字们", "한"]) == [
        "DejaVu Sans",
        "WenQuanYi Zen Hei",
        "NanumGothic",
    ]


def test_any_font_will_do(install, monkeypatch):
    monkeypatch.setattr(drawing, "_PREFERRED", ("Not There",))
    monkeypatch.setattr(font_manager, "findSystemFonts", pytest.fail)
    install("Odd", "字")
    install("Odder", "한글")
    assert font_families(["字"]) == ["DejaVu Sans", "Odd"]
    assert font_families(["글字한"]) == ["DejaVu Sans", "Odder", "Odd"]
    assert missing_font(["글字한"]) is None


def test_fonts_installed_since_matplotlib_looked(install, monkeypatch, tmp_path):
    path = install("New", "字", listed=False)
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"none")
    assert missing_font(["字"]) is not None
    drawing._look_again.cache_clear()
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(broken), path])
    assert missing_font(["字"]) is None
    assert font_families(["字"]) == ["DejaVu Sans", "New"]


def test_font_removed_since_matplotlib_looked(install, tmp_path):
    gone = FontEntry(fname=str(tmp_path / "gone.ttf"), name="IPAGothic")
    font_manager.fontManager.ttflist.append(gone)
    install("Odd", "字")
    assert font_families(["字"]) == ["DejaVu Sans", "Odd"]


def test_fonts_that_only_claim_to_have_a_character(install):
    install("Last Resort Of All", "字")
    install("Adobe Blank", "字")
    assert font_families(["字"]) == ["DejaVu Sans"]


def test_missing_characters_are_named(install):
    install("IPAGothic", "字")
    assert missing_font(["字한", "x한글"]) == (
        "no installed font has 글 한; pictures show boxes until one is installed, such "
        "as Debian's fonts-noto-cjk."
    )
    assert missing_font(["字한", "x한글"]) == missing_font(["한글"])
    assert "and 2 more;" in missing_font([chr(0x4E00 + i) for i in range(10)])
    assert "\ua9b2; pictures" in missing_font(["\ua9b2"])
    assert missing_font(["\ua9b2"]).endswith("Debian's fonts-noto-core.")
    assert missing_font(["字\ua9b2한"]).endswith("fonts-noto-cjk and fonts-noto-core.")
    assert missing_font(["\U0001fae0"]).endswith("Debian's fonts-symbola.")


@pytest.mark.parametrize("weight", [400, 900])
def test_characters_are_drawn_with_the_font_found(install, tmp_path, caplog, weight):
    install("Odd", "字")
    face = font_manager.fontManager.ttflist[-1]
    heavy = FontEntry(fname=face.fname, name="Odd", weight=weight)
    font_manager.fontManager.ttflist[-1] = heavy
    pictures = []
    for families in (font_families(["字"]), ["DejaVu Sans"]):
        figure = Figure((1, 1))
        style([figure.text(0.5, 0.5, "字")], families)
        with caplog.at_level(logging.WARNING):
            save(figure, tmp_path / "a.png")
        pictures.append((tmp_path / "a.png").read_bytes())
    assert pictures[0] != pictures[1]
    assert not caplog.records


def test_a_picture_stays_where_no_other_can_be_written(tmp_path, monkeypatch):
    path, figure = tmp_path / "picture.png", Figure()
    save(figure, path)
    before = path.read_bytes()

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="picture.png' cannot be written: No space"):
        save(figure, path)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]
    save(figure, "/dev/null")
    assert not Path("/dev/null").is_file()


def test_settings_of_matplotlib_stay(install, tmp_path):
    before = dict(matplotlib.rcParams)
    figure = Figure((1, 1))
    style([figure.text(0, 0, "字 $5")], font_families(["字"]))
    save(figure, tmp_path / "a.png")
    assert not figure.texts[0].get_parse_math()
    assert dict(matplotlib.rcParams) == before
    assert not logging.getLogger(font_manager.__name__).filters


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("a.png", b"\x89PNG"),
        ("a", b"\x89PNG"),
        ("a.PDF", b"%PDF"),
        ("a.svg", b"<?xml"),
    ],
)
def test_a_picture_is_of_the_kind_that_its_name_says(tmp_path, name, start):
    save(Figure(), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize("kind", ["v2", "pgf", "raw"])
def test_a_name_of_no_kind_of_picture_is_refused(tmp_path, kind):
    with pytest.raises(UserError, match=f"ends in .{kind}, .* give .png, .pdf"):
        save(Figure(), tmp_path / f"a.{kind}")
    assert not list(tmp_path.iterdir())
