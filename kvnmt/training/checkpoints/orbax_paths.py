# SPDX-License-Identifier: Apache-2.0
"""Lets orbax find its files in a folder of any name, also one with brackets.

Orbax looks for what the processes wrote by the `glob` of a path of etils, which reads
the name of the folder as a pattern. In ``lr[0.1]`` it finds nothing and merges nothing,
without an error.
"""

import glob
from typing import Any

from etils.epath import gpath

_Path: Any = gpath._GPath
_plain_glob = _Path.glob


def _glob(path: Any, pattern: str) -> Any:
    return _plain_glob(type(path)(glob.escape(str(path))), pattern)


def find_in_any_folder() -> None:
    """Makes such a path find what lies in it, in this process."""
    _Path.glob = _glob
