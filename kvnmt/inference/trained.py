# SPDX-License-Identifier: Apache-2.0
"""What every function of this folder takes: a trained model with its vocabularies."""

from typing import Protocol

from kvnmt.data.vocabularies import Vocabularies
from kvnmt.model.assembly import Model, Params

KEPT = 16  # compiled programs of each kind that a process keeps, the latest used


class Trained(Protocol):
    """A run, or whatever else has these three."""

    @property
    def vocabularies(self) -> Vocabularies:
        """Of both sides."""
        ...

    @property
    def model(self) -> Model:
        """The functions."""
        ...

    @property
    def params(self) -> Params:
        """The arrays."""
        ...
