# SPDX-License-Identifier: Apache-2.0
"""Programs are lowered in a context of MLIR that many share, not in one of their own.

JAX makes a context for each program, which takes longer than to lower a small one.
"""

import threading

from jax._src.interpreters import mlir

PROGRAMS = 500  # of one context, which keeps every constant that it has met


def share_contexts() -> None:
    """From now on; without effect where JAX has no such call.

    Programs stay what they are: those of a process that shares are those that another
    has kept. Threads have contexts of their own, and so has a program that is compiled
    while another is lowered: what it makes would be put into the other.
    """
    make, own = getattr(mlir, "make_ir_context", None), threading.local()
    if make is None:
        return

    def shared() -> mlir.ir.Context:
        if _is_lowering():
            return make()
        left = getattr(own, "left", 0)
        if not left:
            own.context, left = make(), PROGRAMS
        own.left = left - 1
        return own.context

    mlir.make_ir_context = shared


def _is_lowering() -> bool:
    try:
        return mlir.ir.Context.current is not None
    except ValueError:
        return False
