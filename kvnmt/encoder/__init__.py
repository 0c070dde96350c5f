# SPDX-License-Identifier: Apache-2.0
"""How the source becomes annotations: stacks of layers, and how two are merged."""

from kvnmt.encoder.base import CellName, Choices, Encoded, Merge
from kvnmt.encoder.bidirectional import (
    CELLS,
    Params,
    annotation_size,
    encode,
    entry_gain,
    init,
)
from kvnmt.encoder.recurrent import SCAN

__all__ = [
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
