# SPDX-License-Identifier: Apache-2.0
"""Tests. Python keeps what it compiles of them, also where it is told to keep nothing.

Reading all files takes half as long with that, and so do imports of what tests start.
"""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
