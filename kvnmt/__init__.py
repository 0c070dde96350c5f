# SPDX-License-Identifier: Apache-2.0
"""Recurrent neural machine translation with memory-augmented attention, in JAX.

What a notebook starts with::

    import kvnmt

    kvnmt.SYSTEMS                                   # the systems of the papers
    model = kvnmt.build("kvmematt-r2", 8000, 8000)  # pure functions
    kvnmt.check(mechanism)                          # does my attention keep the laws?
    run = kvnmt.load("runs/mine")                   # a trained model
    run.translate(["a line", "another"])
    run.explain("a line")                           # alignment, memory, probabilities

All of it lives in `kvnmt.runs.notebook`, which is imported when a name is first asked
for: `import kvnmt` alone is quick and does not import JAX.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvnmt.runs.notebook import (
        SYSTEMS,
        DataConfig,
        Dropout,
        Experiment,
        ModelConfig,
        Objective,
        OptimizerConfig,
        Run,
        SearchConfig,
        StoppedError,
        TrainingConfig,
        UserError,
        build,
        check,
        experiment,
        load,
        save,
        train,
    )

__version__ = "0.1.0"

__all__ = [
    "SYSTEMS",
    "DataConfig",
    "Dropout",
    "Experiment",
    "ModelConfig",
    "Objective",
    "OptimizerConfig",
    "Run",
    "SearchConfig",
    "StoppedError",
    "TrainingConfig",
    "UserError",
    "build",
    "check",
    "experiment",
    "load",
    "save",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kvnmt' has no attribute '{name}'")
    from kvnmt.runs import notebook

    return getattr(notebook, name)


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__version__"]
