# SPDX-License-Identifier: Apache-2.0
"""What tells the figures of one row from those of another: its config and its text."""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from kvnmt import attention, decoder, target_context
from kvnmt.console import say
from kvnmt.data.sources import open_text
from kvnmt.data.vocabularies import digests, load_vocabularies
from kvnmt.errors import UserError
from kvnmt.files import digest, digest_of
from kvnmt.model.config import ModelConfig
from kvnmt.runs.config import Experiment, leaves, to_plain
from kvnmt.runs.directory import has_checkpoint, load_experiment
from kvnmt.runs.train import as_kept

# Fields of a config that name files of text.
FILES = (
    *("source", "target", "valid_source", "valid_target"),
    *("pairs", "valid_pairs", "links", "codes", "target_codes"),
)
VECTORS = "source_vectors", "target_vectors"  # the same, of how training begins
# Of a config, what says where things lie and changes no figure.
PLACES = (*FILES, "tfds_folder", "vocabularies", "cache", "workers")
# What is written meanwhile, and how much at a time: these change no figure, either.
INERT = {
    *(f"training.{name}" for name in ("save_minutes", "save_every", "log_every")),
    *("training.profile", "search.batch_size", "search.batch_tokens"),
}
MECHANISMS = attention.Options, decoder.Options, target_context.Options
SCHEME = "d-"  # begins a digest of what differs from defaults
MOST_NAMED = 6  # fields in a sentence
MISSING = object()


def config_digest(experiment: Experiment, *, seed: bool = True) -> str:
    """A digest of a config, without the places of its files and what is `INERT`.

    Fields at their defaults are left out, so that a field that a later version adds
    changes no digest. If a default changes, `SCHEME` must, too; a test checks that.

    Args:
        experiment: The config.
        seed: Whether two seeds are two configs.
    """
    told = differences(experiment)
    if not seed:
        told.pop("training.seed", None)
    text = json.dumps(told, sort_keys=True)
    return SCHEME + digest(text.encode(), 32)[:12]


def differences(experiment: Experiment) -> dict[str, Any]:
    """Fields that differ from the defaults, or from those of their mechanism, by path.

    The names of mechanisms are always among them.
    """
    model = experiment.model
    own = {
        field.name: type(value)()
        for field in fields(ModelConfig)
        if isinstance(value := getattr(model, field.name), MECHANISMS)
    }
    default = _leaves(Experiment(model=replace(ModelConfig(), **own)))
    return {
        path: value
        for path, value in _leaves(experiment).items()
        if default.get(path, MISSING) != value
        or (path.startswith("model.") and path.endswith(".name"))
    }


def check_same_config(noted: str | None, now: Experiment, folder: Path) -> None:
    """Makes sure that a result is that of a config.

    A digest of a former version says little once there are more fields. Then the config
    in the run directory counts; without one, the result is taken, and that is said.

    Args:
        noted: Digest of the config that was measured; None: it was not noted.
        now: The config of the row.
        folder: Where the result stands.

    Raises:
        UserError: It is that of another config; the fields are named, if they can be.
    """
    if noted in (None, config_digest(now), _former_digest(now)):
        return
    others = _others(now, folder)
    if others is None and not str(noted).startswith(SCHEME):
        _say_once(
            f"'{folder}' was measured by a former version and has no config.json: "
            "whether its configuration is this one cannot be told."
        )
    elif others is None or others or str(noted).startswith(SCHEME):
        told = f" ({'; '.join(others)})" if others else ""
        raise UserError(
            f"the run in '{folder}' was measured with another configuration than "
            f"this{told}; choose another --workdir."
        )


def check_same_vocabularies(now: Experiment, folder: Path) -> None:
    """Makes sure that a run has the vocabularies that its row is to have.

    Where they lie is no part of a digest. A row without a run directory is taken.

    Args:
        now: The config of the row.
        folder: Run directory.

    Raises:
        UserError: It has others.
    """
    try:
        before = load_experiment(folder).data.vocabularies
    except UserError:
        return
    place = now.data.vocabularies
    alike = (before is None) == (place is None)
    if alike and place is not None:
        with suppress(UserError):  # what cannot be read now cannot be compared
            given, own = load_vocabularies(place), load_vocabularies(folder)
            alike = digests(given) == digests(own)
    if not alike:
        raise UserError(
            f"the run in '{folder}' has other vocabularies than this row; choose "
            "another --workdir."
        )


def agree(was: str, now: str) -> bool:
    """Whether two rows may be one, by what tells each apart; see `check_same_rows`."""
    pairs = zip(was.split(":"), now.split(":"))
    return all("" in pair or pair[0] == pair[1] for pair in pairs)


def check_same_rows(
    noted: dict[str, str] | None, now: dict[str, str], folder: Path
) -> None:
    """Makes sure that the rows that a result came from are those that are there.

    Args:
        noted: Their names, and what tells each one apart, with colons between: digests
            of its config, its text and its code, and its loss; what it has not is
            empty. Former versions noted less. None: one noted no rows.
        now: The same, of the rows that are there; empty, too, of one without a result.
        folder: Where the result stands.

    Raises:
        UserError: There are others, or one was trained again.
    """
    others = [
        name
        for name, told in now.items()
        if noted is not None and (name not in noted or not agree(noted[name], told))
    ]
    if others:
        raise UserError(
            f"'{folder}' was measured before {' and '.join(map(repr, others))} became "
            "what it is now; delete that folder to have it made again, or choose "
            "another --workdir."
        )


def check_begun_alike(now: Experiment, folder: Path) -> None:
    """Makes sure that a run that was begun may go on as this row's.

    Training itself lets some fields change when it goes on, such as the rate: that
    would be the result of neither config.

    Raises:
        UserError: It has a checkpoint of another config; the fields are named.
    """
    others = _others(now, folder) if has_checkpoint(folder) else None
    if others:
        raise UserError(
            f"the run in '{folder}' was begun with another configuration than this "
            f"({'; '.join(others)}); put that back, or choose another --workdir."
        )


def text_digest(paths: Iterable[Path]) -> str | None:
    """Tells texts apart by their contents; None: there are none, or one is missing.

    Args:
        paths: The files in a fixed order.
    """
    try:
        parts = [_digest_of(path) for path in paths]
    except OSError:
        return None
    return digest(" ".join(parts).encode(), 32)[:12] if parts else None


def text_files(experiment: Experiment) -> list[Path]:
    """The files that a config trains and validates on."""
    named = [getattr(experiment.data, name) for name in FILES]
    named += [getattr(experiment.training, name) for name in VECTORS]
    return [*(path for path in named if path is not None), *_of_dataset(experiment)]


def check_same_text(noted: str | None, now: str | None, folder: Path) -> None:
    """Makes sure that a result is that of a text.

    Args:
        noted: Digest of the text that was measured on; None: it was not noted.
        now: Digest of the text of the row; None: it cannot be read.
        folder: Where the result stands.

    Raises:
        UserError: It is that of another text.
    """
    if None not in (noted, now) and noted != now:
        raise UserError(
            f"the run in '{folder}' was measured on other text than this; choose "
            "another --workdir."
        )


def _of_dataset(experiment: Experiment) -> Iterable[Path]:
    """The files of a prepared dataset, of both its splits."""
    data = experiment.data
    if data.tfds is None:
        return ()
    try:
        return open_text(data, "train").files
    except UserError:
        # It is not there, so that nothing is told of the text.
        return ((data.tfds_folder or Path()) / data.tfds / "dataset_info.json",)


def _leaves(experiment: Experiment) -> dict[str, Any]:
    """What may change a figure, by path."""
    plain = leaves(_plain(experiment))
    return {path: value for path, value in plain.items() if path not in INERT}


def _plain(experiment: Experiment) -> dict[str, Any]:
    """A config as plain data, without places."""
    plain = to_plain(experiment)
    for name in PLACES:
        del plain["data"][name]
    del plain["training"]["workers"]
    plain["training"]["warm_start"] = experiment.training.warm_start is not None
    for name in VECTORS:
        if plain["training"][name] is not None:
            plain["training"][name] = True
    return plain


def _former_digest(experiment: Experiment) -> str:
    """The digest of all fields, as a former version noted it."""
    plain = _plain(experiment)
    return digest(json.dumps(plain, sort_keys=True).encode(), 32)[:12]


def _others(now: Experiment, folder: Path) -> list[str] | None:
    """What differs from the config in a run directory; None: it has none."""
    try:
        before = _leaves(load_experiment(folder))
    except UserError:
        return None
    after = _leaves(as_kept(now))
    paths = [p for p in before | after if before.get(p) != after.get(p)]
    told = [f"{p} {before.get(p)}, now {after.get(p)}" for p in paths[:MOST_NAMED]]
    more = len(paths) - len(told)
    return [*told, f"{more} more"] if more else told


@cache
def _say_once(sentence: str) -> None:
    say(sentence)


def _digest_of(path: Path) -> str:
    """The digest of a file; it is read again only if it was written again."""
    about = path.stat()
    return _digest_of_version(path.resolve(), about.st_size, about.st_mtime_ns)


@cache
def _digest_of_version(path: Path, size: int, changed: int) -> str:
    return digest_of(path, 32)
