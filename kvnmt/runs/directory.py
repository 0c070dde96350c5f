# SPDX-License-Identifier: Apache-2.0
"""A run directory: how it is made, and how it is read back.

It needs nothing else to be used. It holds ``config.json``, ``versions.json``,
``vocabulary/``, ``metrics.jsonl``, ``events/``, ``learning-curve.png`` and
``checkpoints/``.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cattrs
import jax
import numpy as np
from numpy.typing import NDArray

from kvnmt import models
from kvnmt.console import say
from kvnmt.data.vocabularies import (
    Vocabularies,
    check_digests,
    load_vocabularies,
)
from kvnmt.data.vocabulary import digest
from kvnmt.errors import UserError
from kvnmt.inference.ensemble import ensemble
from kvnmt.inference.explain import Explanation, explain
from kvnmt.inference.program import SearchConfig
from kvnmt.inference.score import Scored, align_lines, rounds_of, score_lines
from kvnmt.inference.translate import translate_lines
from kvnmt.models import Model, Params
from kvnmt.runs.config import Experiment, from_plain
from kvnmt.runs.former import upgraded
from kvnmt.training.checkpoint import Checkpoints


class Run(NamedTuple):
    """A trained model, as read back from its run directory.

    Searches are those of the run's config unless another is passed.
    """

    experiment: Experiment
    vocabularies: Vocabularies
    model: Model
    params: Params

    def translate(
        self, lines: Sequence[str], search: SearchConfig | None = None
    ) -> list[str]:
        """Translates lines; one line out per line in, in order.

        Example::

            >>> run = kvnmt.load("runs/mine")
            >>> translations = run.translate(["a b c", "d e"])
            >>> len(translations)
            2
        """
        _refuse_single(lines)
        _refuse_language_model(self)
        return translate_lines(self, lines, search or self.experiment.search)

    def score(self, source: Sequence[str], target: Sequence[str]) -> list[Scored]:
        """Tells how probable translations are, token by token, and how they are read.

        Example::

            >>> run = kvnmt.load("runs/mine")
            >>> right, wrong = run.score(["a b", "a b"], ["A B", "B B"])
            >>> right.log_prob > wrong.log_prob
            True
        """
        _check_pairs(source, target)
        return score_lines(self, source, target)

    def align(
        self, source: Sequence[str], target: Sequence[str]
    ) -> list[list[NDArray[np.floating]]]:
        """Aligns pairs: for each a matrix per round, target by source tokens, EOS last.

        Example::

            >>> run = kvnmt.load("runs/mine")
            >>> rounds = run.align(["a b c"], ["A B C"])[0]
            >>> [matrix.shape for matrix in rounds]
            [(4, 4)]
        """
        _check_pairs(source, target)
        _refuse_language_model(self)
        return align_lines(self, source, target)

    def explain(
        self,
        line: str,
        target: str | None = None,
        search: SearchConfig | None = None,
    ) -> Explanation:
        """Tells how a line is translated, or how a translation of it is read.

        Example::

            >>> run = kvnmt.load("runs/mine")
            >>> explanation = run.explain("a b c")
            >>> explanation.source_tokens
            ['a', 'b', 'c', '</s>']
            >>> explanation.draw("attention.png")
        """
        if target is None:
            _refuse_language_model(self)
        return explain(
            self,
            self.experiment.model,
            line,
            target,
            search or self.experiment.search,
        )


def load_run(folder: Path | str) -> Run:
    """Reads a run directory back, with the parameters of its best checkpoint.

    Raises:
        UserError: It is no run directory or holds no finished checkpoint.
    """
    folder = Path(folder)
    experiment = load_experiment(folder)
    words = load_vocabularies(folder)
    model = models.build(experiment.model, len(words.source), len(words.target))
    like = jax.eval_shape(model.init, jax.random.key(0))
    kept = folder / "checkpoints"
    with Checkpoints(kept, read_only=True, tell=say) as checkpoints:
        best = checkpoints.find("best")
        check_digests(best.about.get("vocabularies"), words, folder)
        params = checkpoints.restore_params(like, best.step)
    return Run(experiment, words, model, params)


def load_experiment(folder: Path) -> Experiment:
    """Reads the config of a run directory.

    Raises:
        UserError: It is no run directory, or the config is none.
    """
    check_run(folder)
    text = (folder / "config.json").read_text()
    try:
        return from_plain(upgraded(json.loads(text)))
    except cattrs.BaseValidationError as error:
        reason = "; ".join(cattrs.transform_error(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
    raise UserError(f"'{folder}/config.json' is no config of this version: {reason}.")


def check_run(folder: Path) -> None:
    """Makes sure that a folder is a run directory.

    Raises:
        UserError: It holds no config.
    """
    if not (folder / "config.json").is_file():
        raise UserError(
            f"'{folder}' is no run directory: it holds no config.json; give the "
            "folder that training wrote."
        )


def load_translator(folder: Path, others: Sequence[Path] = ()) -> Run:
    """Reads a run, or an ensemble of runs, that translates.

    Raises:
        UserError: It cannot be read, or is a language model.
    """
    run = load_ensemble([folder, *others])
    if not run.model.reads_source:
        raise UserError("the run holds a language model, which translates nothing.")
    return run


def load_aligner(folder: Path) -> tuple[Run, int]:
    """Reads a run that aligns, and tells in how many rounds.

    Raises:
        UserError: It cannot be read, or does not align.
    """
    run = load_run(folder)
    if not run.model.reads_source:
        raise UserError(f"'{folder}' holds a language model, which aligns nothing.")
    rounds = rounds_of(run.model, run.params)
    if not rounds:
        raise UserError(
            f"the system of '{folder}' has no attention, so nothing is aligned."
        )
    return run, rounds


def load_ensemble(folders: Sequence[Path]) -> Run:
    """Reads runs back as one; a single one is itself.

    Raises:
        UserError: One is no run directory, or their vocabularies differ.
    """
    runs = [load_run(folder) for folder in folders]
    if len(runs) == 1:
        return runs[0]
    first = runs[0]
    for folder, run in zip(folders, runs):
        for side, ours, theirs in zip(
            ("source", "target"), first.vocabularies, run.vocabularies
        ):
            if digest(ours) != digest(theirs):
                raise UserError(
                    f"the {side} vocabulary of '{folder}' ({digest(theirs)}) is not "
                    f"that of '{folders[0]}' ({digest(ours)}); an ensemble shares both."
                )
        if run.model.reads_source != first.model.reads_source:
            raise UserError(f"'{folder}' and '{folders[0]}' do not do the same thing.")
    model = ensemble(tuple(run.model for run in runs))
    params: Any = tuple(run.params for run in runs)
    return first._replace(model=model, params=params)


def _refuse_single(lines: Sequence[str]) -> None:
    """Refuses a text in the place of a list of texts: its letters would be lines."""
    if isinstance(lines, str):
        raise UserError("a list of lines is needed; put a single line in brackets.")


def _check_pairs(source: Sequence[str], target: Sequence[str]) -> None:
    _refuse_single(source)
    _refuse_single(target)
    if len(source) != len(target):
        raise UserError(
            f"there are {len(source)} source lines but {len(target)} target lines; "
            "every source line needs its translation."
        )


def _refuse_language_model(run: Run) -> None:
    if not run.model.reads_source:
        raise UserError(
            "the run holds a language model, which neither translates nor aligns."
        )
