# SPDX-License-Identifier: Apache-2.0
"""What cannot be searched for, or is no word, is refused everywhere."""

import dataclasses
import math
from typing import Any

import pytest

from kvnmt.data.vocabulary import EOS
from kvnmt.errors import OptionError, UserError
from kvnmt.inference.ensemble import ensemble
from kvnmt.inference.program import compiled_search, program
from kvnmt.inference.score import score
from kvnmt.inference.translate import translate, translate_nbest
from tests.inference.translating import BASE, GREEDY, WORDS


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"beam": 0}, "beam is 0 but must be at least 1 and"),
        ({"alpha": -1.0}, "alpha is -1 but must be at least 0 and"),
        ({"alpha": 8.0}, "alpha is 8 but must be at least 0 and at most 7"),
        ({"top_p": 1.5}, "top_p is 1.5 but must be at least 0.001 and at most 1."),
        ({"temperature": math.nan}, "temperature is nan but must be a finite number"),
        ({"max_length": 0}, "max_length is 0 but must be at least 1 and"),
        (
            {"nbest": 3},
            "nbest is 3 but a beam of 2 holds no more than that; widen beam or "
            "lower nbest.",
        ),
    ],
)
def test_what_cannot_be_searched_for_is_refused_everywhere(talker, changes, said):
    """By the names of fields, which the command line turns into those of flags."""
    model, params = talker
    config = dataclasses.replace(BASE, **changes)
    everywhere = [
        lambda: translate(model, params, [[3]], config),
        lambda: translate_nbest(model, params, [[3]], config),
        lambda: compiled_search(model, config),
        lambda: compiled_search(ensemble((model, model)), config),
        lambda: program(model, config),
    ]
    for search in everywhere:
        with pytest.raises(OptionError) as error:
            search()
        assert str(error.value).startswith(said)
        for name in (*changes, "beam") if "beam." in said else changes:
            said_of_flag = f"--search.{name.replace('_', '-')}"
            assert said_of_flag in error.value.by_flag


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([3, WORDS], f"holds the id {WORDS}; the vocabulary has ids up to {WORDS - 1}"),
        ([-1, 3], "holds the id -1;"),
        ([3, EOS, 4], "holds the id 0; that is the end of sentence"),
        ("a b", "is a list of ids; encode text"),
        ([2.7], "is a list of ids; encode text"),
        ([10**30], "is a list of ids; encode text"),
    ],
)
def test_ids_that_are_no_words_are_refused_everywhere(talker, ids, said):
    """An array would be indexed with them, and something would come out."""
    model, params = talker
    good, bad = [[3], [4, 5]], [[3], ids]
    two: Any = (params, params)
    for what, work in {
        "source sentence": lambda: translate(model, params, bad, GREEDY),
        "source sentence ": lambda: translate(ensemble((model, model)), two, bad),
        "prefix": lambda: translate(model, params, good, GREEDY, prefixes=bad),
        "source sentence  ": lambda: score(model, params, bad, good),
        "target sentence": lambda: score(model, params, good, bad),
    }.items():
        with pytest.raises(UserError, match=f"{what.strip()}.* {said}"):
            work()


def test_lists_that_belong_together_are_as_long(talker):
    with pytest.raises(UserError, match="^there are 2 sentences but 1 prefixes"):
        translate(*talker, [[3], [4]], GREEDY, prefixes=[[]])
    with pytest.raises(UserError, match="^there are 1 source sentences but 2 target"):
        score(*talker, [[3]], [[3], [4]])
