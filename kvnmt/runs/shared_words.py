# SPDX-License-Identifier: Apache-2.0
"""Starting a model from a trained one of other words.

The rows of words that both have are taken over; the others start fresh. So a child of
another language starts from its parent (Zoph et al. 2016), or a model learns the words
of another domain.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from kvnmt.data.codes import Codes
from kvnmt.data.vocabularies import Vocabularies, Vocabulary
from kvnmt.data.vocabulary import SPACE, SPECIAL, Words
from kvnmt.typing import Array

# What has an entry for every word of a side in `Params`, and along which axis.
OF_WORDS = {
    "source_embedding": ("source", 0),
    "target_embedding": ("target", 0),
    "output": ("target", -1),
    "auxiliary": ("target", -1),
}


class Places(NamedTuple):
    """Where the words of two vocabularies stand that both have."""

    here: list[int]
    there: list[int]


class SharedWords(NamedTuple):
    """The words, or pieces, that a model shares with a trained one."""

    source: Places
    target: Places

    def fill(self, path: Sequence[Any], fresh: Array, trained: Any) -> Any:
        """A new model's array with the trained entries of shared words.

        Args:
            path: Of the array in `Params`.
            fresh: As it starts.
            trained: Its counterpart; returned as it is if it has no entries for words,
                if the entries of the two differ in size, or if it is None.
        """
        side, axis = OF_WORDS.get(path[0].name, ("", 0))
        if not side or trained is None:
            return trained
        made = np.moveaxis(np.array(fresh), axis, 0)
        rows = np.moveaxis(np.asarray(trained), axis, 0)
        if made.shape[1:] != rows.shape[1:]:
            return trained
        places: Places = getattr(self, side)
        made[places.here] = rows[places.there]
        return jnp.asarray(np.moveaxis(made, 0, axis))


def shared_words(ours: Vocabularies, theirs: Vocabularies) -> SharedWords:
    """Finds what both vocabularies of a side have; the two specials always are such."""
    return SharedWords(*map(_places, ours, theirs))


def _places(ours: Vocabulary, theirs: Vocabulary) -> Places:
    here, there = map(_numbers, (ours, theirs))
    shared = [word for word in here if word in there]
    special = [*range(len(SPECIAL))]
    return Places(
        special + [here[word] for word in shared],
        special + [there[word] for word in shared],
    )


def _numbers(vocabulary: Vocabulary) -> dict[str, int]:
    """The id of every word but the specials, which programs call differently.

    A word is called as the piece that is a whole word. So is one of `Codes` that
    may be one: where it ends a longer word it is the same piece.
    """
    ids = range(len(SPECIAL), len(vocabulary))
    space = SPACE if isinstance(vocabulary, Words | Codes) else ""
    return {f"{space}{piece}": i for piece, i in zip(vocabulary.pieces(ids), ids)}
