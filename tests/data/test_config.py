# SPDX-License-Identifier: Apache-2.0
"""Numbers that no text can be prepared with are refused by their flag."""

import dataclasses

import pytest

from kvnmt.data.config import DataConfig
from kvnmt.errors import OptionError, check_bounds

LEAST = {
    "min_count": 1,
    "vocabulary_size": 3,
    "subwords": 3,
    "subword_sentences": 1,
    "max_length": 1,
    "max_ratio": 1,
    "workers": 0,
}


@pytest.mark.parametrize(("field", "least"), LEAST.items())
def test_every_number_has_a_least_value(field, least):
    config = dataclasses.replace(DataConfig(), **{field: least})
    check_bounds(config, "data.")
    with pytest.raises(OptionError, match=f"^{field} is .* at least {least}") as error:
        check_bounds(dataclasses.replace(config, **{field: least - 1}), "data.")
    assert error.value.by_flag.startswith(f"--data.{field.replace('_', '-')} is ")


def test_the_defaults_are_allowed():
    check_bounds(DataConfig())
