# SPDX-License-Identifier: Apache-2.0
"""Reads the text of a compiled program: what XLA calls optimised HLO.

A program is a set of computations, each a list of operations, one on a line::

    %name = f32[80,512]{1,0} fusion(%first, %second), kind=kLoop, calls=%inner

A loop is an operation ``while`` that names the computation of its body. What is fused
into one kernel is an operation that names the computation of its parts.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

HEAD = re.compile(r"(ENTRY )?%?([\w.\-]+) (?:\(.*)?\{\s*$")
LINE = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = (.*)$")
CODE = re.compile(r"([\w\-]+)\(")
ARRAY = re.compile(r"\b([a-z]+)(\d*)[a-z0-9]*\[([0-9,]*)\]")
ROOM = ("s", "8")  # bytes behind the result of a library's product
NAME = re.compile(r"%([\w.\-]+)")
CALLS = ("to_apply", "calls")  # where an operation names what it runs
# Names for what is there already; control that is no work.
FREE = frozenset(
    "parameter tuple get-tuple-element constant bitcast after-all opt-barrier "
    "partition-id replica-id add-dependency while conditional".split()
)

# Operations that may write less than their result has.
PASSED_ON = frozenset(("dynamic-update-slice", "bitcast", "copy", "tuple"))


class Operation(NamedTuple):
    """One line of a computation."""

    name: str
    shape: str  # its type as it is written; a tuple in parentheses
    code: str
    operands: tuple[str, ...]
    attributes: str  # what stands behind the operands
    root: bool  # whether the computation gives its result

    @property
    def bytes(self) -> int:
        """Size of the result, without the room that a library asks for to work in."""
        arrays = ARRAY.findall(self.shape)
        if self.code == "custom-call":
            arrays = arrays[:1] + [one for one in arrays[1:] if one[:2] != ROOM]
        return sum(
            math.prod(int(n) for n in sizes.split(",") if n) * _bits(kind, bits) // 8
            for kind, bits, sizes in arrays
        )

    @property
    def source(self) -> str:
        """Where in the traced functions it comes from."""
        return self.attribute("op_name") or ""

    @property
    def is_work(self) -> bool:
        """Whether it is started and takes time; an end is counted with its start."""
        return self.code not in FREE and not self.code.endswith("-done")

    def attribute(self, name: str) -> str | None:
        """What stands behind ``name=``."""
        match = re.search(rf'\b{name}=(?:"([^"]*)"|%?([\w.\-]+))', self.attributes)
        return match and (match[1] or match[2])

    def noted(self, name: str) -> int | None:
        """A number that the compiler noted beside the operation."""
        match = re.search(rf"{name}\W+(?:n\W+)?(\d+)", self.attributes)
        return match and int(match[1])


class Program(NamedTuple):
    """A compiled program."""

    computations: dict[str, list[Operation]]
    entry: str

    def __getitem__(self, name: str | None) -> list[Operation]:
        """The operations of a computation; none if there is none of that name."""
        return self.computations.get(name or "", [])

    def called(self, operation: Operation) -> str | None:
        """The computation that an operation runs, but for loops and branches."""
        names = (operation.attribute(key) for key in CALLS)
        return next((name for name in names if name in self.computations), None)

    def started(self, name: str | None) -> Iterator[Operation]:
        """What a computation starts: calls and branches are opened, loops are not."""
        for operation in self[name]:
            if operation.code in ("call", "async-start") and self.called(operation):
                yield from self.started(self.called(operation))
                continue
            yield operation
            for branch in _branches(operation):
                yield from self.started(branch)

    def inside(self, operation: Operation) -> Iterator[Operation]:
        """An operation and those that are fused into it."""
        yield operation
        if operation.code == "fusion":
            for part in self[self.called(operation)]:
                yield from self.inside(part)

    def written(self, operation: Operation, name: str | None) -> int:
        """Bytes that an operation writes: of an update in place only what is new.

        The type of a start has what is read, too; that of its end has only what is
        written.

        Args:
            operation: One of a computation.
            name: The computation.
        """
        if operation.code == "fusion":
            inner = self.called(operation)
            roots = [part for part in self[inner] if part.root]
            return self.written(roots[0], inner) if roots else operation.bytes
        if operation.code.endswith("-start"):
            return self._end(operation, name).bytes
        if operation.code not in PASSED_ON:
            return operation.bytes
        near = {other.name: other for other in self[name]}
        parts = [near[part] for part in operation.operands if part in near]
        if operation.code == "dynamic-update-slice" and len(parts) > 1:
            return parts[1].bytes
        if operation.code in ("bitcast", "copy") and parts:
            if parts[0].code == "dynamic-update-slice":
                return self.written(parts[0], name)
        if operation.code == "tuple":
            return sum(self.written(part, name) for part in parts)
        return operation.bytes

    def _end(self, start: Operation, name: str | None) -> Operation:
        """The end of a start, in this computation or in one that this one opens."""
        for operations in (self[name], *self.computations.values()):
            for end in operations:
                if end.code.endswith("-done") and start.name in end.operands[:1]:
                    return end
        return start

    def turns(self, loop: Operation) -> int | None:
        """How often a loop goes round, or at most; None: nobody knows before."""
        known = loop.noted("known_trip_count")
        if known is not None:
            return known
        parts = [
            part
            for operation in self[loop.attribute("condition")]
            for part in self.inside(operation)
        ]
        numbers = {
            part.name: int(part.attributes)
            for part in parts
            if part.code == "constant" and part.attributes.isdigit()
        }
        # A count is below its bound; the other numbers say when to leave before.
        compared = [part for part in parts if part.code == "compare"]
        bounds = [
            numbers[part.operands[place]]
            for part in compared
            for place, direction in ((1, "direction=LT"), (0, "direction=GT"))
            if direction in part.attributes and part.operands[place] in numbers
        ]
        return max(bounds or numbers.values(), default=None)


def read(text: str) -> Program:
    """Reads a program from its text."""
    computations: dict[str, list[Operation]] = {}
    entry, operations = "", None
    for line in text.splitlines():
        if operations is None:
            head = HEAD.match(line)
            if head and not line.startswith("HloModule"):
                operations = computations.setdefault(head[2], [])
                entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            operations = None
        elif match := LINE.match(line):
            operations.append(_operation(match[2], match[3], root=bool(match[1])))
    return Program(computations, entry)


def _operation(name: str, text: str, root: bool) -> Operation:
    end = _end(text) if text.startswith("(") else text.find(" ")
    # A layout holds parentheses but no blanks.
    shape, rest = text[:end], text[end:].lstrip()
    code = CODE.match(rest)
    if code is None:
        return Operation(name, shape, "?", (), rest, root)
    inner = rest[code.end() - 1 :]
    end = _end(inner)
    operands, attributes = inner[1 : end - 1], inner[end:]
    if code[1] == "constant":
        attributes = operands  # its value
    return Operation(
        name=name,
        shape=shape,
        code=code[1],
        operands=tuple(NAME.findall(operands)),
        attributes=attributes,
        root=root,
    )


def _end(text: str) -> int:
    """Where the parenthesis that a text begins with is closed."""
    depth = 0
    for match in re.finditer(r"[()]", text):
        depth += 1 if match[0] == "(" else -1
        if not depth:
            return match.end()
    return len(text)


def _branches(operation: Operation) -> list[str]:
    if operation.code != "conditional":
        return []
    names = re.search(r"branch_computations=\{([^}]*)\}", operation.attributes)
    if names:
        return NAME.findall(names[1])
    either = (operation.attribute(f"{x}_computation") for x in ("true", "false"))
    return [name for name in either if name]


def _bits(kind: str, bits: str) -> int:
    """Of one number; a truth value takes a byte."""
    return 8 if kind == "pred" else int(bits or 0)
