# SPDX-License-Identifier: Apache-2.0
"""What the tests of pictures share."""

import re
from collections.abc import Iterator

import pytest
from matplotlib.figure import Figure

from kvnmt.pictures.explorer import Explorer
from tests.browser import open_tab, watched
from tests.pictures.explorer import DATA


@pytest.fixture
def saved(monkeypatch) -> list[Figure]:
    """The figures that were saved; each file is checked to be a picture."""
    figures = []
    save = Figure.savefig

    def remember(figure, path, **kwargs):
        save(figure, path, **kwargs)
        picture = path.getvalue()
        assert picture.startswith(b"\x89PNG\r\n") and len(picture) > 3000
        figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", remember)
    return figures


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    Explorer(DATA).write(path)
    return path


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
