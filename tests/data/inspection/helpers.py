# SPDX-License-Identifier: Apache-2.0
"""Corpora with planted faults, and the findings about them."""

from pathlib import Path

from kvnmt.data.inspection.findings import Finding
from kvnmt.data.inspection.validate import Report, ValidateConfig, validate

Lines = list[str]


Parts = dict[str, list[Lines]]


TOY = ["one two", "three", "four five six", "seven"]  # and their capitals


def write(folder: Path, parts: Parts) -> dict[str, Path]:
    """Files by the flag that names them."""
    paths = {}
    for part, sides in parts.items():
        for side, lines in zip(("source", "target"), sides):
            flag = side if part == "train" else f"{part}_{side}"
            paths[flag] = folder / f"{part}.{side}"
            text = "".join(f"{line}\n" for line in lines)
            paths[flag].write_bytes(text.encode())
    return paths


def look(folder: Path, parts: Parts, **choices) -> Report:
    return validate(ValidateConfig(**write(folder, parts), **choices))


def toy(source: bytes | None = None, target: bytes | None = None) -> tuple[bytes, ...]:
    """Ten times the toy text, or other bytes instead."""
    whole = "".join(f"{line}\n" for line in TOY).encode() * 10
    return (
        whole if source is None else source,
        whole.upper() if target is None else target,
    )


def look_bytes(folder: Path, source: bytes, target: bytes, **choices) -> Report:
    paths = folder / "a.src", folder / "a.trg"
    for path, data in zip(paths, (source, target)):
        path.write_bytes(data)
    return validate(ValidateConfig(*paths, **choices))


def only(report: Report, name: str, file: str = "") -> Finding:
    """The finding of that name, of which there is one."""
    (finding,) = (
        finding
        for finding in report.findings
        if finding.name == name and file in finding.message
    )
    return finding


def names(report: Report) -> set[str]:
    return {finding.name for finding in report.findings}


def flags(paths: dict[str, Path]) -> list[object]:
    named = [(f"--{flag.replace('_', '-')}", path) for flag, path in paths.items()]
    return [word for pair in named for word in pair]
