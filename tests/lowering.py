# SPDX-License-Identifier: Apache-2.0
"""Programs are lowered in a context of MLIR that many share, not in one of their own.

JAX makes a context for each program, which takes longer than to lower a small one.
"""

import importlib
import threading
from typing import Any

PROGRAMS = 500  # of one context, which keeps every constant that it has met


def share_contexts() -> None:
    """From now on; without effect where JAX has no such call, which is its own.

    Programs stay what they are: those of a process that shares are those that another
    has kept. Threads have contexts of their own, and so has a program that is compiled
    while another is lowered: what it makes would be put into the other.
    """
    try:
        mlir: Any = importlib.import_module("jax._src.interpreters.mlir")
        make, context = mlir.make_ir_context, mlir.ir.Context
    except (ImportError, AttributeError):
        return
    own = threading.local()

    def is_lowering() -> bool:
        try:
            return context.current is not None
        except ValueError:
            return False

    def shared() -> Any:
        if is_lowering():
            return make()
        left = getattr(own, "left", 0)
        if not left:
            own.context, left = make(), PROGRAMS
        own.left = left - 1
        return own.context

    mlir.make_ir_context = shared
