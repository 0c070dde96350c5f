# SPDX-License-Identifier: Apache-2.0
"""The command that prepares a TFDS dataset: prepare-tfds."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from kvnmt.data.text import read_parallel
from kvnmt.errors import UserError


@dataclass(frozen=True)
class PrepareTfds:
    """Prepare a TFDS dataset from parallel text, and print how to train from it.

    Every pair is kept, in its order. TensorFlow is not needed.
    """

    name: str  # of the dataset: small letters, digits, underscores
    folder: Path  # where datasets are prepared
    source: Path  # training text
    target: Path
    valid_source: Path
    valid_target: Path
    test_source: Path | None = None
    test_target: Path | None = None
    languages: tuple[str, str] = ("source", "target")  # what the sides are called

    def __call__(self) -> None:
        """Prepares."""
        paths = {
            "train": (self.source, self.target),
            "validation": (self.valid_source, self.valid_target),
        }
        if self.test_source or self.test_target:
            if not (self.test_source and self.test_target):
                raise UserError("give both --test-source and --test-target.")
            paths["test"] = self.test_source, self.test_target
        splits = {
            split: read_parallel(*sides, faulty="keep")
            for split, sides in paths.items()
        }
        from kvnmt.data import tfds_builder  # here, since it is slow to import

        made = tfds_builder.prepare(self.name, splits, self.folder, self.languages)
        counts = ", ".join(f"{len(text.source)} {s}" for s, text in splits.items())
        Console(stderr=True).print(
            f"{counts} pairs in {made}; train with:", highlight=False, soft_wrap=True
        )
        flags = {"tfds": self.name, "tfds-folder": self.folder}
        words = [word for k, v in flags.items() for word in (f"--data.{k}", str(v))]
        print(shlex.join(["kvnmt", "train", f"runs/{self.name}", *words]))
