# SPDX-License-Identifier: Apache-2.0
"""The ``kvnmt`` command, one file for each group of commands."""

from kvnmt.cli.main import main

__all__ = ["main"]
