# SPDX-License-Identifier: Apache-2.0
"""What programs are asked to do in tests."""

from pathlib import Path

from kvnmt.benchmark.peers.base import Task


def small_task(folder: Path) -> Task:
    """Sizes that all differ, for text in a folder."""
    return Task(
        text=folder,
        source="de",
        target="en",
        pairs=40,
        longest=9,
        system="rnnsearch-star",
        embedding=5,
        encoder=6,
        state=7,
        embedding_dropout=0.1,
        output_dropout=0.3,
        batch_size=16,
        epochs=2,
        threads=2,
        seed=3,
    )
