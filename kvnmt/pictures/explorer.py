# SPDX-License-Identifier: Apache-2.0
"""The explorer: one HTML file to look at sentences and how systems translated them.

The file asks nothing of a network: style, script and data are inside of it. What it
is made of lies beside this file in ``page``; the scripts share one scope and are joined
in the order of ``_SCRIPTS``.
"""

import html
import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from kvnmt.data.outputs import write_output

_SCRIPTS = (
    "dom.js",
    "data.js",
    "state.js",
    "list.js",
    "texts.js",
    "matrix.js",
    "links.js",
    "memory.js",
    "weights.js",
    "readout.js",
    "values.js",
    "panel.js",
    "main.js",  # starts the page, so it comes last
)
_LIVE = (*_SCRIPTS, "forced.js", "live.js")  # the last one starts it
_STYLES = ("explorer.css", "panels.css", "screens.css")
_FRAME = (
    '<iframe srcdoc="{page}" title="{title}" sandbox="allow-scripts" '
    'style="width: 100%; height: {height}px; border: 1px solid #bbb"></iframe>'
)
_HEIGHT = 720  # pixels


class Explorer(NamedTuple):
    """The page of some sentences; the last line of a notebook's cell shows it.

    The notebook holds the whole page, so that it is shown without a network, and again
    when the notebook is opened later.

    Attributes:
        data: What is shown, of types that JSON has; numbers are finite::

            title        str
            systems      a list, the same order in every sentence, of
              name            str
              rounds          int, R; 0 for a system that does not align
              members         int, how many models it is an ensemble of, or 1
            sentences    a list, of
              number      int, the line, counted from 1; no two are alike
              source      str
              reference   str or None
              difference  float from 0 to 100, how much the outputs differ: 100
                          less chrF of one against the other; 0 for one system
              outputs     a list, one for each system, of
                text             str, the translation
                score            float from 0 to 100 or None, chrF of the sentence
                log_prob         float, of the whole translation, in nats
                source           S tokens, "</s>" included
                target           T tokens, "</s>" included; S and T are of this system
                token_log_probs  T floats
                rounds           R alignments, each T rows of S integers per mille; the
                                 last is the one that is read
                memory           None, or R objects with "changed", "forgotten" and
                                 "added", each T rows of S floats, at least 0: L2 norms
                                 of what the write of the step that predicts that
                                 target word did to the key of that source word
                weights          None, or R objects with "signed", for each head T rows
                                 of S floats: the weights that the alignment shows
                                 without signs, unscaled; and "own", T integers per
                                 mille, the share of what was read that the decoder
                                 has written
                self_attention   None, or of each mechanism that looks back T rows of T
                                 integers per mille: row t is the step that predicts
                                 ``target[t]``, column 0 stands before the first word,
                                 column i is ``target[i - 1]``; columns after t are 0
    """

    data: Mapping[str, Any]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the page into a file, as HTML.

        Raises:
            UserError: The path cannot be written.
        """
        write_output(Path(path), _page(self.data))

    def __repr__(self) -> str:
        count = len(self.data["sentences"])
        return f"Explorer of {count} sentences; write('explorer.html') makes a page"

    def _repr_html_(self) -> str:
        return _FRAME.format(
            page=html.escape(_page(self.data)),
            title=html.escape(self.data["title"]),
            height=_HEIGHT,
        )


def live_page(systems: Sequence[Mapping[str, Any]]) -> str:
    """The page of a service: a line to type in, and what systems make of it.

    It asks the address ``explore`` beside its own, and nothing else of a network.

    Args:
        systems: As in the data of an `Explorer`.
    """
    title = f"kvnmt: {', '.join(system['name'] for system in systems)}"
    data = {"title": title, "systems": systems, "sentences": []}
    return _page(data, live=True)


def _page(data: Mapping[str, Any], live: bool = False) -> str:
    parts = {
        "title": html.escape(data["title"]),
        "style": "\n".join(map(_asset, (*_STYLES, "live.css") if live else _STYLES)),
        "script": "\n".join(map(_asset, _LIVE if live else _SCRIPTS)),
        "data": _script_json(data),
        "asks": "; connect-src 'self'" if live else "",
        "live": _asset("live.html") if live else "",
    }
    # In one pass: a part may hold what looks like the place of another.
    page = re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], _asset("explorer.html"))
    # JSON reads what a lone surrogate becomes; UTF-8 has no bytes for one.
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def _asset(name: str) -> str:
    folder = resources.files("kvnmt.pictures") / "page"
    return (folder / name).read_text(encoding="utf-8")


def _script_json(data: Mapping[str, Any]) -> str:
    """JSON that no text in it can make end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
