# SPDX-License-Identifier: Apache-2.0
"""The parameters that a run starts from: as drawn, as vectors, as a trained model."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kvnmt.data.vocabularies import Vocabularies, digest, digests
from kvnmt.errors import OptionError
from kvnmt.model.assembly import Params
from kvnmt.model.config import ModelConfig
from kvnmt.runs.directory import load_experiment, load_run
from kvnmt.runs.shared_words import SharedWords, shared_words
from kvnmt.runs.vectors import Side, check_vectors, with_vectors
from kvnmt.runs.warm_start import WarmStart, check_computed_alike, warm_start
from kvnmt.training.config import TrainingConfig


def check_start(config: TrainingConfig, model: ModelConfig) -> None:
    """Refuses, before text is read, what a model cannot start from.

    Raises:
        UserError: A file or a run is not there, the arrays of the run mean something
            else, or there are vectors for a table that the model has not.
    """
    if config.source_vectors and (model.tie == "all" or not model.reads_source):
        raise OptionError(
            "{0} is of a table of source words alone, which this model has not; leave "
            "it out.",
            "training.source_vectors",
        )
    for side, path in _vectors(config).items():
        check_vectors(path, model.embedding, side)
    if config.warm_start:
        before = load_experiment(config.warm_start).model
        check_computed_alike(before, model, config.warm_start)


def started(
    config: TrainingConfig,
    params: Params,
    words: Vocabularies,
    tell: Callable[[str], None],
    verbose: bool,
) -> Params:
    """The parameters, after vectors and a trained model have replaced some of them.

    Args:
        config: Names the files and the model.
        params: As they were drawn.
        words: Of the run.
        tell: Is given lines for people on what was taken.
        verbose: Name every array that a warm start copies or leaves fresh.

    Raises:
        UserError: A file or a model cannot be used.
    """
    for side, path in _vectors(config).items():
        params = _with_vectors(params, words, path, side, tell)
    if not config.warm_start:
        return params
    trained, shared = load_run(config.warm_start), None
    if config.new_words:
        if digests(words) == digests(trained.vocabularies):
            tell(
                "warning: no word is new, since the vocabularies are those of "
                f"'{config.warm_start}'; --data.vocabularies None builds others."
            )
        shared = shared_words(words, trained.vocabularies)
        tell(_known(shared, words, config.warm_start))
    else:
        _check_words(words, trained.vocabularies, config.warm_start)
    start = warm_start(params, trained.params, shared)
    for line in _taken(start, config.warm_start, verbose):
        tell(line)
    return start.params


def _vectors(config: TrainingConfig) -> dict[Side, Path]:
    """Files of vectors by side, unless the arrays of a trained model are taken."""
    if config.warm_start and not config.new_words:
        return {}
    sides: dict[Side, Path | None] = {
        "source": config.source_vectors,
        "target": config.target_vectors,
    }
    return {side: path for side, path in sides.items() if path}


def _taken(start: WarmStart, folder: Path, verbose: bool) -> list[str]:
    lines = [
        f"{len(start.copied)} arrays copied from '{folder}', {len(start.fresh)} fresh"
    ]
    if start.unused:
        lines[0] += f"; {len(start.unused)} of its arrays have no place in this model"
    if verbose:
        lines += [f"  copied  {name}" for name in start.copied]
        lines += [f"  fresh  {name}" for name in start.fresh]
        lines += [f"  unused  {name}" for name in start.unused]
    return lines


def _with_vectors(
    params: Params,
    words: Vocabularies,
    path: Path,
    side: Side,
    tell: Callable[[str], None],
) -> Params:
    name, vocabulary = f"{side}_embedding", getattr(words, side)
    table, known = with_vectors(getattr(params, name), vocabulary, path, side)
    count = f"{known:,} of {len(vocabulary):,} {side} words"
    tell(f"{count} start as vectors of '{path}'")
    return replace(params, **{name: table})


def _check_words(ours: Vocabularies, theirs: Vocabularies, folder: Path) -> None:
    for side, mine, its in zip(ours._fields, ours, theirs):
        if digest(mine) != digest(its):
            raise OptionError(
                f"the {side} vocabulary of '{folder}' ({len(its)} entries, "
                f"{digest(its)}) is not that of this run ({len(mine)} entries, "
                f"{digest(mine)}); take its words to this text with {{0}} '{folder}', "
                "or let words be new with {1}.",
                *("data.vocabularies", "training.new_words"),
            )


def _known(shared: SharedWords, words: Vocabularies, folder: Path) -> str:
    counts = (
        f"{len(places.here):,} of {len(vocabulary):,} {side}"
        for side, places, vocabulary in zip(words._fields, shared, words)
    )
    return f"{' and '.join(counts)} words are known to '{folder}'"
