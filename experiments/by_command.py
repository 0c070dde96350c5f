# SPDX-License-Identifier: Apache-2.0
"""Tables whose figures come from commands that experiments/README.md names."""

from experiments.summaries import Summary
from kvnmt.evaluation.base import Column

TABLES = (
    Summary(
        name="adequacy",
        by=("system",),
        columns=[
            Column("bleu", "BLEU", "{:.2f}"),
            Column("better_worse", "better / worse"),
            Column("p", "p, sign test", "{:.3f}"),
            Column("aer", "AER", "{:.1%}"),
            Column("dropped", "source words dropped", "{:.2%}"),
            Column("repeated", "repeated", "{:.2%}"),
            Column("invented", "output words invented", "{:.2%}"),
        ],
    ),
    Summary(
        name="benchmark",
        by=("system",),
        columns=[
            Column("parameters", "parameters", "{:,}"),
            Column("compile_seconds", "compile s", "{:.1f}"),
            Column("step_ms", "step ms", "{:,}"),
            Column("target_tokens_per_second", "target tokens/s", "{:,}"),
            Column("relative", "relative", "{:.2f}"),
            Column("memory_mib", "memory MiB", "{:,}"),
        ],
    ),
)
