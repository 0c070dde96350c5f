# SPDX-License-Identifier: Apache-2.0
"""What every named system is made of and what it costs, found by looking at it.

Nothing is run and nothing is declared: parameters and carried bytes are read off the
shapes of the model's own functions, the work inside and outside the scan off the
traced program of its forward pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from rich.table import Table

from kvnmt import attention, decoder, target_context
from kvnmt.errors import OptionError, UserError
from kvnmt.fields import at_least, check_fields
from kvnmt.model import assembly
from kvnmt.model.assembly import Model
from kvnmt.model.config import ModelConfig
from kvnmt.systems.named import SYSTEMS, check_no_mechanism, system
from kvnmt.systems.products import multiplications, needed
from kvnmt.training.losses import TERMS
from kvnmt.typing import Array, PyTree


@dataclass(frozen=True)
class OverviewConfig:
    """The sizes at which the systems are looked at."""

    systems: tuple[str, ...] = tuple(SYSTEMS)
    model: ModelConfig = field(
        default_factory=lambda: ModelConfig(
            embedding=512, encoder=512, state=512, merge="sum"
        )
    )
    vocabulary: Annotated[int, at_least(3)] = 30000  # words on each side
    source_length: Annotated[int, at_least(1)] = 25  # EOS included
    target_length: Annotated[int, at_least(1)] = 25


class Costs(NamedTuple):
    """What a system costs at given sizes."""

    parameters: int
    carried_bytes: int  # per hypothesis, at the given lengths
    inside: int  # multiplications per target word in the decoder's scan
    outside: int  # all others per target word
    weights_inside: tuple[str, ...]  # groups of weights that the scan multiplies by


class Row(NamedTuple):
    """One system."""

    system: str
    paper: str
    attention: str
    decoder: str
    target_context: str
    objective: str
    costs: Costs | None  # None: it cannot be built at these sizes
    misfit: str  # why not


def overview(config: OverviewConfig) -> list[Row]:
    """Looks at every system of the config.

    Raises:
        UserError: There is no system of that name, a size is out of range, or a
            mechanism is named.
    """
    check_fields(config)
    check_no_mechanism(config.model, "look at one such model with kvnmt compile")
    return [_row(config, name) for name in config.systems]


def table(rows: Sequence[Row], config: OverviewConfig) -> Table:
    """The systems as people read them."""
    sizes = config.model
    result = Table(
        "system",
        "paper",
        "attention, decoder, target context, objective",
        "parameters",
        "bytes carried",
        "inside the scan",
        "outside",
        title=f"sizes {sizes.embedding} / {sizes.encoder} / {sizes.state}, vocabulary "
        f"{config.vocabulary}, {config.source_length} source and "
        f"{config.target_length} target words",
        caption="bytes carried per hypothesis; thousands of multiplications per target "
        "word inside and outside the decoder's scan (--json: the weights inside)",
        box=None,
    )
    usual = ("additive", "conditional", "previous_word", "likelihood")
    for row in rows:
        axes = (row.attention, row.decoder, row.target_context, row.objective)
        parts = ", ".join(a for a, b in zip(axes, usual) if a != b) or "the baseline"
        if row.costs is None:
            parts = f"{parts}. Not at these sizes: {row.misfit}"
            result.add_row(row.system, row.paper, parts, "-", "-", "-", "-")
            continue
        result.add_row(
            row.system,
            row.paper,
            parts,
            f"{row.costs.parameters:,}",
            f"{row.costs.carried_bytes:,}",
            f"{row.costs.inside // 1000:,}",
            f"{row.costs.outside // 1000:,}",
        )
    return result


def costs_of(model: Model, config: OverviewConfig) -> Costs:
    """What a model costs at the lengths of a config."""
    params = model.param_shapes
    inside, total, weights = _work(config, model, params)
    return Costs(
        parameters=assembly.count_parameters(params),
        carried_bytes=_carried(config, model, params),
        inside=round(inside / config.target_length),
        outside=round((total - inside) / config.target_length),
        weights_inside=weights,
    )


def _row(config: OverviewConfig, name: str) -> Row:
    chosen = system(name)
    choices = chosen.model(config.model)
    objective = chosen.objective()
    extra = [name for name in TERMS if getattr(objective, name)]
    costs, misfit = None, ""
    try:
        model = assembly.build(choices, config.vocabulary, config.vocabulary)
        costs = costs_of(model, config)
    except UserError as error:
        misfit = error.by_flag if isinstance(error, OptionError) else str(error)
    return Row(
        system=name,
        paper=chosen.paper,
        attention=attention.CATALOGUE.told(choices.attention),
        decoder=decoder.CATALOGUE.told(choices.decoder),
        target_context=target_context.CATALOGUE.told(choices.target_context),
        objective=" + ".join(["likelihood", *extra]),
        costs=costs,
        misfit=misfit,
    )


def _carried(config: OverviewConfig, model: Model, params: Any) -> int:
    source = jax.ShapeDtypeStruct((1, config.source_length), jnp.int32)

    def state(params: Any, source: Any) -> Any:
        constants = model.encode(params, source)
        return model.initial_state(params, constants, config.target_length)

    leaves = jax.tree.leaves(jax.eval_shape(state, params, source))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def _work(
    config: OverviewConfig, model: Model, params: Any
) -> tuple[int, int, tuple[str, ...]]:
    """Multiplications inside the decoder's scans and in all, and weights inside."""
    source = jax.ShapeDtypeStruct((1, config.source_length), jnp.int32)
    target = jax.ShapeDtypeStruct((1, config.target_length), jnp.int32)

    def every_logit(params: PyTree, source: Array, target: Array) -> PyTree:
        prediction = model.forward(params, source, target)
        prediction = replace(prediction, self_attention=())  # what is shown alone
        if prediction.mean is not None:  # all heads are in it
            return prediction
        return prediction, [head.logits for head in prediction.heads]

    jaxpr = jax.make_jaxpr(every_logit)(params, source, target).jaxpr
    equations = needed(jaxpr)
    scans = [
        eqn
        for eqn in equations
        if eqn.primitive.name == "scan"
        and decoder.SCAN in str(eqn.source_info.name_stack)
    ]
    paths = [path for path, _ in jax.tree.leaves_with_path(params)]
    names = {var: _group(path) for var, path in zip(jaxpr.invars, paths)}
    fixed = [v for scan in scans for v in scan.invars[: scan.params["num_consts"]]]
    groups = [names[v] for v in fixed if not hasattr(v, "val") and v in names]
    inside, total = multiplications(scans), multiplications(equations)
    return inside, total, tuple(dict.fromkeys(groups))


def _group(path: Sequence[Any]) -> str:
    """Whose an array is: its path without the first and last field and numbers."""
    names = [str(getattr(k, "name", getattr(k, "key", ""))) for k in path]
    return ".".join([n for n in names if n][1:-1]) or names[0]
