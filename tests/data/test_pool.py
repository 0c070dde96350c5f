# SPDX-License-Identifier: Apache-2.0
"""Work by several processes."""

import signal
from functools import partial

from kvnmt.data.pool import in_order


def test_no_process_hears_an_interrupt_that_is_meant_for_the_program():
    """Each would print a traceback beside the program's one line."""
    blocked = partial(signal.pthread_sigmask, signal.SIG_BLOCK)
    (of_worker,) = in_order(blocked, [[]], workers=1)
    assert signal.SIGINT in of_worker
    assert signal.SIGINT not in blocked([])
