# SPDX-License-Identifier: Apache-2.0
"""Work by several processes."""

import os
import signal
import subprocess
import sys
from functools import partial

import pytest

from kvnmt.data.pool import in_order
from kvnmt.errors import OptionError

WORKER = """
import os, time
from kvnmt.data.pool import in_order

def work(item):
    print(os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    list(in_order(work, [1], workers=1))
"""


def test_no_worker_outlives_a_parent_that_is_killed(tmp_path):
    (tmp_path / "work.py").write_text(WORKER)
    place = {"PYTHONPATH": f"{tmp_path}:{os.getcwd()}"}
    with subprocess.Popen(
        [sys.executable, "-m", "work"],
        env=os.environ | place,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout
        assert int(parent.stdout.readline())
        parent.kill()
        parent.communicate(timeout=30)  # what it prints ends with the worker


def test_a_worker_that_dies_is_told():
    with pytest.raises(OptionError, match="prepares text died.* data.workers"):
        list(in_order(os._exit, [1], workers=1))


def test_few_items_are_read_ahead():
    read = []
    items = (read.append(n) or n for n in range(100))
    results = in_order(abs, items, workers=1)
    assert next(results) == 0
    assert len(read) <= 3
    results.close()


def test_no_process_hears_an_interrupt_that_is_meant_for_the_program():
    """Each would print a traceback beside the program's one line."""
    blocked = partial(signal.pthread_sigmask, signal.SIG_BLOCK)
    (of_worker,) = in_order(blocked, [[]], workers=1)
    assert signal.SIGINT in of_worker
    assert signal.SIGINT not in blocked([])
