# SPDX-License-Identifier: Apache-2.0
"""The letters of every shape, and the checker that reads them.

=====  =======================================================================
``B``  batch (sentences, or hypotheses where a search maps over its beam)
``S``  source length in tokens, the end-of-sentence token included
``T``  target length in tokens, the end-of-sentence token included
``V``  vocabulary
``E``  embedding
``H``  encoder units in one direction
``C``  annotation (what the encoder gives for one source token)
``D``  decoder state
``A``  alignment layer
``K``  beam
``R``  rounds of attention in one target step
=====  =======================================================================

Where a file means something else by a letter, or has letters of its own, it says so.
Matrices are stored input first, so that ``x @ W`` applies them: the paper's
``W x`` with ``W`` transposed.
"""

from typing import Any, NamedTuple, TypeAlias

import beartype
import jax
from jaxtyping import Array, Bool, Float, Int, Key, jaxtyped

__all__ = [
    "Array",
    "Bool",
    "DType",
    "Float",
    "Int",
    "Key",
    "PyTree",
    "Sizes",
    "typed",
]

PyTree: TypeAlias = Any
DType: TypeAlias = jax.typing.DTypeLike


class Sizes(NamedTuple):
    """The widths that the parts of a model agree on."""

    embedding: int  # E
    encoder: int  # H
    annotation: int  # C
    state: int  # D
    alignment: int  # A


# Checks annotated shapes at run time in eager code and once per trace under jit.
typed = jaxtyped(typechecker=beartype.beartype)
