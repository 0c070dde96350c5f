# SPDX-License-Identifier: Apache-2.0
"""Entries of a cache."""

from pathlib import Path

from kvnmt.data.corpus import Prepared


def entries(config) -> list[Path]:
    return sorted(path for path in config.cache.iterdir() if path.is_dir())


def plain(found: Prepared) -> list[list[int]]:
    return [
        ids.tolist()
        for side in (found.train.source, found.train.target)
        for ids in side
    ]
