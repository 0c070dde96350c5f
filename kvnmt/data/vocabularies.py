# SPDX-License-Identifier: Apache-2.0
"""The vocabularies of source and target together: saved, loaded and told apart.

One vocabulary by itself is in `kvnmt.data.vocabulary`.
"""

from pathlib import Path
from typing import NamedTuple

from kvnmt.data import vocabulary
from kvnmt.data.vocabulary import AnyVocabulary
from kvnmt.errors import UserError


class Vocabularies(NamedTuple):
    """One for each side; alike where they are joint and none is trimmed."""

    source: AnyVocabulary
    target: AnyVocabulary


def save_vocabularies(vocabularies: Vocabularies, folder: Path) -> None:
    """Writes both sides into a folder."""
    vocabulary.save(vocabularies.source, folder, "source")
    vocabulary.save(vocabularies.target, folder, "target")


def load_vocabularies(folder: Path) -> Vocabularies:
    """Reads what `save_vocabularies` wrote.

    Args:
        folder: The same folder, or a run directory that has it as ``vocabulary``.

    Raises:
        UserError: There are none.
    """
    if (folder / "vocabulary").is_dir():
        folder = folder / "vocabulary"
    return Vocabularies(
        source=vocabulary.load(folder, "source"),
        target=vocabulary.load(folder, "target"),
    )


def digests(vocabularies: Vocabularies) -> dict[str, str]:
    """A short hash of each side, by its name, to tell vocabularies apart."""
    return {
        "source": vocabulary.digest(vocabularies.source),
        "target": vocabulary.digest(vocabularies.target),
    }


def check_digests(
    trained: dict[str, str] | None, vocabularies: Vocabularies, folder: Path
) -> None:
    """Refuses vocabularies with which a checkpoint was not trained.

    Args:
        trained: What `digests` gave in training; None: it was not written down.
        vocabularies: Those that are there now.
        folder: Run directory.

    Raises:
        UserError: They differ; both digests are named.
    """
    for side, present in digests(vocabularies).items():
        if trained and trained.get(side) != present:
            raise UserError(
                f"the {side} vocabulary in '{folder}' ({present}) is not the one that "
                f"its checkpoint was trained with ({trained.get(side)}); put that back."
            )
