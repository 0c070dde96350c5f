# SPDX-License-Identifier: Apache-2.0
import dataclasses
from types import SimpleNamespace

import pytest

from kvnmt import attention, decoder, target_context
from kvnmt.attention import additive
from kvnmt.catalogue import Catalogue
from kvnmt.errors import UserError

CATALOGUES = {
    "attention": (attention.CATALOGUE, attention.Options),
    "decoder": (decoder.CATALOGUE, decoder.Options),
    "target context": (target_context.CATALOGUE, target_context.Options),
}


@pytest.mark.parametrize("kind", CATALOGUES)
def test_every_member_has_complete_options_of_its_own(kind):
    catalogue, base = CATALOGUES[kind]
    assert catalogue.kind == kind and len(catalogue) == len(list(catalogue)) > 0
    for name, member in catalogue.items():
        options = member.Options()  # every field has a default
        assert dataclasses.is_dataclass(options) and isinstance(options, base)
        assert hash(options) == hash(member.Options())  # a config is a cache key
        assert catalogue.name_of(options) == name
        assert member.__doc__ and callable(member.build)


def member(label: str) -> SimpleNamespace:
    def build(options: object, *arguments: object) -> tuple[object, ...]:
        return label, options, *arguments

    options = dataclasses.make_dataclass(label, [], frozen=True)
    return SimpleNamespace(Options=options, build=build)


@dataclasses.dataclass
class Thawed:
    """Options that may change."""


@dataclasses.dataclass(frozen=True)
class Wanting:
    """Options that somebody has to choose."""

    size: int


@dataclasses.dataclass(frozen=True)
class Named:
    """Options that would overwrite the mechanism's name."""

    name: str = "x"


class Undecorated(Named):
    """Options that forgot to be a dataclass."""

    size: int = 1


@dataclasses.dataclass(frozen=True)
class Unhashable:
    """Options that hold a list."""

    sizes: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Around:
    """Options that hold those of any mechanism."""

    inner: attention.Options = dataclasses.field(default_factory=additive.Options)


@dataclasses.dataclass(frozen=True, eq=False)
class Unequal:
    """Options that are like no others."""


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (object, "are no dataclass"),
        (Undecorated, "are no dataclass; write"),
        (Unhashable, "hold what has no hash, such as a list"),
        (Unequal, "differ from themselves"),
        (Thawed, "are not frozen; write"),
        (Wanting, "have no default for 'size'; give one"),
        (Around, "have a field 'inner' whose type is a base of what it holds"),
        (Named, "have a field 'name'"),
    ],
)
def test_options_that_no_config_can_hold(options, fault):
    catalogue = Catalogue("colour", {})
    with pytest.raises(ValueError, match=f"Options of colour 'red' {fault}"):
        catalogue.add("red", SimpleNamespace(Options=options, build=print))
    assert not catalogue


def test_lookup_by_name_and_by_options():
    first, second = member("first"), member("second")
    catalogue = Catalogue("colour", {"red": first, "green": second})
    assert list(catalogue) == ["red", "green"] and len(catalogue) == 2
    assert catalogue["green"] is second
    options = second.Options()
    assert catalogue.name_of(options) == "green"
    assert catalogue.build(options, 1, 2) == ("second", options, 1, 2)


def test_what_is_not_listed():
    catalogue = Catalogue("colour", {"red": member("first"), "green": member("second")})
    with pytest.raises(UserError, match="no colour 'grren'; did you mean 'green'"):
        catalogue["grren"]
    with pytest.raises(UserError, match="Known: green, red"):
        catalogue["xyz"]
    with pytest.raises(UserError, match="third is the Options of no colour that is"):
        catalogue.name_of(member("third").Options())
    with pytest.raises(UserError, match="no colour 'gren'; did you mean 'green'"):
        catalogue.remove("gren")
