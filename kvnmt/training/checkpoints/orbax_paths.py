# SPDX-License-Identifier: Apache-2.0
"""Orbax finds its files in a folder of any name, one with brackets, too.

It looks for what the processes wrote by `glob` of a path of etils, which takes the name
of the folder for a pattern. Of ``lr[0.1]`` it finds nothing, merges nothing, and says
nothing.
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
