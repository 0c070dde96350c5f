# SPDX-License-Identifier: Apache-2.0
"""The laws of an attention under its contract."""

from kvnmt.laws import carried, looks
from kvnmt.laws.law import Law
from kvnmt.laws.trial import Trial

LAWS: tuple[Law[Trial], ...] = (
    Law("init", "parameters begin with finite numbers, drawn from the key", looks.init),
    Law("source", "every array of the Source begins with the rows", looks.source),
    Law("context", "what is read has the promised shapes and is finite", looks.context),
    Law("sum", "an alignment sums to 1, of a row without words to 0", looks.total),
    Law("padding", "padding gets no weight", looks.padding),
    Law("support", "every real word gets some weight", looks.support),
    Law("weighed", "an alignment shows the sizes of what `weigh` tells", looks.weighed),
    Law("unread", "what lies at padding is never read", looks.unread),
    Law("wider", "more padding changes nothing", looks.wider),
    Law("order", "source words in another order are read the same", looks.order),
    Law("rows", "the rows of a batch do not know each other", looks.rows),
    Law("state", "writes change the State and keep its form", carried.state),
    Law("kept", "writes leave the slots at padding as they began", carried.kept),
    Law("explained", "what `explain` tells of a write adds up", carried.explained),
    Law(
        "scanned",
        "in a scan it computes what it computes word by word",
        carried.scanned,
    ),
    Law(
        "hypotheses",
        "hypotheses of a search do not know each other",
        carried.hypotheses,
    ),
    Law("large", "large numbers do not overflow", looks.large),
    Law(
        "precision",
        "results have the types of what is given, or finer",
        carried.precision,
    ),
    Law(
        "compiled", "compiled it computes what it computes uncompiled", carried.compiled
    ),
    Law("gradient", "gradients are finite, also with an empty row", carried.gradient),
    Law("reach", "the loss has a finite gradient in every parameter", carried.reach),
)
