# SPDX-License-Identifier: Apache-2.0
"""Configs that former versions wrote, brought to the fields of this one.

A rule changes plain data in place and leaves alone what is of this version already.
"""

import copy
from collections.abc import Callable
from typing import Any


def name_coverage_by_kind(plain: dict[str, Any]) -> None:
    """One attention ``coverage`` held two mechanisms, told apart by its ``kind``."""
    attention = plain.get("model", {}).get("attention", {})
    if attention.get("name") != "coverage" or "kind" not in attention:
        return  # another, or somebody's own of that name
    if attention["kind"] == "linguistic":
        modelled = attention["fertility"]
        plain["model"]["attention"] = {
            "name": "linguistic_coverage",
            "max_fertility": attention["max_fertility"] if modelled else None,
            "subtractive": attention["subtractive"],
        }
        return
    gated = "gru_before" if attention["reset"] == "before" else "gru"
    plain["model"]["attention"] = {
        "name": "neural_coverage",
        "cell": gated if attention["gated"] else "tanh",
        "size": attention["size"],
    }


def count_steps_of_remat(plain: dict[str, Any]) -> None:
    """``remat`` was none, step or chunk:STEPS; now it is the number of steps."""
    remat = plain.get("training", {}).get("remat")
    if isinstance(remat, str):
        kept = {"none": 0, "step": 1}
        chunk = remat.removeprefix("chunk:")
        plain["training"]["remat"] = kept[remat] if remat in kept else int(chunk)


def leave_tied_layers_alone(plain: dict[str, Any]) -> None:
    """``scale_tied`` multiplied what a tied output layer reads.

    Raises:
        ValueError: By something else than 1, for which there is no field any more.
    """
    model = plain.get("model", {})
    if model.get("scale_tied") and model["tie"] != "none":
        is_transformer = model["decoder"]["name"] == "transformer"
        if not is_transformer or model["state"] != model["embedding"]:
            raise ValueError(
                "its tied output layer reads numbers that are scaled (scale_tied), "
                "which no model is any more; translate with the version that trained "
                "it, or train again"
            )
    model.pop("scale_tied", None)


RULES: tuple[Callable[[dict[str, Any]], None], ...] = (
    name_coverage_by_kind,
    count_steps_of_remat,
    leave_tied_layers_alone,
)


def upgraded(plain: dict[str, Any]) -> dict[str, Any]:
    """The config of a former version as this one would write it.

    Args:
        plain: What config.json holds; it is left as it is.

    Raises:
        KeyError: A mechanism of the former version lacks an option.
    """
    plain = copy.deepcopy(plain)
    for rule in RULES:
        rule(plain)
    return plain
