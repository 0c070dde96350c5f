# SPDX-License-Identifier: Apache-2.0
"""What a compiled program does in a turn of every loop, and outside of loops."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvnmt import decoder, encoder
from kvnmt.compiling.hlo import Operation, Program
from kvnmt.search import base as search
from kvnmt.training import cross_entropy

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
)
# Names of scopes in a traced program, and what people call their loops.
SCANS = {decoder.SCAN: "decoder", encoder.SCAN: "encoder"}  # there and back
LOOPS = {
    search.LOOP: "search",
    cross_entropy.LOOP: "loss, with its gradient",
    "_threefry": "random numbers",
    "_uniform": "random numbers",
}
PRODUCTS = ("dot", "convolution")
LIBRARIES = ("gemm", "matmul", "dot")  # in names of libraries' products


class Collective(NamedTuple):
    """One exchange between devices."""

    name: str
    bytes: int  # of its result on one device


class Kernel(NamedTuple):
    """One piece of work."""

    kind: str
    shape: str  # of its result, as the compiler writes it
    written_bytes: int
    cycles: int | None
    source: str  # where in the traced functions it comes from


class Section(NamedTuple):
    """What is done in one turn of a loop, or outside of all loops."""

    name: str
    computation: str  # in the text of the program
    depth: int  # in how many loops it stands
    turns: int | None  # of one run of the program, or at most; None: not known
    kernels: int  # pieces of work that are started
    products: int  # of matrices among them
    written_bytes: int
    cycles: int | None  # by the compiler's model of costs; None: it does not say
    collectives: tuple[Collective, ...]
    kinds: dict[str, int]  # kernels of every kind


def sections(program: Program) -> list[Section]:
    """The loops of a program in their order; what is outside of them comes first."""
    return [
        _section(program, program.entry, name="outside loops", depth=0, turns=1),
        *_loops(program, program.entry, depth=1, turns=1),
    ]


def cycles(parts: Sequence[Section]) -> int | None:
    """Cycles of a whole run, every loop with its most turns; None: not known."""
    known = [part for part in parts if part.cycles is not None]
    if not known:
        return None
    return sum((part.cycles or 0) * (part.turns or 1) for part in known)


def largest_kernels(program: Program, section: Section, most: int) -> list[Kernel]:
    """The kernels of a section that take most cycles, or else write most bytes."""
    kernels = [
        Kernel(
            kind=_kind(operation),
            shape=operation.shape,
            written_bytes=program.written(operation, section.computation),
            cycles=operation.noted("estimated_cycles"),
            source=operation.source,
        )
        for operation in program.started(section.computation)
        if operation.is_work
    ]
    kernels.sort(key=lambda each: (each.cycles or 0, each.written_bytes), reverse=True)
    return kernels[:most]


def _loops(
    program: Program, name: str, depth: int, turns: int | None
) -> Iterator[Section]:
    for operation in program.started(name):
        if operation.code != "while":
            continue
        body = operation.attribute("body") or ""
        count = program.turns(operation)
        every = None if turns is None or count is None else turns * count
        label = _label(operation.source)
        yield _section(program, body, name=label, depth=depth, turns=every)
        yield from _loops(program, body, depth=depth + 1, turns=every)


def _section(
    program: Program, computation: str, name: str, depth: int, turns: int | None
) -> Section:
    started = list(program.started(computation))
    work = [operation for operation in started if operation.is_work]
    noted = [operation.noted("estimated_cycles") for operation in started]
    known = [number for number in noted if number is not None]
    return Section(
        name=name,
        computation=computation,
        depth=depth,
        turns=turns,
        kernels=len(work),
        products=sum(_products(program, operation) for operation in work),
        written_bytes=sum(program.written(one, computation) for one in work),
        cycles=sum(known) if known else None,
        collectives=tuple(_collectives(program, started)),
        kinds=dict(Counter(map(_kind, work)).most_common()),
    )


def _label(source: str) -> str:
    """A loop as people call it, from the path of its functions."""
    for step in reversed(source.split("/")):
        for scope, name in LOOPS.items():
            if scope in step:
                return name
        for scope, name in SCANS.items():
            if scope in step:
                return f"{name}, {_direction(source)}"
    return source[-40:] or "a loop"


def _direction(source: str) -> str:
    if "rematted_computation" in source:
        return "forward again"
    return "backward" if "transpose(" in source else "forward"


def _products(program: Program, operation: Operation) -> int:
    return sum(_is_product(part) for part in program.inside(operation))


def _is_product(operation: Operation) -> bool:
    if operation.code in PRODUCTS:
        return True
    target = operation.attribute("custom_call_target") or ""
    return any(name in target for name in LIBRARIES)


def _collectives(
    program: Program, started: Sequence[Operation]
) -> Iterator[Collective]:
    """The collectives of operations; of a start and its end only the end counts."""
    for operation in started:
        for part in program.inside(operation):
            name = part.code.removesuffix("-done")
            if name in COLLECTIVES:
                yield Collective(name, part.bytes)


def _kind(operation: Operation) -> str:
    """An operation's code; for fusions and calls also which one it is."""
    names = ("kind", "custom_call_target")
    detail = next(filter(None, map(operation.attribute, names)), None)
    return f"{operation.code} {detail}" if detail else operation.code
