# SPDX-License-Identifier: Apache-2.0
"""Numbers that no text can be prepared with are refused by their flag."""

import dataclasses

import pytest

from kvnmt.data.config import DataConfig
from kvnmt.errors import OptionError
from kvnmt.fields import check_fields

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
    check_fields(config, "data.")
    with pytest.raises(OptionError, match=f"^{field} is .* at least {least}") as error:
        check_fields(dataclasses.replace(config, **{field: least - 1}), "data.")
    assert error.value.by_flag.startswith(f"--data.{field.replace('_', '-')} is ")


def test_the_defaults_are_allowed():
    check_fields(DataConfig())
