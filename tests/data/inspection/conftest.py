# SPDX-License-Identifier: Apache-2.0
"""A corpus without faults."""

import pytest

from kvnmt.data.synthetic import make_corpus
from tests.data.inspection.helpers import Parts


@pytest.fixture(scope="session")
def clean() -> Parts:
    """Source and target of every part of a synthetic corpus."""
    corpus = make_corpus(5, train=1500, valid=150, test=150)
    return {
        part: [
            [" ".join(pair.source) for pair in pairs],
            [" ".join(pair.target) for pair in pairs],
        ]
        for part, pairs in corpus.__dict__.items()
    }
