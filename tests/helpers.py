# SPDX-License-Identifier: Apache-2.0
"""A toy language, tiny experiments on it, and run directories that tests share."""

import dataclasses
import errno
import io
import json
import os
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np
from rich.console import Console

from kvnmt.cli.program_cache import machine_folder
from kvnmt.data.config import DataConfig
from kvnmt.data.corpus import load_corpora
from kvnmt.data.vocabularies import digests, save_vocabularies
from kvnmt.model.assembly import Model, Params, build
from kvnmt.model.config import Dropout, ModelConfig
from kvnmt.runs import config
from kvnmt.runs import train as experiment
from kvnmt.runs.config import Experiment
from kvnmt.systems.named import system
from kvnmt.training.checkpoints.writer import Checkpoints
from kvnmt.training.config import TrainingConfig
from kvnmt.training.optimizer import OptimizerConfig
from kvnmt.typing import DType

# Of a CPU, in every test. With eight each program takes a fifth longer.
DEVICES = 4
WORDS = "abcdefgh"  # each is translated by its capital
SIZES = ModelConfig(embedding=8, encoder=8, state=8, initializer="glorot")


class Said(NamedTuple):
    """What a command left behind."""

    status: int
    out: bytes
    err: str


def programs_folder() -> Path:
    """Where compiled programs of this machine are kept from one run to the next."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = machine_folder(base / "kvnmt-tests")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def toy_lines(seed: int, count: int, longest: int = 6) -> list[str]:
    """Random sentences of one word to ``longest``."""
    rng = random.Random(seed)
    sizes = (rng.randint(1, longest) for _ in range(count))
    return [" ".join(rng.choices(WORDS, k=size)) for size in sizes]


def full(*_: object) -> NoReturn:
    """Fails as what writes to a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullDisk(io.StringIO):
    """A file to which nothing can be written."""

    def write(self, text: str) -> int:
        full()


def contents(folder: Path) -> dict[Path, bytes | None]:
    """What is in a folder and below."""
    return {p: p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def toy_data(
    folder: Path, train: int = 60, valid: int = 12, longest: int = 6, **changes
) -> DataConfig:
    """Writes a corpus of the toy language."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for seed, part, count in ((1, "", train), (2, "valid_", valid)):
        lines = toy_lines(seed, count, longest)
        for side, text in (("source", lines), ("target", map(str.upper, lines))):
            paths[part + side] = folder / f"{part}{side}.txt"
            paths[part + side].write_text("".join(f"{line}\n" for line in text))
    return DataConfig(**paths, **({"min_count": 1} | changes))


def tiny(data: DataConfig, name: str = "rnnsearch-star", **training) -> Experiment:
    """A small experiment: 4 batches of one shape an epoch, dropout on."""
    model = dataclasses.replace(SIZES, dropout=Dropout(0.05, 0.05, 0.1))
    choices = {"epochs": 2, "batch_size": 16, "shapes": 1, "bleu_tokenize": "none"}
    return Experiment(
        model=system(name).model(model),
        objective=system(name).objective(),
        data=data,
        optimizer=OptimizerConfig(learning_rate=0.03),
        training=TrainingConfig(**(choices | training)),
    )


def replaced(config: Any, path: str, value: Any) -> Any:
    """A config with another value at a dotted path."""
    name, _, rest = path.partition(".")
    if rest:
        value = replaced(getattr(config, name), rest, value)
    return dataclasses.replace(config, **{name: value})


def quiet() -> Console:
    """A console that nobody reads."""
    return Console(file=io.StringIO())


TIMES = ("tokens_per_second", "waiting", "elapsed", "tokens", "seconds")
SUMS = ("sums", "logged")  # within which only the times of steps are left out


def records(folder: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """What a run wrote down at every validation, or as steps.jsonl of its steps."""
    text = (folder / name).read_text()
    return [json.loads(line) for line in text.splitlines()]


def timeless(record: dict[str, Any], times: Sequence[str] = TIMES) -> dict[str, Any]:
    """A record, or a progress, without what no two runs have in common."""
    return {
        name: timeless(value, ("timed", "seconds", "waited")) if name in SUMS else value
        for name, value in record.items()
        if name not in times
    }


def steps_kept(folder: Path) -> set[int]:
    """The steps of which a run keeps a checkpoint."""
    return {int(path.name) for path in (folder / "checkpoints").iterdir()}


@cache
def trained(base: Path, name: str = "rnnsearch-star") -> Path:
    """A run directory under the tests' own folder, made once; leave it as it is.

    The model has learnt enough to say different things of different sentences.
    """
    folder = base / f"shared-{name}"
    data = toy_data(base / "shared-text")
    exp = tiny(data, name, epochs=20, validate_every=40)
    experiment.run(exp, folder, console=quiet())
    return folder


@cache
def untrained(base: Path, name: str, turned: bool = False, **changes: Any) -> Path:
    """A run directory whose parameters are as they began, made once, quickly.

    Turned, it translates capitals to small letters; changes are to its data.
    """
    folder = base / "-".join(["untrained", name, *("turned",) * turned, *changes])
    data = toy_data(base / "shared-text", **changes)
    if turned:
        data = dataclasses.replace(data, source=data.target, target=data.source)
    write_untrained(tiny(data, name), folder)
    return folder


def first_params(model: Model) -> Params:
    """Parameters as a training begins with them."""
    return model.init(jax.random.key(1))


def drawn(
    model: Model, seed: int = 11, scale: float = 0.8, dtype: DType = np.float32
) -> Params:
    """Random parameters, biases too, that cost no compilation."""
    normal = np.random.default_rng(seed).normal
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return jax.tree.map(
        lambda x: jax.device_put(normal(0, scale, x.shape).astype(dtype)), shapes
    )


def write_untrained(
    exp: Experiment, folder: Path, draw: Callable[[Model], Params] = first_params
) -> None:
    """Writes the run directory of an experiment with parameters that are drawn."""
    words = load_corpora(exp.data).vocabularies
    model = build(exp.model, len(words.source), len(words.target))
    save_vocabularies(words, folder / "vocabulary")
    with Checkpoints(folder / "checkpoints") as checkpoints:
        about = {"vocabularies": digests(words)}
        checkpoints.save_params(draw(model), about)
    (folder / "config.json").write_text(json.dumps(config.to_plain(exp)))
