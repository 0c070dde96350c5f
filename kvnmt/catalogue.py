# SPDX-License-Identifier: Apache-2.0
"""A catalogue of mechanisms: one module each, chosen by name or by its options."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, get_type_hints

from kvnmt.errors import UserError, unknown_name
from kvnmt.fields import check_fields


class Mechanism(Protocol):
    """What a module offers to be listed: its static choices and its factory.

    ``Options`` is a frozen dataclass with a default for every field; ``build``
    takes an instance of it (and what the kind of mechanism needs besides) and
    returns the tuple of pure functions that its contract asks for.
    """

    Options: Any

    @property
    def build(self) -> Any:  # noqa: D102
        ...


class Catalogue(Mapping[str, Mechanism]):
    """Mechanisms of one kind, by name; to add one, only this list must change.

    A module outside of this package is listed with ``add``::

        attention.CATALOGUE.add("mine", my_module)
    """

    def __init__(self, kind: str, members: Mapping[str, Any]):
        self.kind = kind  # as people read it; with underscores, the field of a config
        self._members = dict(members)
        self.changes = 0  # times the list changed; older builds are out of date

    def __getitem__(self, name: str) -> Mechanism:
        """Returns a member, or raises a `UserError` with the nearest name."""
        if name not in self._members:
            raise unknown_name(self.kind, name, self._members)
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        """Names in the order of listing."""
        return iter(self._members)

    def __len__(self) -> int:
        """How many mechanisms are listed."""
        return len(self._members)

    def add(self, name: str, member: Mechanism) -> None:
        """Lists one more mechanism.

        Raises:
            ValueError: The name is taken, or the options are those of another member or
                cannot be written into a config.
        """
        if name in self._members:
            raise ValueError(
                f"the {self.kind} '{name}' is there already; choose another name."
            )
        if fault := _fault_of(member.Options):
            raise ValueError(f"the Options of {self.kind} '{name}' {fault}.")
        for other, listed in self._members.items():
            if listed.Options is member.Options:
                raise ValueError(f"the {self.kind} '{other}' has the same options.")
        self._members[name] = member
        self.changes += 1

    def remove(self, name: str) -> None:
        """Takes a mechanism off the list.

        Raises:
            UserError: There is none of that name.
        """
        _ = self[name]  # complains where there is none
        del self._members[name]
        self.changes += 1

    def name_of(self, options: Any) -> str:
        """Returns the name under which the mechanism of these options is listed.

        Raises:
            UserError: They are the options of none.
        """
        for name, member in self._members.items():
            if type(options) is member.Options:
                return name
        kind = type(options)
        raise UserError(
            f"{kind.__module__}.{kind.__qualname__} is the Options of no {self.kind} "
            "that is listed; list its module with CATALOGUE.add(name, module), and "
            "make the options anew if their class was."
        )

    def told(self, options: Any) -> str:
        """A mechanism with the options that are not its defaults, for people.

        Raises:
            UserError: They are the options of none.
        """
        name = self.name_of(options)
        default = self[name].Options()
        changed = [
            f"{option}={value}"
            for option, value in vars(options).items()
            if getattr(default, option) != value
        ]
        return f"{name}({', '.join(changed)})" if changed else name

    def build(self, options: Any, *arguments: Any) -> Any:
        """Builds the mechanism that the type of ``options`` belongs to.

        Raises:
            UserError: An option is not what it may be, or they are those of none.
        """
        check_fields(options, f"model.{self.kind.replace(' ', '_')}.")
        return self[self.name_of(options)].build(options, *arguments)


def _fault_of(kind: Any) -> str | None:
    """Why options cannot be part of a config, which is compared, hashed and saved."""
    if "__dataclass_fields__" not in vars(kind):  # those of a base are not its own
        return "are no dataclass; write @dataclass(frozen=True) above them"
    if not kind.__dataclass_params__.frozen:
        return "are not frozen; write @dataclass(frozen=True)"
    for option in dataclasses.fields(kind):
        if option.name == "name":
            return "have a field 'name', which is how a config calls the mechanism"
        lacks = option.default is option.default_factory is dataclasses.MISSING
        if lacks:
            return f"have no default for '{option.name}'; give one"
    hints = get_type_hints(kind)
    for option in dataclasses.fields(kind):
        value = getattr(kind(), option.name)
        bases = type(value).__mro__[1:] if dataclasses.is_dataclass(value) else ()
        if hints[option.name] in bases:
            told = "of what it holds, so that it could not be read back; name its own"
            return f"have a field '{option.name}' whose type is a base {told}"
    try:
        hash(kind())
    except TypeError:
        return "hold what has no hash, such as a list; write a tuple"
    try:
        json.dumps(dataclasses.asdict(kind()))
    except TypeError:
        return "hold what JSON cannot say; write numbers, texts, tuples or None"
    return None if kind() == kind() else "differ from themselves; leave eq out"
