# SPDX-License-Identifier: Apache-2.0
"""How the source becomes annotations: stacks of layers, and how two are merged."""

from kvnmt.encoder.base import Between, Encoded
from kvnmt.encoder.bidirectional import (
    CELLS,
    CellName,
    Choices,
    Merge,
    Params,
    annotation_size,
    encode,
    entry_gain,
    init,
)
from kvnmt.encoder.recurrent import SCAN

__all__ = [
    "Between",
    "CELLS",
    "CellName",
    "Choices",
    "Encoded",
    "Merge",
    "Params",
    "SCAN",
    "annotation_size",
    "encode",
    "entry_gain",
    "init",
]
