# SPDX-License-Identifier: Apache-2.0
"""What the tests of pictures share."""

import pytest
from matplotlib.figure import Figure


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
