# SPDX-License-Identifier: Apache-2.0
"""Flags of every command in which several runs may answer as one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvnmt.cli.flags import names
from kvnmt.errors import UserError
from kvnmt.inference.ensemble import Joined, Mean
from kvnmt.runs.directory import Run, load_translator


@dataclass(frozen=True, kw_only=True)
class Ensembling:
    """Further runs for an ensemble, and how their predictions are joined."""

    ensemble: tuple[Path, ...] = ()  # further runs, for an ensemble with the first
    # how much the first run and those of --ensemble count; default: all the same
    weights: tuple[float, ...] = ()
    mean: Mean = "arithmetic"  # of the probabilities that the runs give a word

    @property
    def joined(self) -> Joined:
        """How the runs are joined.

        Raises:
            UserError: There are no runs to join.
        """
        for name in ("weights", "mean"):
            if getattr(self, name) != getattr(Joined(), name) and not self.ensemble:
                raise UserError(f"--{name} is of an ensemble; give --ensemble too.")
        return Joined(self.weights, self.mean)

    def load(self, folders: Sequence[Path]) -> dict[str, Run]:
        """The systems by name; an ensemble has that of its first run.

        Args:
            folders: Runs, the first of which --ensemble joins.

        Raises:
            UserError: There is none, or one cannot be read or joined.
        """
        if not folders:
            raise UserError("name at least one run directory.")
        first, *others = names(folders)
        runs = {first: load_translator(folders[0], self.ensemble, self.joined)}
        return runs | dict(zip(others, map(load_translator, folders[1:])))
