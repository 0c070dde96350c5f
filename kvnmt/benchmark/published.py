# SPDX-License-Identifier: Apache-2.0
"""Speeds that papers give for systems, on their hardware.

Nothing here was measured by this program. They are for the ratio of one system to
another, not to be compared with what is measured on another device.
"""

from typing import NamedTuple


class Published(NamedTuple):
    """Training speeds of one table."""

    paper: str
    hardware: str
    words_per_second: dict[str, float]  # target words, by system


MENG = Published(
    paper="Meng et al. 2018, table 1",
    hardware="one Tesla P40",
    words_per_second={
        "rnnsearch-star": 2773,
        "mematt": 2319,
        "kvmematt-r1": 2263,
        "kvmematt-r1-atteos": 1992,
        "kvmematt-r2": 1804,
        "kvmematt-r2-atteos": 1676,
    },
)
