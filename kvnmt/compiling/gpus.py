# SPDX-License-Identifier: Apache-2.0
"""What the compiler must know of a GPU that is not there.

Figures are those of the makers' data sheets and of XLA's descriptions of the devices.
The compiler reads them as a `GpuTargetConfigProto` in protobuf's text format.
"""

from typing import NamedTuple


class Gpu(NamedTuple):
    """One kind of GPU."""

    name: str
    capability: int  # of CUDA, major version
    cores: int  # streaming multiprocessors
    units: int  # of float32 in a core
    clock: float  # GHz
    memory: int  # bytes
    bandwidth: int  # of memory, bytes a second
    cache: int  # bytes, level 2
    shared: int  # bytes of a core's shared memory
    block_shared: int  # bytes of it that one block may ask for
    exact: bool = False  # whether instructions of this capability alone are used


V100 = Gpu(
    name="Tesla V100-SXM2-16GB",
    capability=7,
    cores=80,
    units=64,
    clock=1.53,
    memory=16_935_682_048,
    bandwidth=898_048_000_000,
    cache=6_291_456,
    shared=98_304,
    block_shared=98_304,
)
A100 = V100._replace(
    name="NVIDIA A100-SXM4-80GB",
    capability=8,
    cores=108,
    clock=1.41,
    memory=85_100_068_864,
    bandwidth=2_039_040_000_000,
    cache=41_943_040,
    shared=167_936,
    block_shared=166_912,
)
H100 = Gpu(
    name="NVIDIA H100 80GB HBM3",
    capability=9,
    cores=132,
    units=128,
    clock=1.98,
    memory=84_942_979_072,
    bandwidth=3_352_320_000_000,
    cache=52_428_800,
    shared=233_472,
    block_shared=232_448,
    exact=True,
)
GPUS = {
    "v100": V100,
    "a100": A100,
    "a100-40": A100._replace(
        name="NVIDIA A100-SXM4-40GB",
        memory=42_331_013_120,
        bandwidth=1_555_200_000_000,
    ),
    "h100": H100,
    "h200": H100._replace(
        name="NVIDIA H200 141GB HBM3e",
        memory=151_397_597_184,
        bandwidth=4_800_000_000_000,
    ),
    "b200": H100._replace(
        name="NVIDIA B200",
        capability=10,
        cores=148,
        clock=1.965,
        memory=191_514_411_008,
        bandwidth=7_672_320_000_000,
        cache=132_644_864,
    ),
}


def describe(gpu: Gpu) -> str:
    """The description of a GPU that the compiler reads."""
    feature = "ACCELERATED_FEATURES" if gpu.exact else "NONE"
    return f"""\
gpu_device_info {{
  name: "{gpu.name}"
  device_vendor: "NVIDIA Corporation"
  cuda_compute_capability {{ major: {gpu.capability} feature_extension: {feature} }}
  core_count: {gpu.cores}
  fpus_per_core: {gpu.units}
  clock_rate_ghz: {gpu.clock}
  device_memory_size: {gpu.memory}
  memory_bandwidth: {gpu.bandwidth}
  l2_cache_size: {gpu.cache}
  shared_memory_per_core: {gpu.shared}
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {gpu.block_shared}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  device_address_bits: 64
  driver_version: "12.9.0"
  runtime_version: "12.9.0"
  compile_time_toolkit_version: "12.9.0"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{gpu.name}"
"""
