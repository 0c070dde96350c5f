# SPDX-License-Identifier: Apache-2.0
"""The examples of the README run as they stand."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_notebook_example_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) == 2  # the second needs a trained run
    exec(compile(blocks[0], "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "additive 2" in printed
    assert "kv_memory 2" in printed
