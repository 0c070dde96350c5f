# SPDX-License-Identifier: Apache-2.0
"""Figures of programs for this machine, and for others where their compilers are."""

import importlib.util
import json
from dataclasses import replace

import jax
import pytest

from kvnmt.compiling import figures as compiling
from kvnmt.compiling import tables
from kvnmt.compiling.figures import Compiled, Memory, TooLargeError, compile_for, plain
from kvnmt.compiling.gpus import GPUS
from kvnmt.compiling.largest import Largest, largest_batch, with_rows
from kvnmt.compiling.program import Traced
from kvnmt.compiling.sections import largest_kernels
from kvnmt.compiling.targets import TPUS, Target, target
from kvnmt.errors import UserError
from tests.compiling.test_program import TINY, of_system

# What is compiled for a device that is not there cannot be read back from a cache.
pytestmark = pytest.mark.filterwarnings("ignore:Error reading persistent compilation")

LENGTHS = {"batch_size": 4, "source_length": 5, "target_length": 7}
TRAIN = replace(of_system("kvmematt-r2"), **LENGTHS)
SEARCH = replace(TINY, what="search", source_length=5)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_for(TRAIN, target("cpu"))


def test_a_train_step_has_its_loops_and_its_memory(compiled):
    figures = compiled.figures
    memory = figures.memory
    assert memory.parameters == 4 * figures.parameters
    assert memory.optimizer > 2 * memory.parameters  # Adam
    assert memory.batch == 4 * 4 * (5 + 7) + 8  # and a key
    assert memory.temporaries > 0
    assert memory.output < memory.parameters  # the state takes its own place
    assert memory.total == sum(memory[:-1]) and memory.fits
    turns = {part.name: part.turns for part in figures.sections if part.depth}
    assert turns["decoder, forward"] == turns["decoder, backward"] == 7
    assert turns["encoder, forward"] == turns["encoder, backward"] == 5
    for part in figures.sections:
        assert part.collectives == ()
        if "coder" in part.name:
            assert part.products and part.kernels and part.written_bytes
    assert "while(" in compiled.text
    assert json.loads(json.dumps(plain(figures)))["memory"]["fits"] is True


def test_a_search_goes_as_far_as_its_longest_translation():
    """However many sentences have to be done before it goes on with fewer rows."""
    many = replace(SEARCH, search=replace(SEARCH.search, batch_size=256))
    figures = compile_for(many, target("cpu")).figures
    turns = [(part.name, part.turns) for part in figures.sections if part.depth]
    assert {n for name, n in turns if name == "encoder, forward"} == {5}
    assert {n for name, n in turns if name == "search"} == {1.5 * 4 + 10}
    assert figures.memory.optimizer == 0


def test_devices_meet_outside_of_loops():
    some = Target("cpu", "cpu", jax.devices()[:4], None, {})
    config = replace(TINY, **LENGTHS, model_axis=2, vocabulary=10)
    outside, *loops = compile_for(config, some).figures.sections
    assert any(each.name == "all-reduce" for each in outside.collectives)
    assert not any(part.collectives for part in loops)


def test_the_largest_batch_fills_the_memory(compiled, monkeypatch):
    """By a compiler whose programs need so much for each row."""
    asked = []

    def compile_rows(config, devices):
        asked.append(config.rows)
        memory = Memory(*[0] * 3, 1000 * config.rows, 17_000, 0, devices.memory)
        if config.rows > 500:
            raise TooLargeError(config, devices, None)
        return compiled._replace(figures=compiled.figures._replace(memory=memory))

    monkeypatch.setattr("kvnmt.compiling.largest.compile_for", compile_rows)
    some = target("cpu")._replace(memory=400_000)
    result = largest_batch(TRAIN, some)
    assert result.config.batch_size == 376  # 17 000 and 1 000 for each row
    assert result.compiled.figures.memory.fits
    assert [trial.rows for trial in result.trials] == asked
    with pytest.raises(UserError, match="not even a batch of 8"):
        largest_batch(TRAIN, some._replace(memory=100))
    with pytest.raises(UserError, match="how much memory cpu has"):
        largest_batch(TRAIN, some._replace(memory=None))
    assert with_rows(SEARCH, 24).rows == 24
    last = tables.notes(result._replace(trials=result.trials[:2]))[-1]
    assert last == "batches tried: 8 fits, 128 fits"


def test_a_search_of_more_than_a_batch_of_translating_is_told(compiled):
    def said(rows: int, length: int, devices: int = 1) -> str:
        search = replace(SEARCH.search, batch_size=rows, batch_tokens=80)
        config = replace(SEARCH, source_length=length, search=search)
        figures = compiled.figures._replace(devices=devices)
        found = Largest(config, compiled._replace(figures=figures), ())
        return " ".join(tables.notes(found))

    assert "kvnmt translate" not in said(10, 8)
    assert "takes 6 sentences of this length, padded to 12; for 10 give" in said(10, 9)
    assert "--search.batch-tokens 120" in said(10, 9)
    assert "kvnmt translate" not in said(8, 9, devices=8)  # which take one each
    assert "kvnmt translate" not in said(1, 200)  # a sentence is never too long


def test_the_largest_kernels_come_first(compiled):
    for section in compiled.figures.sections:
        kernels = largest_kernels(compiled.program, section, 10_000)
        sizes = [kernel.written_bytes for kernel in kernels]
        assert sizes == sorted(sizes, reverse=True)
        assert (len(sizes), sum(sizes)) == (section.kernels, section.written_bytes)
        assert largest_kernels(compiled.program, section, 2) == kernels[:2]


def refuse(monkeypatch, message: str) -> None:
    """Every program becomes one that the compiler refuses."""

    class Refused:
        def lower(self):
            return self

        def compile(self, compiler_options):
            raise jax.errors.JaxRuntimeError(message)

    traced = Traced(Refused(), 1, 4, 8)
    monkeypatch.setattr(compiling, "trace", lambda config, devices: traced)


@pytest.mark.parametrize(
    ("refusal", "part"),
    [
        ("Used 17.50G of 15.75G hbm. Exceeded hbm capacity by 1.75G.", "17.50 GiB are"),
        (
            "the total memory required for HLO temporaries (512.0M) exceeds available "
            "HBM (15.75G).",
            "0.50 GiB are",
        ),
        ("Out of memory", "more is"),
    ],
)
def test_a_refusal_is_told_with_its_remedy(monkeypatch, refusal, part):
    refuse(monkeypatch, f"RESOURCE_EXHAUSTED: {refusal}")
    with pytest.raises(TooLargeError, match=f"{part} needed .*--accumulate 2"):
        compile_for(TRAIN, target("cpu"))
    with pytest.raises(TooLargeError, match="a smaller --search.batch-size or"):
        compile_for(SEARCH, target("cpu"))
    draws = replace(SEARCH, search=replace(SEARCH.search, sample=True, beam=1, nbest=3))
    with pytest.raises(TooLargeError, match="or --search.nbest"):
        compile_for(draws, target("cpu"))
    assert "--remat 8" in compiling.remedy(TRAIN)
    assert "remat" not in compiling.remedy(of_system("transformer"))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("xpu:v5e", "did you mean 'tpu'"),
        ("cpu:8", "names no devices"),
        ("gpu:h10", "did you mean 'h100'"),
        ("gpu", "no GPU ''"),
        ("gpu:h100:0", "gpu:h100:8"),
        ("gpu:h100:x", "gpu:h100:8"),
        ("tpu:v5", "no TPU 'v5'"),
        ("tpu:v5e:4x", "tpu:v5e:4x4"),
    ],
)
def test_devices_that_nobody_knows_are_told(name, part):
    with pytest.raises(UserError, match=part):
        target(name)


@pytest.mark.parametrize(("name", "extra"), [("gpu:h100", "gpu"), ("tpu:v5e", "tpu")])
def test_a_compiler_that_is_missing_is_told(monkeypatch, name, extra):
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(UserError, match=rf"pip install '.\[{extra}\]'"):
        target(name)


needs_gpu, needs_tpu = (
    pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=reason)
    for package, reason in (
        ("jax_cuda12_plugin", "needs the extra gpu"),
        ("libtpu", "needs the extra tpu"),
    )
)


@needs_gpu
@pytest.mark.parametrize("name", GPUS)
def test_gpus_that_are_not_there_are_compiled_for(name):
    figures = compile_for(SEARCH, target(f"gpu:{name}")).figures
    assert figures.device == GPUS[name].name
    assert figures.memory.fits
    assert all(part.kernels for part in figures.sections)


@needs_gpu
def test_eight_gpus_meet_once():
    config = replace(TRAIN, batch_size=8)
    outside, *loops = compile_for(config, target("gpu:h100:8")).figures.sections
    assert outside.collectives
    assert not any(part.collectives for part in loops)


@needs_tpu
@pytest.mark.parametrize("name", TPUS)
def test_tpus_are_known_to_their_compiler(name):
    (device,) = target(f"tpu:{name}").devices
    assert device.platform == "tpu"


@needs_tpu
@pytest.mark.slow
def test_tpus_that_are_not_there_are_compiled_for():
    figures = compile_for(SEARCH, target("tpu:v5e")).figures
    assert figures.cycles and figures.cycles > 1000
    assert all(part.kernels for part in figures.sections)


def test_a_compiler_that_gives_up_is_told(monkeypatch):
    refuse(monkeypatch, "INTERNAL: no tiling.\nmore")
    with pytest.raises(UserError, match="gives up: INTERNAL: no tiling.$"):
        compile_for(TRAIN, target("cpu"))


def test_targets_name_their_devices():
    assert target("cpu").devices == jax.devices()[:1]
