# SPDX-License-Identifier: Apache-2.0
"""Statistical models by Thot: a word aligner (HMM) and a phrase-based translator.

Thot (Ortiz-Martínez and Casacuberta 2014) is PyPI's ``sil-thot``; ``sil-machine``
trains with it. The latter pins much that is not needed here, so it goes in alone; of
all that it asks for, NumPy and the few packages of the extra ``phrase`` are enough::

    pip install -e ".[phrase]"
    pip install --no-deps "sil-machine>=1.9,<1.10"

Nothing of either is imported before it is used.
"""

import json
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kvnmt.data.links import Links
from kvnmt.data.text import Parallel
from kvnmt.data.words import split_words
from kvnmt.errors import UserError
from kvnmt.files import digest, make_folder, write_json

PACKAGES = (
    *("sil-thot", "sil-machine"),
    *("regex", "sortedcontainers", "charset-normalizer"),
)
# Of the log-linear model, in the order of Thot.
WEIGHTS = (
    "word penalty",
    "language model",
    "target phrase lengths",
    "source jumps",
    "source phrase lengths",
    "phrases",
    "inverse phrases",
    "sentence length",
)
TRAINED = "trained.json"  # is written last
UNTUNED = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0)


def missing() -> list[str]:
    """The packages that are not installed."""
    return [name for name in PACKAGES if _version(name) is None]


def check_installed() -> None:
    """Makes sure that Thot can be used.

    Raises:
        UserError: Packages are missing.
    """
    if names := missing():
        raise UserError(
            f"Thot is not installed ({', '.join(names)} missing); run pip install "
            "'.[phrase]', then pip install --no-deps 'sil-machine>=1.9,<1.10'."
        )


def versions() -> dict[str, str | None]:
    """Those of Thot's packages."""
    return {name: _version(name) for name in PACKAGES[:2]}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


class Translator:
    """A phrase-based system: phrase table, 3-gram model, monotone stack decoder."""

    def __init__(self, folder: Path):
        """Loads what was trained.

        Args:
            folder: Where `learn` wrote it.
        """
        from machine.translation.thot import (  # pyright: ignore
            ThotWordAlignmentModelType,
            thot_utils,
        )

        kind, parameters = ThotWordAlignmentModelType.HMM, _parameters(folder)
        self._model = thot_utils.load_smt_model(kind, parameters)
        self._decoder = thot_utils.load_smt_decoder(self._model, parameters)
        self.minutes: float = json.loads((folder / TRAINED).read_text())["minutes"]

    def __call__(self, lines: Sequence[str], weights: Sequence[float]) -> list[str]:
        """Translates lines.

        Args:
            lines: Tokenised.
            weights: In the order of `WEIGHTS`.
        """
        from machine.translation.thot import thot_utils  # pyright: ignore

        self._model.weights = list(weights)
        return [
            " ".join(thot_utils.to_target_tokens(self._decoder.translate(line).target))
            for line in (thot_utils.to_sentence(split_words(line)) for line in lines)
        ]


def learn(text: Parallel, folder: Path, seed: int) -> Translator:
    """Trains a phrase-based system, unless it is trained on this text with this seed.

    Links of an HMM in both directions are joined, phrases of up to ten words counted in
    them, and the smoothing of the 3-gram model is fitted to a thousand pairs (at most a
    tenth) that are held out before and learnt from at the end.

    Args:
        text: Tokenised.
        folder: Where the models are written.
        seed: Of the draw of the pairs that are held out.
    """
    lines = "\n".join([*text.source, *text.target])
    of = {"text": digest(lines.encode(), 32)[:12], "seed": seed}
    note = folder / TRAINED
    if not note.exists() or not of.items() <= json.loads(note.read_text()).items():
        note.unlink(missing_ok=True)
        began = time.monotonic()
        make_folder(folder)
        _train(text, folder, seed)
        write_json(note, of | {"minutes": (time.monotonic() - began) / 60})
    return Translator(folder)


def _train(text: Parallel, folder: Path, seed: int) -> None:
    from machine.translation.thot import ThotSmtModelTrainer  # pyright: ignore

    with ThotSmtModelTrainer("hmm", _corpus(text), _parameters(folder)) as trainer:
        trainer.seed = seed
        # Its search for weights decodes the pairs held out a hundred times.
        trainer._model_weight_tuner = _Untuned()
        trainer.train()
        trainer.save()


def _parameters(folder: Path) -> Any:
    from machine.translation.thot import ThotSmtParameters  # pyright: ignore

    return ThotSmtParameters(
        translation_model_filename_prefix=str(folder / "translation" / "model"),
        language_model_filename_prefix=str(folder / "language" / "model"),
    )


class _Untuned:
    """Leaves the weights as they are."""

    def tune(self, parameters: Any, *others: Any) -> Any:
        return parameters


def align(text: Parallel, last: int) -> list[Links]:
    """Links of the last pairs of a text by an HMM that is trained on all of it.

    It is the model that `learn` draws phrases from: five iterations of IBM model 1,
    then five of the HMM (Vogel et al. 1996).

    Args:
        text: Tokenised; each word of its target has one link or none.
        last: How many pairs at the end are wanted.
    """
    from machine.translation.thot import (  # pyright: ignore
        ThotHmmWordAlignmentModel,
        ThotWordAlignmentParameters,
    )

    model = ThotHmmWordAlignmentModel()
    model.parameters = ThotWordAlignmentParameters(
        ibm1_iteration_count=5,
        hmm_iteration_count=5,
        hmm_p0=0.1,
        hmm_lexical_smoothing_factor=0.1,
        hmm_alignment_smoothing_factor=0.3,
    )
    with model.create_trainer(_corpus(text)) as trainer:
        trainer.train()
        trainer.save()
    sides = (text.source[-last:], text.target[-last:])
    pairs = [tuple(map(split_words, pair)) for pair in zip(*sides)]
    return [
        frozenset(
            (link.source_index, link.target_index)
            for link in matrix.to_aligned_word_pairs()
        )
        for matrix in model.align_batch(pairs)
    ]


def _corpus(text: Parallel) -> Any:
    from machine.corpora import ParallelTextCorpus, ParallelTextRow  # pyright: ignore

    rows = [
        ParallelTextRow("text", [n], [n], split_words(source), split_words(target))
        for n, (source, target) in enumerate(zip(text.source, text.target))
    ]
    return ParallelTextCorpus.from_parallel_rows(rows)
