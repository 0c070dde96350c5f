# SPDX-License-Identifier: Apache-2.0
"""Devices to compile for by name; none of them need be there.

The compilers come with what the extras install: libtpu, and XLA's plugin for CUDA with
NVIDIA's own libraries. A TPU describes itself. A GPU is described to the compiler by
figures of `kvnmt.compiling.gpus`.
"""

import contextlib
import importlib.util
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
from jax.experimental import topologies

from kvnmt.compiling.gpus import GPUS, describe
from kvnmt.errors import UserError, first_line, unknown_name
from kvnmt.training.device_memory import host_memory

Device: TypeAlias = Any  # jax.Device, which is no class for those who check types

GIB = 2**30
# Of a GPU's memory JAX takes this share, unless XLA_PYTHON_CLIENT_MEM_FRACTION says
# otherwise.
SHARE = 0.75


class Tpu(NamedTuple):
    """A generation of TPUs."""

    host: str  # chips of the smallest slice
    memory: float  # GiB of one device that a program may use, by its compiler
    chip: str = "default"  # its setting for libtpu


TPUS = {
    "v4": Tpu("2x2x1", 30.75, chip="megacore"),  # both cores as one device
    "v5e": Tpu("2x2", 15.75),
    "v5p": Tpu("2x2x1", 95.74),
    "v6e": Tpu("2x2", 31.25),
    "tpu7x": Tpu("2x2x1", 94.75),
}

# What libtpu is told, which looks for a host and a pod around it and keeps others out.
ALONE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",  # any; programs do not depend on it
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


class Target(NamedTuple):
    """Devices that a program is compiled for."""

    name: str  # as it is typed
    kind: str  # of one device, in its maker's words
    devices: list[Device]
    memory: int | None  # bytes of one device that programs may use; None: not known
    options: dict[str, bool]  # of the compiler


def target(name: str) -> Target:
    """The devices of a name: ``cpu``, ``gpu:h100``, ``gpu:h100:8``, ``tpu:v5e:4x4``.

    From then on JAX looks for no device but the CPU, since plugins fail where theirs
    are not. Where JAX was in use before, it may be too late.

    Raises:
        UserError: There are none of that name, or what compiles for them is not
            installed.
    """
    platform, _, rest = name.partition(":")
    kinds = {"cpu": _cpu, "gpu": _gpu, "tpu": _tpu}
    if platform not in kinds:
        raise unknown_name("platform", platform, kinds)
    kind, _, size = rest.partition(":")
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_platforms", "cpu")
    return kinds[platform](name, kind, size)


def _cpu(name: str, kind: str, size: str) -> Target:
    if kind or size:
        raise UserError(f"'{name}' names no devices; write cpu, this machine's.")
    device = jax.devices("cpu")[0]
    return Target(name, device.device_kind, [device], host_memory(), {})


def _gpu(name: str, kind: str, size: str) -> Target:
    if kind not in GPUS:
        raise unknown_name("GPU", kind, GPUS)
    size = size or "1"
    if not re.fullmatch(r"[1-9]\d{0,3}", size):
        raise UserError(f"'{name}' must end in a number of devices: gpu:{kind}:8.")
    if not any(map(_installed, ("jax_cuda12_plugin", "jax_cuda13_plugin"))):
        raise _missing("an NVIDIA GPU", "XLA's plugin for CUDA", "gpu")
    gpu = GPUS[kind]
    devices = _devices(
        "GPUs",
        lambda: topologies.get_topology_desc(
            platform="cuda",
            topology=f"1x1x{size}",  # slices x hosts x devices of a host
            target_config=describe(gpu),
        ),
    )
    # Without a device no kernel can be timed, and the first one of Triton's for matrix
    # products may not even be possible.
    options = {"xla_gpu_enable_triton_gemm": False}
    return Target(name, gpu.name, devices, int(SHARE * gpu.memory), options)


def _tpu(name: str, kind: str, size: str) -> Target:
    if kind not in TPUS:
        raise unknown_name("TPU", kind, TPUS)
    if not re.fullmatch(r"(\d+x)*\d+", size or "1"):
        raise UserError(f"'{name}' must end in the chips of a slice: tpu:v5e:4x4.")
    if not _installed("libtpu"):
        raise _missing("a TPU", "libtpu", "tpu")
    for variable, value in ALONE.items():
        os.environ.setdefault(variable, value)
    alone = size in ("", "1")  # a host is the least that libtpu knows
    chips = TPUS[kind].host if alone else size
    devices = _devices(
        "TPUs",
        lambda: topologies.get_topology_desc(
            platform="tpu",
            topology_name=f"{kind}:{chips}",
            chip_config_name=TPUS[kind].chip,
        ),
    )
    devices = devices[:1] if alone else devices
    memory = int(TPUS[kind].memory * GIB)
    return Target(name, devices[0].device_kind, devices, memory, {})


def _devices(
    what: str, make: Callable[[], topologies.TopologyDescription]
) -> list[Device]:
    try:
        return list(make().devices)
    except (RuntimeError, NotImplementedError) as error:
        raise UserError(
            f"the compiler for {what} does not start ({first_line(error)}); ask for "
            "devices that there are, in a process that did nothing with JAX before."
        ) from None


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _missing(device: str, package: str, extra: str) -> UserError:
    return UserError(
        f"compiling for {device} needs {package}, which is not installed; install "
        f"kvnmt with its extra '{extra}' (pip install '.[{extra}]'), which needs no "
        "device."
    )
