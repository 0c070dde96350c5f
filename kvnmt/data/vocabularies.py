# SPDX-License-Identifier: Apache-2.0
"""The vocabularies of both sides: kept, read back and told apart."""

from pathlib import Path
from typing import NamedTuple

from kvnmt.data import vocabulary as vocabularies
from kvnmt.data.vocabulary import AnyVocabulary, digest
from kvnmt.errors import UserError


class Vocabularies(NamedTuple):
    """One for each side; the same object where they are joint."""

    source: AnyVocabulary
    target: AnyVocabulary


def save_vocabularies(words: Vocabularies, folder: Path) -> None:
    """Writes both sides into a folder."""
    vocabularies.save(words.source, folder, "source")
    vocabularies.save(words.target, folder, "target")


def load_vocabularies(folder: Path) -> Vocabularies:
    """Reads what `save_vocabularies` wrote, there or in a run directory's folder.

    Raises:
        UserError: There are none.
    """
    if (folder / "vocabulary").is_dir():
        folder = folder / "vocabulary"
    return Vocabularies(
        vocabularies.load(folder, "source"), vocabularies.load(folder, "target")
    )


def digests(words: Vocabularies) -> dict[str, str]:
    """What tells vocabularies apart, by side."""
    return {side: digest(own) for side, own in words._asdict().items()}


def check_digests(
    trained: dict[str, str] | None, words: Vocabularies, folder: Path
) -> None:
    """Refuses vocabularies with which a checkpoint was not trained.

    Args:
        trained: What `digests` gave in training; None: it was not written down.
        words: The vocabularies that are there now.
        folder: Run directory.

    Raises:
        UserError: They differ; both digests are named.
    """
    for side, found in digests(words).items():
        if trained and trained[side] != found:
            raise UserError(
                f"the {side} vocabulary in '{folder}' ({found}) is not the one that "
                f"its checkpoint was trained with ({trained[side]}); put that back."
            )
