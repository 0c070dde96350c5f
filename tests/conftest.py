# SPDX-License-Identifier: Apache-2.0
"""Settings of all tests: as many devices on any machine, and keys."""

import gc
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jaxlib.version
import pytest
from hypothesis import settings

from kvnmt import cli
from kvnmt.inference.score import compiled_score
from kvnmt.metrics import significance
from kvnmt.pictures import charts
from tests.helpers import DEVICES, Said, programs_folder, trained
from tests.lowering import share_contexts

jax.config.update("jax_platforms", "cpu")  # both before the first array
jax.config.update("jax_num_cpu_devices", DEVICES)

# Most of the time goes into compiling programs that then run for milliseconds. The
# first two settings save half of it, the older way to fuse two thirds of what is left.
# They are read with the first array.
_QUICK = [
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
]
if jaxlib.version.__version__.startswith("0.10."):  # a flag may go with any release
    _QUICK += [
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",  # a fifth: modules are small
    ]
os.environ["XLA_FLAGS"] = " ".join([*_QUICK, os.environ.get("XLA_FLAGS", "")])

# Each process has cores of its own, and so have those that it starts: threads that wait
# for each other are slowed many times over where others run between them.
_CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if 1 < _WORKERS <= len(_CORES):
    _NUMBER = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    os.sched_setaffinity(0, _CORES[_NUMBER % _WORKERS :: _WORKERS])

# A shell lets what it starts in the background ignore SIGINT, and so would all tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No process of a test begins anew (`kvnmt.cli.large_pages`).
os.environ.setdefault("GLIBC_TUNABLES", "")

# Tracing makes many small objects that live on: looking for dead ones among them takes
# a tenth of the time, and where in Python each operation stands is written for nobody.
gc.set_threshold(100_000, 20, 100)
jax.config.update("jax_traceback_in_locations_limit", 0)
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"  # of what tests start
share_contexts()

# Programs are compiled once for all processes, those that tests start too, and kept for
# the next run. Not for another machine: the key lacks what its processor can do.
_PROGRAMS = {
    "jax_compilation_cache_dir": str(programs_folder()),
    "jax_persistent_cache_min_compile_time_secs": "0",
    "jax_persistent_cache_min_entry_size_bytes": "-1",
}
for _name, _value in _PROGRAMS.items():
    os.environ[_name.upper()] = _value
jax.config.update("jax_compilation_cache_dir", _PROGRAMS["jax_compilation_cache_dir"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# Checkpoints count once they have reached the disk, and a training of milliseconds
# waits longer for that than it trains. Memory lets none wait: they need 11 MiB at once.
_MEMORY = Path("/dev/shm")
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 2**29:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# Cases that are drawn: few every day, many with --hypothesis-profile thorough.
settings.register_profile("everyday", max_examples=25, deadline=None)
settings.register_profile("thorough", max_examples=200, deadline=None)
settings.load_profile("everyday")


# Of a process that still goes on; Linux allows 65 530, and no file needs 15 000. Who
# forgets compiled programs traces them again.
MAPPINGS = 40_000
LONG = (
    "training/test_processes",
    "training",
    "end_to_end",
    "laws",
    "runs",
    "experiments",
)


def pytest_unconfigure() -> None:
    """Looks for dead objects once: pytest does five times, for seconds, at its end."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the files first that take longest."""
    tests = Path(__file__).parent

    def rank(item: pytest.Item) -> int:
        place = item.path.relative_to(tests).as_posix()
        order = (n for n, long in enumerate(LONG) if place.startswith(long))
        return next(order, len(LONG))

    items.sort(key=rank)


@pytest.fixture(autouse=True, scope="module")
def _free_programs() -> Iterator[None]:
    """Forgets compiled programs: a process may hold only so many memory mappings."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MAPPINGS:
        jax.clear_caches()


@pytest.fixture(name="few_objects")
def _few_objects() -> Iterator[None]:
    """What others left is not looked through by each collection of a test."""
    compiled_score.cache_clear()  # no program of theirs stays for ever
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def _no_learning_curves() -> Iterator[None]:
    """Trainings leave an empty picture; drawing each takes a fifth of a second.

    `tests/pictures` draws them, and so does the newcomer's training.
    """
    with pytest.MonkeyPatch.context() as patch:
        empty = lambda records, path: path.write_bytes(b"")  # noqa: E731
        patch.setattr(charts, "learning_curve", empty)
        yield


@pytest.fixture(autouse=True, scope="session")
def _few_trials() -> Iterator[None]:
    """Randomisation makes few trials: all of them take a second.

    `tests/metrics/test_significance.py` makes as many as users do.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(significance, "TRIALS", 200)
        yield


@pytest.fixture(scope="session", name="folder")
def _folder(tmp_path_factory) -> Path:
    """A run directory that tests share; leave it as it is."""
    return trained(tmp_path_factory.getbasetemp())


@pytest.fixture
def key() -> jax.Array:
    """A fixed random key."""
    return jax.random.key(20180713)


@pytest.fixture
def x64() -> Iterator[None]:
    """Keeps float64 arrays float64 while the test runs."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def kvnmt(capfdbinary, monkeypatch) -> Callable[..., Said]:
    """Runs the command in this process."""

    def call(*arguments: object, given: bytes = b"") -> Said:
        stdin = io.TextIOWrapper(io.BytesIO(given))
        monkeypatch.setattr(sys, "stdin", stdin)
        status = 0
        try:
            cli.main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code
        out, err = capfdbinary.readouterr()
        return Said(status, out, err.decode())

    return call
