# SPDX-License-Identifier: Apache-2.0
"""What can be chosen is read off the catalogues."""

import dataclasses
import io
import json
import types
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from rich.console import Console

from kvnmt import attention, decoder, target_context
from kvnmt.attention import kv_memory
from kvnmt.fields import between
from kvnmt.systems.mechanisms import Option, mechanisms, table


@dataclass(frozen=True)
class Mine(attention.Options):
    """Options of a mechanism that is listed for a test."""

    power: Annotated[float, between(0, 2)] = 0.5
    shape: Literal["round", "square"] = "round"
    many: bool = True
    inner: kv_memory.Options = kv_memory.Options(write_bias=2.0)


@pytest.fixture(name="listed")
def _listed():
    attention.CATALOGUE.add("mine", types.SimpleNamespace(Options=Mine, build=None))
    yield
    attention.CATALOGUE.remove("mine")


def test_every_member_is_told():
    catalogues = attention.CATALOGUE, decoder.CATALOGUE, target_context.CATALOGUE
    names = [name for catalogue in catalogues for name in catalogue]
    rows = mechanisms()
    assert [row.mechanism for row in rows] == names
    for row in rows:
        assert row.summary.endswith("."), row


def test_a_new_member_shows_up_with_its_options(listed):
    (row,) = [row for row in mechanisms() if row.mechanism == "mine"]
    assert row.kind == "attention"
    assert row.summary == "What can be chosen is read off the catalogues."
    assert row.options == [
        Option("power", 0.5, (), "at least 0 and at most 2"),
        Option("shape", "round", ("round", "square"), ""),
        Option("many", True, (), ""),
        Option("inner", dataclasses.asdict(kv_memory.Options(write_bias=2.0)), (), ""),
    ]


def test_the_command_lists_it(kvnmt, listed):
    said = kvnmt("systems", "--systems", "memdec")
    assert said.status == 0
    assert "at least 0 and at most 2" in said.out.decode()
    said = kvnmt("systems", "--systems", "memdec", "--json")
    lines = [json.loads(line) for line in said.out.splitlines()]
    (mine,) = [line for line in lines if line.get("mechanism") == "mine"]
    assert mine["options"][1]["choices"] == ["round", "square"]


def test_the_table_names_every_option():
    text = io.StringIO()
    Console(file=text, width=300).print(table(mechanisms()))
    for row in mechanisms():
        for option in row.options:
            assert f" {option.name} " in text.getvalue()
