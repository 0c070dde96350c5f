# SPDX-License-Identifier: Apache-2.0
"""Searches and small runs for the tests of `kvnmt translate`."""

from kvnmt.inference.config import SearchConfig
from tests.helpers import DEVICES

GREEDY = ("--search.beam", 1, "--search.batch-size", DEVICES)
PLAIN = SearchConfig(beam=1, batch_size=DEVICES)


def lines_of(said) -> list[str]:
    assert said.status == 0, said.err
    return said.out.decode().split("\n")[:-1]


def narrow(monkeypatch) -> None:
    """Lets a window have one batch."""
    for name in ("answers", "translate"):
        monkeypatch.setattr(f"kvnmt.cli.{name}.WINDOW", 1)
