# SPDX-License-Identifier: Apache-2.0
"""Starting a model from a trained one that it extends.

Parameters are matched by their path. Where the new model has more members of a
sequence (rounds, say) than the trained one, the further members start as the last
that exists: a baseline's attention and second GRU thus fill every round of
KVMemAtt, as its paper trains it. The output layer of the trained model also starts
the auxiliary predictors (Zheng et al. 2018). What has no counterpart starts fresh.

From another attention only its ``address`` is taken, from another target context
nothing: names that agree by chance mean different things.
"""

from dataclasses import fields as fields_of
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kvnmt.errors import OptionError, UserError
from kvnmt.fields import extending, idle
from kvnmt.layers import GRU, LSTM, count_heads
from kvnmt.model.assembly import Params
from kvnmt.model.config import ModelConfig
from kvnmt.runs.shared_words import SharedWords
from kvnmt.trees import by_name, path_name

# What means the same in all mechanisms of a kind.
COMMON = {"attention": {"address"}, "target_context": set[str]()}
# What multiplies the output of a part, which is another thing of another mechanism.
BESIDE = {"W_context": "attention"}
OUTPUT, AUXILIARY = map(jax.tree_util.GetAttrKey, ("output", "auxiliary"))


class WarmStart(NamedTuple):
    """The parameters to start from, and where they come from."""

    params: Params
    copied: list[str]  # paths
    fresh: list[str]
    unused: list[str]  # of the trained model, without a place in the new one


def warm_start(
    fresh: Params, trained: Params, shared: SharedWords | None = None
) -> WarmStart:
    """Copies into ``fresh`` whatever ``trained`` has under the same path.

    Args:
        fresh: Parameters of the new model.
        trained: Those of the trained one.
        shared: Which words both have; by default they have the same.

    Raises:
        UserError: A parameter has another shape in the trained model.
    """
    paths, structure = jax.tree.flatten_with_path(fresh)
    leaves, copied, new = [], [], []
    used: set[int] = set()
    for path, leaf in paths:
        name = path_name(path)
        source = _start(trained, fresh, path, leaf)
        known = shared.fill(path, leaf, source) if shared else source
        if known is None:
            new.append(name)
        elif known.shape != leaf.shape:
            raise UserError(
                f"'{name}' has shape {known.shape} in the trained model but "
                f"{leaf.shape} in the new one; give both the same sizes, and start "
                "from a system that the new one extends."
            )
        else:
            copied.append(name)
            used.add(id(source))
        # A copy, since a step consumes its parameters and takes no array twice; from
        # the host, since what one process has on a device cannot be placed on all.
        leaves.append(leaf if known is None else jnp.array(np.asarray(known)))
    unused = [name for name, leaf in by_name(trained).items() if id(leaf) not in used]
    return WarmStart(jax.tree.unflatten(structure, leaves), copied, new, unused)


def check_computed_alike(trained: ModelConfig, config: ModelConfig, run: Path) -> None:
    """Makes sure that arrays of a trained model mean the same in another.

    Raises:
        OptionError: A choice differs that gives the same arrays another meaning.
    """
    fields = ["merge", "cell", "readout"]
    if min(trained.layers, config.layers) > 1:
        fields.append("residual")
    if trained.recurs or config.recurs:
        fields.append("layer_norm")  # which is of recurrent units
    # One table for both sides stands in another place, and one that only entered is no
    # output layer.
    if "all" in (trained.tie, config.tie) or trained.tie == "none":
        fields.append("tie")
    unread = idle(trained) | idle(config)
    fields += [
        f"{part}.{name}"
        for part in ("blocks", "attention", "decoder", "target_context")
        if part not in unread
        for name in _common(getattr(trained, part), getattr(config, part))
    ]
    for field in fields:
        before, now = (_meant(one, field) for one in (trained, config))
        if before != now:
            raise OptionError(
                f"'{run}' was trained with {{0}} {before}, and this model has {now}, "
                "with which its arrays mean something else; give both the same, or "
                "start from a run that has the latter.",
                field,
                prefix="model.",
            )
    before, now = trained.word_gain, config.word_gain
    if before != now and type(trained.decoder) is not type(config.decoder):
        raise OptionError(
            f"the decoder of '{run}' reads target words {before:.3g} times as large as "
            f"its table has them, that of this model {now:.3g} times; give both the "
            "same {0}.",
            "decoder",
        )


def _meant(config: ModelConfig, field: str) -> Any:
    """The value of a field; of heads that are not given, how many there are then."""
    value = attrgetter(field)(config)
    if value is None and field.endswith(".heads"):
        of_encoder = field.startswith("blocks")
        return count_heads(None, config.encoder if of_encoder else config.state, field)
    return value


def _common(before: Any, now: Any) -> list[str]:
    """Options that mean something in both: of other mechanisms those of all."""
    names = [option.name for option in fields_of(now)]
    if type(before) is type(now):
        others = extending(type(now)) | idle(before) | idle(now)
        return [name for name in names if name not in others]
    both = ("reset", "initial")
    return [name for name in both if hasattr(before, name) and hasattr(now, name)]


def _start(
    trained: Params, fresh: Params, path: tuple[Any, ...], leaf: Any
) -> Any | None:
    """What starts a leaf of the fresh parameters, if anything does."""
    start = _counterpart(trained, fresh, path)
    if start is None and path[0] in (OUTPUT, AUXILIARY):
        name = path[1 if path[0] == OUTPUT else 2 :]
        start = _counterpart(trained.output_layer, fresh.output_layer, name)
        # One that reads another width is another layer.
        if start is not None and start.shape[:-1] != leaf.shape[:-1]:
            return None
    return start


def _counterpart(tree: Any, fresh: Any, path: tuple[Any, ...]) -> Any | None:
    above = ""  # the name of the tree
    for key in path:
        if isinstance(key, jax.tree_util.SequenceKey):
            # A further transition, which goes on from those before, starts fresh.
            repeats = above != "transitions"
            tree, fresh = _member(tree, key.idx, repeats), fresh[key.idx]
        else:
            name = key.key if isinstance(key, jax.tree_util.DictKey) else key.name
            is_other = above in COMMON and not isinstance(fresh, type(tree))
            if is_other and name not in COMMON[above]:
                return None
            if (beside := BESIDE.get(name)) and _differ(tree, fresh, beside):
                return None
            tree, fresh, above = _named(tree, name), _named(fresh, name), name
        if tree is None:
            return None
    return tree


def _differ(tree: Any, fresh: Any, name: str) -> bool:
    """Whether both have such a part, of two kinds."""
    former, now = _named(tree, name), _named(fresh, name)
    return None not in (former, now) and type(former) is not type(now)


def _named(tree: Any, name: str) -> Any | None:
    return tree.get(name) if isinstance(tree, dict) else getattr(tree, name, None)


def _member(members: Any, index: int, repeats: bool) -> Any | None:
    if not isinstance(members, tuple):
        return None
    if index < len(members):
        return members[index]
    if not repeats:
        return None
    # A further round repeats the last; a further input of a layer is another thing, and
    # a lowest layer, which reads words, is no layer above it.
    if not members or jax.tree_util.all_leaves(members[-1:]):
        return None
    if len(members) == 1 and isinstance(members[0], GRU | LSTM):
        return None
    return members[-1]
