# SPDX-License-Identifier: Apache-2.0
"""Commands know a new mechanism by its file and its line alone."""

import json
import re
from contextlib import ExitStack

from tests.helpers import toy_data
from tests.laws.test_one_file import NAME, NEWCOMERS, listed


def test_the_command_knows_them(kvnmt, tmp_path):
    """All three in one run: listed, trained, read back, translated with, and held."""
    axes = {field: field.replace("_", "-") for field in NEWCOMERS}
    text = toy_data(tmp_path / "text", train=16, valid=4)
    flags = ["--training.epochs", 1, "--training.batch-size", 16]
    flags += ["--training.shapes", 1, "--data.vocabulary", "words"]
    for size in ("embedding", "encoder", "state"):
        flags += [f"--model.{size}", 8]
    for name in ("source", "target", "valid_source", "valid_target"):
        flags += [f"--data.{name.replace('_', '-')}", getattr(text, name)]
    for axis in axes.values():
        flags += [f"--{axis}", NAME]
    own = {
        f"--model.{axis}.{NEWCOMERS[field].option}": 0.75
        for field, axis in axes.items()
    }
    with ExitStack() as all_three:
        for field in NEWCOMERS:
            all_three.enter_context(listed(field, tmp_path))
        told = kvnmt("systems", "--systems", "rnnsearch-star").out.decode()
        assert told.count(f"{NAME} ") == 3
        given = [word for flag in own.items() for word in flag]
        trained = kvnmt("train", tmp_path / "run", *flags, *given)
        assert trained.status == 0, trained.err
        model = json.loads((tmp_path / "run" / "config.json").read_text())["model"]
        for field, newcomer in NEWCOMERS.items():
            chosen = model[field]
            assert chosen["name"] == NAME and chosen[newcomer.option] == 0.75
        translated = kvnmt("translate", tmp_path / "run", given=b"a b\nc\n")
        assert (translated.status, translated.out.count(b"\n")) == (0, 2)
        for flag, newcomer in zip(own, NEWCOMERS.values()):
            refused = kvnmt("train", tmp_path / "other", *flags, flag, newcomer.wrong)
            assert refused.status == 2
            assert re.search(f"{flag} {newcomer.said}", refused.err)
            assert not (tmp_path / "other").exists()
