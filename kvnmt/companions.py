# SPDX-License-Identifier: Apache-2.0
"""Processes that work together: how they join, and how all end when one has failed.

JAX notices only the failure of a machine. A process that waits on a device for one that
never comes waits for minutes and is then aborted with a message of C++. Here a process
that fails writes this into the store that all share. The others look there in a thread
and end soon after. Before processes meet on devices, they also compare their data in
the store, where waiting has no short time limit.
"""

import atexit
import itertools
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import jax
from jax._src import distributed  # no public name leads to the store of all processes

from kvnmt.errors import (
    StoppedError,
    UserError,
    first_line,
    lacks_device,
    reason_of,
    short_of_memory,
    tell,
)

WAIT = 300  # seconds for all processes to come
LOOK = 0.5  # seconds between two looks whether another has failed
GRACE = 30.0  # seconds that the others have to end by themselves, once one has failed
DAY = 86_400_000  # milliseconds; text may take one process longer than another
ANOTHER = "another process has failed; it says why."
FAILED, GONE = "kvnmt/failed", "kvnmt/gone"
_numbers = itertools.count()  # the same in all processes, which do the same


def join(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> None:
    """Joins the processes that train together; before anything else is done with JAX.

    Args:
        coordinator: ``host:port`` of the first process; None: found, as all else, from
            the environment of SLURM, Open MPI 4 or a TPU pod.
        processes: How many there are.
        process: Which one this is, from 0.

    Raises:
        UserError: They cannot be found, or do not all come.
    """
    if coordinator is not None:
        _check_place(coordinator, process)
    late = threading.Timer(WAIT, _give_up)
    late.daemon = True
    late.start()
    try:
        # Its service would take the signal that ends a process, and do nothing.
        jax.config.update("jax_enable_preemption_service", False)
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            local_device_ids=_own_devices(process is not None),
            initialization_timeout=2 * WAIT,
        )
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"the processes cannot be joined ({first_line(error)}); give --coordinator "
            "HOST:PORT, --processes and --process, or start them by SLURM, Open MPI 4 "
            "or on a TPU pod."
        ) from None
    finally:
        late.cancel()


def store() -> Any:
    """What all processes write to and read."""
    return distributed.global_state.client


@contextmanager
def together() -> Iterator[None]:
    """Within this context all processes end when one of them fails.

    The one that fails ends with its message; for a user's mistake the status is 2.
    """
    if distributed.global_state.num_processes == 1:  # JAX would look for devices
        yield
        return
    ended = threading.Event()
    threading.Thread(target=_watch, args=(ended,), daemon=True).start()
    try:
        yield
    except StoppedError:  # all leave by themselves
        raise
    except BaseException as error:
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
        # A device that reports a lost process only repeats a known failure.
        is_echo = isinstance(error, Exception) and bool(_named(FAILED))
        _write(FAILED)
        is_told = short_of_memory(error) or lacks_device(error)
        if is_echo or isinstance(error, UserError) or is_told:
            status = 2
        # Before JAX waits there for the others to come to the end.
        atexit.register(_leave, status)
        if is_echo and not isinstance(error, UserError):
            raise UserError(ANOTHER) from None
        raise
    finally:
        ended.set()  # JAX takes the store away when Python ends


def check_alike(what: str) -> None:
    """Waits for all processes, however long they need, and compares what they have.

    Args:
        what: Identifies what must be equal in all: configs, vocabularies, texts.

    Raises:
        UserError: This process, or another, has something else than the first one.
    """
    said, own = gathered(what), number()[0]
    if said[own] != said[0]:
        raise UserError(
            "this process has other choices or other text than the first; start all "
            "with the same flags, and give them the same files."
        )
    if len({*said}) > 1:
        raise UserError(ANOTHER)


def number() -> tuple[int, int]:
    """Which process this is, and of how many; unlike JAX it starts no device."""
    joined = distributed.global_state
    return joined.process_id, joined.num_processes


def gathered(text: str) -> list[str]:
    """Waits for all processes, however long they need; what each says, in order."""
    own, count = number()
    if count == 1:
        return [text]
    place = f"kvnmt/said/{next(_numbers)}"
    store().key_value_set(f"{place}/{own:09}", text)
    store().wait_at_barrier(place, DAY)
    return [said for _, said in sorted(store().key_value_dir_get(place))]


def _watch(ended: threading.Event) -> None:
    """Ends this process some time after another one has failed, unless it has ended."""
    while not _named(FAILED):
        if ended.wait(LOOK):
            return
    if ended.wait(GRACE):
        return
    tell(f"kvnmt: {ANOTHER}")
    _leave(2)


def _leave(status: int) -> None:
    """Ends this process at once; the first, which has the store, as the last."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    _write(GONE)
    end = time.monotonic() + 2 * GRACE
    joined = distributed.global_state
    while joined.process_id == 0 and time.monotonic() < end:
        if len(_named(GONE)) == joined.num_processes:
            break
        time.sleep(LOOK)
    os._exit(status)


def _write(folder: str) -> None:
    number = distributed.global_state.process_id
    store().key_value_set(f"{folder}/{number}", "", allow_overwrite=True)


def _named(folder: str) -> list[Any]:
    return store().key_value_dir_get(folder)


def _own_devices(by_hand: bool) -> list[int] | None:
    """Those of its machine that a process takes, none for all; None: as JAX has it.

    Under SLURM or Open MPI that is the one with the number that the process has there;
    but where a process is shown one GPU alone, as by ``--gpus-per-task=1``, that is 0.
    """
    tasks = os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    tasks = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", tasks)
    alone = by_hand or re.fullmatch(r"1(\(x\d+\))?", tasks)  # as 1(x4): on each of 4
    if "JAX_LOCAL_DEVICE_IDS" in os.environ:
        return None
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not alone and shown and "," not in shown:
        return [0]
    return [] if alone else None


def _give_up() -> None:
    """Ends this process with a message; JAX would end it without one."""
    tell(
        f"not all processes came within {WAIT} s; check --coordinator, --processes and "
        "--process, and that all were started and can reach the first."
    )
    os._exit(2)


def _check_place(coordinator: str, process: int | None) -> None:
    """Refuses mistakes for which JAX has no message: no address, a port in use."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(
            f"--coordinator is '{coordinator}'; give HOST:PORT, a name or an address "
            "and a number below 65536."
        )
    _find(host.strip("[]"), 0 if process == 0 else WAIT)
    if process == 0:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("", int(port)))
            except OSError as error:
                raise UserError(
                    f"port {port} of --coordinator cannot be listened to here: "
                    f"{reason_of(error)}; give another one."
                ) from None


def _find(host: str, seconds: float) -> None:
    """Waits until a host is known: its name may come with it."""
    until, told = time.monotonic() + seconds, False
    while True:
        try:
            socket.getaddrinfo(host, None)
            return
        except (OSError, UnicodeError) as error:
            if time.monotonic() < until and not isinstance(error, UnicodeError):
                if not told:
                    tell(f"'{host}' of --coordinator is not known yet; waiting for it")
                told = True
                time.sleep(1)
                continue
            why = reason_of(error)
            raise UserError(
                f"'{host}' of --coordinator is not known here ({why}); check the name, "
                "or give an address."
            ) from None
