# SPDX-License-Identifier: Apache-2.0
"""What all pictures share: fonts for every script, colors, and writing the file.

Figures are made without pyplot and fonts are chosen text by text, so that no picture
touches the matplotlib settings of a notebook that draws it.

A picture is made even where no font has a character, which then becomes a box;
``missing_font`` says so beforehand in one sentence.
"""

import logging
import os
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from io import BytesIO, TextIOBase
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib import font_manager, rc_context
from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry
from matplotlib.text import Text

from kvnmt.data.outputs import write_output
from kvnmt.errors import UserError, reason_of

GOLD = "#e66100"
MOVED = "#c51b7d"
# For systems; the color-blind can tell them apart (Okabe and Ito 2008).
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333")
MARKERS = "osD^vPX"
KINDS = "png", "pdf", "svg"  # of pictures; the first, where a name tells none

_BASE = "DejaVu Sans"  # comes with matplotlib, and lacks CJK characters
# In order of preference; other fonts are looked through only if these do not suffice.
_PREFERRED = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans CJK KR",
    "Noto Sans JP",
    "Noto Sans SC",
    "Noto Sans KR",
    "IPAexGothic",
    "IPAGothic",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "NanumGothic",
    "Droid Sans Fallback",
    "Hiragino Sans",
    "PingFang SC",
    "Apple SD Gothic Neo",
    "Yu Gothic",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Arial Unicode MS",
)
# They claim every character and draw boxes or nothing.
_EMPTY = ("last resort", "lastresort", "adobe blank")
_SHOWN = 8  # characters named in a sentence
_CJK = ("CJK", "HANGUL", "HIRAGANA", "KATAKANA", "BOPOMOFO", "FULLWIDTH", "IDEOGRAPHIC")


def font_families(texts: Iterable[str]) -> list[str]:
    """Finds the fonts to draw texts with: each character by the first that has it.

    DejaVu Sans comes first, then as few others as give the rest of the characters:
    from the list of preferred fonts, else from all that are installed.
    """
    return [_BASE, *_choose(_characters(texts))[0]]


def missing_font(texts: Iterable[str]) -> str | None:
    """Says which characters no installed font has, and which package to install.

    Args:
        texts: All that a picture is to show.

    Returns:
        A sentence for the command line; None if every character can be drawn.
    """
    missing = [chr(code) for code in sorted(_choose(_characters(texts))[1])]
    if not missing:
        return None
    shown = " ".join(missing[:_SHOWN])
    more = len(missing) - _SHOWN
    packages = " and ".join(sorted(set(map(_package, missing))))
    return (
        f"no installed font has {shown}{f' and {more} more' if more > 0 else ''}; "
        f"pictures show boxes until one is installed, such as Debian's {packages}."
    )


def style(texts: Iterable[Text], families: Sequence[str]) -> None:
    """Gives texts these fonts; a dollar sign in them starts no formula."""
    for text in texts:
        text.set(family=families, parse_math=False)


def kind_of(path: str | os.PathLike[str]) -> str:
    """The kind of picture that a path asks for.

    Raises:
        UserError: No picture is of such a kind.
    """
    kind = Path(path).suffix.removeprefix(".").lower() or KINDS[0]
    if kind not in KINDS:
        raise UserError(
            f"'{path}' ends in .{kind}, which is no kind of picture; give .png, .pdf "
            "or .svg."
        )
    return kind


def save(figure: Figure, path: str | os.PathLike[str] | BinaryIO) -> None:
    """Writes a picture, with all that lies outside of the figure's frame; a file whole.

    It is a PNG, or what else the end of the path says: a PDF, an SVG.

    Raises:
        UserError: The file cannot be written, or no picture is of such a kind.
    """
    drawn, kind = BytesIO(), "png"
    if isinstance(path, (str, os.PathLike)):
        kind = kind_of(path)
    elif isinstance(path, TextIOBase) or not hasattr(path, "write"):
        raise UserError(
            f"a picture is written to a path or to a file open for bytes, not {path!r}."
        )
    # In a PDF whole fonts, not drawings of letters, which some publishers refuse.
    with _quiet_about_fonts(), rc_context({"pdf.fonttype": 42}):
        figure.savefig(drawn, format=kind, dpi=150, bbox_inches="tight")
    if isinstance(path, (str, os.PathLike)):
        write_output(Path(path), drawn.getvalue())
        return
    try:
        path.write(drawn.getvalue())
    except OSError as error:
        raise UserError(f"'{path}' cannot be written: {reason_of(error)}.") from error


@contextmanager
def _quiet_about_fonts() -> Iterator[None]:
    """Keeps back what nobody can act on, or what ``missing_font`` says once."""

    def is_news(record: logging.LogRecord) -> bool:
        return "Failed to find font weight" not in record.getMessage()

    logger = logging.getLogger(font_manager.__name__)
    logger.addFilter(is_news)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            yield
    finally:
        logger.removeFilter(is_news)


def _characters(texts: Iterable[str]) -> set[int]:
    """What needs a glyph: neither white space nor control and format characters."""
    characters = set().union(*texts)
    return {ord(c) for c in characters if unicodedata.category(c)[0] not in "CZ"}


def _choose(characters: set[int]) -> tuple[list[str], set[int]]:
    """Names of fonts that supplement DejaVu Sans, and the characters in none."""
    fonts = _by_name()
    missing = characters - _covered(fonts.get(_BASE), characters)
    chosen = []
    for names in _stages():
        fonts = _by_name()
        while missing and names:
            covered = {name: _covered(fonts[name], missing) for name in names}
            best = max(names, key=lambda name: len(covered[name]))  # first of equals
            if not covered[best]:
                break
            chosen.append(best)
            missing -= covered[best]
        if not missing:
            break
    return chosen, missing


def _stages() -> Iterator[list[str]]:
    """Names of installed fonts, each list slower to look through than the last."""
    installed = _by_name()
    yield [name for name in _PREFERRED if name in installed]
    yield sorted(installed)
    _look_again()
    yield sorted(_by_name())


def _by_name() -> dict[str, FontEntry]:
    """The most regular face of every installed font."""
    faces: dict[str, FontEntry] = {}
    for face in font_manager.fontManager.ttflist:
        if not face.name.lower().startswith(_EMPTY):
            known = faces.setdefault(face.name, face)
            if _slant_and_weight(face) < _slant_and_weight(known):
                faces[face.name] = face
    return faces


def _slant_and_weight(face: FontEntry) -> tuple[bool, float]:
    weight = face.weight
    if isinstance(weight, str):
        weight = font_manager.weight_dict.get(weight, 400)
    return face.style != "normal", abs(weight - 400)


def _covered(face: FontEntry | None, characters: set[int]) -> set[int]:
    if face is None or not characters:
        return set()
    wanted = np.fromiter(characters, np.uint32)
    has = _charmap(face.fname, getattr(face, "index", 0))  # matplotlib 3.11 and later
    return set(wanted[np.isin(wanted, has)].tolist())


@cache
def _charmap(path: str, index: int) -> np.ndarray:
    """The characters of a font, as an array: thousands of fonts may be kept."""
    source = font_manager.FontPath(path, index) if index else path
    try:
        return np.fromiter(font_manager.get_font(source).get_charmap(), np.uint32)
    except (OSError, RuntimeError):  # removed since matplotlib listed it, or broken
        return np.empty(0, np.uint32)


@cache
def _look_again() -> None:
    """Adds fonts installed since matplotlib wrote its list; it never does itself.

    Once in a process, as it asks the system for every font.
    """
    known = {face.fname for face in font_manager.fontManager.ttflist}
    for path in sorted(set(font_manager.findSystemFonts()) - known):
        try:
            font_manager.fontManager.addfont(path)
        except Exception:  # as matplotlib: a bad font may raise anything
            continue


def _package(character: str) -> str:
    if unicodedata.name(character, "").startswith(_CJK):
        return "fonts-noto-cjk"
    return "fonts-symbola" if ord(character) >= 0x1F000 else "fonts-noto-core"
