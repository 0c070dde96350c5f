# SPDX-License-Identifier: Apache-2.0
"""The programs of training and search, traced for devices that need not be there.

They are the programs that `kvnmt train` and `kvnmt translate` run, made by the same
functions. No array is made but a key: parameters and batches are shapes.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kvnmt import devices
from kvnmt.compiling.targets import Device
from kvnmt.errors import Idle, UserError, check_given
from kvnmt.fields import at_least, check_fields
from kvnmt.inference.config import SearchConfig, numbers_of
from kvnmt.inference.program import program
from kvnmt.model import assembly
from kvnmt.model.assembly import Model
from kvnmt.model.config import ModelConfig
from kvnmt.training import optimizer as optimizers
from kvnmt.training import step as steps
from kvnmt.training.ahead import Shape, batch_of
from kvnmt.training.device_memory import bytes_of
from kvnmt.training.freezing import check_frozen
from kvnmt.training.losses import Objective, check_risk
from kvnmt.training.optimizer import OptimizerConfig
from kvnmt.training.sharding import shardings
from kvnmt.training.step import StepOptions
from kvnmt.typing import DType, PyTree

STEPS_PER_EPOCH = 1000  # a number in the schedule of the learning rate


@dataclass(frozen=True)
class CompileConfig(StepOptions):
    """What is compiled."""

    what: Literal["train", "search"] = "train"  # a step of training, or a search
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: Objective = field(default_factory=Objective)
    vocabulary: Annotated[int, at_least(3)] = 30000  # words on each side
    # sentences of a training batch over all devices; of a search: --search.batch-size.
    batch_size: Annotated[int, at_least(1)] = 80
    source_length: Annotated[int, at_least(2)] = 50  # padded, EOS included
    target_length: Annotated[int, at_least(2)] = 50
    # target words of a batch that a search chooses among, as with a shortlist;
    # default: all.
    candidates: Annotated[int | None, at_least(2)] = None
    # devices that share what has an entry for each word.
    model_axis: Annotated[int, at_least(1)] = 1
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    search: SearchConfig = field(default_factory=SearchConfig)

    @property
    def rows(self) -> int:
        """Sentences at a time, over all devices."""
        return self.batch_size if self.what == "train" else self.search.batch_size


class Traced(NamedTuple):
    """A program before it is compiled."""

    stage: Any  # jax.stages.Traced
    parameters: int  # how many numbers
    parameter_bytes: int  # on one device
    optimizer_bytes: int  # of all else that training keeps, on one device


def trace(config: CompileConfig, among: Sequence[Device]) -> Traced:
    """Traces the program of a config.

    Args:
        config: Which program.
        among: The devices that share the work.

    Raises:
        UserError: A number is out of its bounds, the model cannot do what is asked, or
            the devices cannot share so.
    """
    check_fields(config)
    model = assembly.build(config.model, config.vocabulary, config.vocabulary)
    mesh = mesh_of(among, config.model_axis)
    if config.what == "train":
        check_risk(config.objective, model)
        return _train(config, model, mesh)
    if not model.reads_source:
        raise UserError(
            "a language model reads no source and cannot translate; leave --what out."
        )
    return _search(config, model, mesh)


def check_what(config: CompileConfig, start: CompileConfig) -> None:
    """Refuses given options of training for a search, and of a search for training.

    Args:
        config: What is to be compiled.
        start: What the flags started from.

    Raises:
        OptionError: Something was given that does nothing, or is out of its bounds.
    """
    check_fields(config)
    steps = [option.name for option in fields(StepOptions)]
    of = {
        "search": (
            "training",
            ("batch_size", "target_length", *steps),
            ("objective", "optimizer"),
        ),
        "train": ("a search", ("candidates",), ("search",)),
    }
    what, names, parts = of[config.what]
    why = f"{{0}} is of {what}, and --what is {config.what}; leave one of them out."
    check_given(config, [Idle(names, why)], start)
    for part in parts:
        mine, before = getattr(config, part), getattr(start, part)
        inner = tuple(each.name for each in fields(mine))
        check_given(mine, [Idle(inner, why)], before, prefix=f"{part}.")


def share(config: CompileConfig, among: Sequence[Device]) -> int:
    """What the number of sentences must be a multiple of."""
    data = len(among) // config.model_axis
    return data * config.accumulate if config.what == "train" else data


def mesh_of(among: Sequence[Device], model: int) -> Mesh:
    """A mesh of devices with the axes ``data`` and ``model``.

    Raises:
        UserError: They cannot be grouped so.
    """
    of_processes = Counter(device.process_index for device in among)
    if (fewest := min(of_processes.values())) % model:
        raise UserError(
            f"--model-axis is {model} but must divide the {fewest} devices of a "
            "process."
        )
    return devices.mesh_of(among, model)


def _train(config: CompileConfig, model: Model, mesh: Mesh) -> Traced:
    parts = devices.rows(mesh) * config.accumulate
    devices.check_rows(config.batch_size, parts, "devices and parts")
    words, shares = config.vocabulary, config.model_axis
    if words % shares:
        raise UserError(
            f"--vocabulary {words} cannot be split evenly over {shares} devices; make "
            f"it {words - words % shares}, or choose another --model-axis."
        )
    update = optimizers.build(config.optimizer, STEPS_PER_EPOCH)
    key = jax.random.key(0)

    def start(key: jax.Array) -> steps.TrainState:
        return steps.init_state(model.init(key), update, config)

    state = jax.eval_shape(start, key)
    check_frozen(state.params, config.frozen, "frozen")
    places = shardings(state, mesh)
    state = jax.tree.map(_shape, state, places)
    step = steps.train_program(
        model,
        config.objective,
        update,
        config,
        mesh,
        places,
    )
    copies = NamedSharding(mesh, PartitionSpec())
    shape = Shape(config.rows, config.source_length, config.target_length)
    batch = batch_of(shape, mesh, linked=config.objective.guided > 0)
    parameters = bytes_of(state.params)
    return Traced(
        stage=step.trace(_shape(jax.random.key_data(key), copies), state, *batch),
        parameters=assembly.count_parameters(state.params),
        parameter_bytes=parameters,
        optimizer_bytes=bytes_of(state) - parameters,
    )


def _search(config: CompileConfig, model: Model, mesh: Mesh) -> Traced:
    if config.model_axis > 1:
        raise UserError("a search splits rows alone; leave --model-axis out.")
    few = config.candidates
    if few and few > config.vocabulary:
        raise UserError(
            f"--candidates is {few} but the vocabulary has {config.vocabulary} words."
        )
    devices.check_rows(config.rows, devices.rows(mesh))
    copies = NamedSharding(mesh, PartitionSpec())
    by_rows = NamedSharding(mesh, PartitionSpec("data"))
    params = model.param_shapes
    params = jax.tree.map(lambda leaf: _shape(leaf, copies), params)

    def row(*shape: int, dtype: DType = jnp.int32) -> jax.ShapeDtypeStruct:
        shape = config.rows, *shape
        return jax.ShapeDtypeStruct(shape, dtype, sharding=by_rows)

    rows: list[jax.ShapeDtypeStruct | None] = [row(config.source_length), row()]
    words = None
    if few:
        rows += [None, row(few, dtype=jnp.bool_)]  # no prefix, and what is allowed
        words = jax.ShapeDtypeStruct((few,), jnp.int32, sharding=copies)
    searching = program(model, config.search, mesh)
    return Traced(
        stage=searching.trace(numbers_of(config.search), params, *rows, words=words),
        parameters=assembly.count_parameters(params),
        parameter_bytes=bytes_of(params),
        optimizer_bytes=0,
    )


def _shape(leaf: PyTree, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
