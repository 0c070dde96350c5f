# SPDX-License-Identifier: Apache-2.0
"""What a launch says."""

from kvnmt.model.config import ModelConfig
from kvnmt.runs import own_code


def told(model: ModelConfig) -> str | None:
    """The digest of its code, as another process would have it."""
    own_code.own_code.cache_clear()
    return own_code.own_code(model)
