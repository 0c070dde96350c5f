# SPDX-License-Identifier: Apache-2.0
"""Configs as plain data, for JSON: mechanisms carry the name they are listed under."""

import dataclasses
from pathlib import Path
from typing import Any

import cattrs

from kvnmt import attention, decoder, target_context
from kvnmt.catalogue import Catalogue


def converter() -> cattrs.Converter:
    """The conversion of configs, both ways; unknown fields are refused."""
    made = cattrs.Converter(forbid_extra_keys=True)
    made.register_unstructure_hook(Path, str)
    made.register_structure_hook(Path, lambda value, _: Path(value))
    for base, catalogue in (
        (attention.Options, attention.CATALOGUE),
        (decoder.Options, decoder.CATALOGUE),
        (target_context.Options, target_context.CATALOGUE),
    ):
        _register(made, base, catalogue)
    return made


def _register(converter: cattrs.Converter, base: type, catalogue: Catalogue) -> None:
    """Lets options of any member stand for the base, tagged by the member's name."""

    def unstructure(options: Any) -> dict[str, Any]:
        return {"name": catalogue.name_of(options), **dataclasses.asdict(options)}

    def structure(plain: dict[str, Any], _: Any) -> Any:
        fields = dict(plain)
        member = catalogue[fields.pop("name")]
        return converter.structure(fields, member.Options)

    converter.register_unstructure_hook(base, unstructure)
    converter.register_structure_hook_func(lambda kind: kind is base, structure)
