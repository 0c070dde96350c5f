# SPDX-License-Identifier: Apache-2.0
"""Compiled programs are kept for the next run, in the user's folder of caches.

A cache can only save time: where the default folder cannot be made or written, there
is none, and what cannot be read in it is compiled anew.
"""

import contextlib
import hashlib
import os
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import jax

from kvnmt.companions import gathered, number
from kvnmt.console import say
from kvnmt.errors import UserError
from kvnmt.files import check_local, digest, write_whole
from kvnmt.training.shared_folder import blind_to

VARIABLE = "KVNMT_PROGRAM_CACHE"  # a folder, or NONE
NONE = "none"
MOST_BYTES = 2 * 1024**3  # of all programs that are kept
INFO = Path("/proc/cpuinfo")
LEFT = 3600.0  # seconds after which nobody writes half a program any more
LOOK_FOR = 2.0  # seconds for what the first process writes there
TRAITS = (b"flags", b"Features", b"model", b"CPU ")  # lines that do not change


def keep_programs(folder: str | None = None) -> None:
    """Lets JAX keep what it compiles; before anything else is done with JAX.

    Where no folder is named here, ``JAX_COMPILATION_CACHE_DIR`` counts, then
    ``KVNMT_PROGRAM_CACHE``, then `default_folder`.

    Args:
        folder: Where; ``"none"`` for nowhere.

    Raises:
        UserError: A folder that is named cannot be made or written, or is an address.
    """
    named = "--program-cache"
    if folder is None:
        if jax.config.jax_compilation_cache_dir:  # pyright: ignore
            return
        named, folder = VARIABLE, os.environ.get(VARIABLE)
    programs = None
    if folder != NONE:
        if folder:
            check_local(Path(folder))
        programs = writable(folder or default_folder())
        if folder and programs is None:
            raise UserError(
                f"{named} names '{folder}' for compiled programs, which cannot be made "
                f"or written; name another folder, or '{NONE}'."
            )
    jax.config.update("jax_compilation_cache_dir", programs and str(programs))
    if programs is None:
        return
    # Many small programs take longer than a few large ones.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation")
    if jax.config.jax_compilation_cache_max_size == -1:  # pyright: ignore
        with contextlib.suppress(ImportError):  # no public name leads there
            from jax._src.lru_cache import LRUCache

            LRUCache.put = _put
    prune(programs.parent)


def agree_on_programs() -> None:
    """Keeps no programs of several processes that do not find the same ones.

    Once they have joined, and before one of them compiles. JAX lets the first process
    alone write. GPUs measure kernels together, so that who compiles would wait for who
    reads the program, for a day.
    """
    own, count = number()
    kept = jax.config.jax_compilation_cache_dir  # pyright: ignore
    base = None if "://" in str(kept) else kept  # JAX writes to buckets, too
    known = kept_names(base) if base else str(kept)
    alike = count == 1 or len({*gathered(known)}) == 1
    if alike and not (base and blind_to(Path(base), LOOK_FOR)):
        return
    jax.config.update("jax_compilation_cache_dir", None)
    if own == 0:
        say(
            "compiled programs are not kept: the processes do not find the same ones; "
            "name a folder that all share with --program-cache"
        )


def kept_names(base: str) -> str:
    """Stands for the names of the programs in a folder, which is made."""
    with contextlib.suppress(OSError):
        os.makedirs(base, exist_ok=True)
        names = (n for n in os.listdir(os.fsencode(base)) if n.endswith(b"-cache"))
        return digest(b"\n".join(sorted(names)))
    return ""


def _put(self: Any, key: str, value: bytes) -> None:
    """Keeps a program whole, or not at all.

    JAX writes in place and replaces nothing: what a kill or a full disk has cut would
    be compiled anew at every start.
    """
    path = Path(str(self.path), f"{key}-cache")
    write_whole(path, value, f"{path.name}.{os.getpid()}.new", sync=False)


def default_folder() -> str:
    """Where programs are kept if nothing else is said, by the rules of XDG."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    caches = base if os.path.isabs(base) else "~/.cache"
    return f"{caches}/kvnmt/programs"


def machine_folder(base: Path) -> Path:
    """The part of a cache that holds programs for this kind of processor.

    JAX tells programs apart by everything else that they depend on.
    """
    text = INFO.read_bytes() if INFO.exists() else platform.processor().encode()
    traits = {line for line in text.splitlines() if line.startswith(TRAITS)}
    traits.add(platform.machine().encode())
    digest = hashlib.blake2b(b"\n".join(sorted(traits)), digest_size=6).hexdigest()
    return base / f"machine-{digest}"


def prune(base: Path, most: int = MOST_BYTES) -> None:
    """Deletes the programs used longest ago until the rest is not too much.

    Args:
        base: The cache, with a folder for every kind of processor.
        most: Bytes that may be kept.
    """
    for part in base.glob("machine-*/*.new"):  # of processes that were killed
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > LEFT:
                part.unlink()
    programs = []
    for path in base.glob("machine-*/*-cache"):
        with contextlib.suppress(OSError):  # another process deletes too
            status = path.stat()
            used = max(status.st_atime, status.st_mtime)
            programs.append((used, status.st_size, path))
    total = sum(size for _, size, _ in programs)
    for _, size, path in sorted(programs):
        if total <= most:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def writable(base: str) -> Path | None:
    """Makes the part of a cache for this machine; None if it cannot be written."""
    try:
        folder = machine_folder(Path(base).expanduser().absolute())
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError, ValueError):  # a user may have no home
        return None
    return folder if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else None
