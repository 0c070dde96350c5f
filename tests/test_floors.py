# SPDX-License-Identifier: Apache-2.0
"""A file imports from lower floors only; this reads every import and keeps it so."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = [  # the parts of one floor do not know each other either
    {"typing", "errors"},
    {"fields", "trees", "machine"},
    {"catalogue", "initializers", "devices", "console", "files", "companions"},
    {"layers", "search", "data"},
    {"attention", "target_context", "encoder", "readout", "lexicon", "metrics"},
    {"decoder", "pictures"},
    {"model", "laws"},
    {"inference"},
    {"training"},
    {"systems"},
    {"runs", "compiling"},
    {"benchmark", "evaluation"},
    {"serve"},
    {"cli"},
    {"experiments", "__main__"},
]
# Parts that know less than their floor allows.
ONLY = {
    "data": {"data", "errors", "fields", "console", "files", "machine"},
    "search": {"search", "typing", "errors", "fields"},
}
SHARED = {  # what members of a catalogue may import of their folder
    "attention": {"base", "address", "coverage"},
    "decoder": {
        "base",
        "future",
        "gru_pair",
        "rounds",
        "source_look",
        "start",
        "word_gru",
    },
    "target_context": {"base", "history"},
}
FACE = "kvnmt.__init__"  # it hands on names of `runs.notebook`, when they are asked for
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for top in ("kvnmt", "experiments")
    for path in sorted((ROOT / top).rglob("*.py"))
}


def part(module: str) -> str:
    return module.removeprefix("kvnmt.").split(".")[0]


def floor(module: str) -> int:
    return {name: i for i, parts in enumerate(FLOORS) for name in parts}[part(module)]


def imports(module: str) -> set[str]:
    """Modules that a file imports: ours as in FILES, others by their top name."""
    found = set()
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            outer = name.rpartition(".")[0]
            ours = (name, f"{name}.__init__", outer, f"{outer}.__init__")
            found.add(next((m for m in ours if m in FILES), name.split(".")[0]))
    return found


@pytest.mark.parametrize("module", sorted(FILES.keys() - {FACE}))
def test_imports_point_down(module):
    own, folder = part(module), module.rpartition(".")[0]
    for other in imports(module):
        if other == FACE:  # its version, as the test below makes sure
            continue
        if other not in FILES:
            assert own != "data" or other not in {"jax", "flax", "optax"}, other
            assert other != "tensorflow_datasets" or "tfds" in module, other
            continue
        assert part(other) in ONLY.get(own, {part(other)}), other
        if part(other) != own:
            assert floor(other) < floor(module), f"{module} imports {other}"
        elif own in SHARED and not module.endswith("__init__"):
            assert other.removeprefix(f"{folder}.") in SHARED[own], other


NOTEBOOKS = "experiments.notebooks."  # users' own code begins like these


@pytest.mark.parametrize("module", [m for m in FILES if not m.startswith(NOTEBOOKS)])
def test_the_face_is_for_users(module):
    """Files import from where a name lives; of the face they take the version."""
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Import):
            assert "kvnmt" not in [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "kvnmt":
            rooms = {name.split(".")[1] for name in FILES if name.startswith("kvnmt.")}
            assert {alias.name for alias in node.names} <= rooms | {"__version__"}


def test_no_cycles():
    graph = {m: imports(m) & FILES.keys() for m in FILES if not m.endswith("__init__")}
    assert list(TopologicalSorter(graph).static_order())


HARNESS, PARTS = "experiments.harness", "experiments.parts"


@pytest.mark.parametrize("module", [m for m in FILES if part(m) == "experiments"])
def test_experiments_are_made_of_parts_and_parts_by_the_harness(module):
    room = module.rpartition(".")[0]
    below = {HARNESS: {HARNESS}, PARTS: {HARNESS, PARTS}}
    known = {other.rpartition(".")[0] for other in imports(module)}
    others = {name for name in known if part(name) == "experiments"}
    assert others <= below.get(room, {HARNESS, PARTS, "experiments"})
    if room == "experiments" and not module.endswith("__init__"):
        assert FILES[module].read_text().count('if __name__ == "__main__":') == 1


@pytest.mark.parametrize(
    ("top", "most"), [("kvnmt", 300), ("experiments", 300), ("tests", 400)]
)
def test_every_file_can_be_read_at_once(top, most):
    files = [
        *(ROOT / top).rglob("*.py"),
        *(ROOT / top).rglob("*.js"),
        *(ROOT / top).rglob("*.css"),
    ]
    assert len(files) > 40
    assert not {path for path in files if path.read_text().count("\n") > most}


def test_the_first_room_is_small():
    assert len([*(ROOT / "kvnmt").glob("*.py")]) <= 15
