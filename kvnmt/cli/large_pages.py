# SPDX-License-Identifier: Apache-2.0
"""Large pages of memory, for a process that trains on a CPU.

A step goes over all parameters, moments and gradients. A processor has the addresses of
few pages at hand: with pages of 2 MiB instead of 4 KiB it takes up to an eighth less
time. Linux gives them where a program asks, and the GNU C library's allocator asks
where ``GLIBC_TUNABLES`` says so before the process begins. So the process begins anew.
"""

import os
import platform
import sys
from contextlib import suppress
from pathlib import Path

VARIABLE, ASKING = "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
FIRST = (2, 35)  # version of the library that knows it


def use_large_pages() -> None:
    """Begins this process anew with large pages; before anything heavy is imported.

    This does nothing if the variable is set, even to nothing, or if pages cannot be
    asked for, or if the program came from standard input or a notebook, which could not
    be read again. Process number, files and arguments stay.
    """
    if VARIABLE in os.environ or not _can_ask() or not _can_begin_anew():
        return
    os.environ[VARIABLE] = ASKING
    with suppress(OSError):  # goes on with pages as they are
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _can_begin_anew() -> bool:
    """Whether the program is a file or in the arguments."""
    file = getattr(sys.modules["__main__"], "__file__", "")
    return os.path.exists(file) or "-c" in sys.orig_argv


def _can_ask() -> bool:
    """Whether Linux gives large pages to who asks, and the library can."""
    name, version = platform.libc_ver()
    numbers = tuple(int(part) for part in version.split(".") if part.isdecimal())
    try:
        given = SETTING.read_text()
    except OSError:  # another system
        return False
    return name == "glibc" and numbers >= FIRST and "[madvise]" in given
