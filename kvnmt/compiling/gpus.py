# SPDX-License-Identifier: Apache-2.0
"""What the compiler must know of a GPU that is not there.

Figures are those of the makers' data sheets and of XLA's descriptions of the devices;
the memory of smaller cards is what CUDA shows their users.
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
    minor: int = 0  # version of the capability
    threads: int = 2048  # that a core holds


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
A6000 = Gpu(
    name="NVIDIA RTX A6000",
    capability=8,
    cores=84,
    units=128,
    clock=1.8,
    memory=51_041_271_808,
    bandwidth=768_096_000_000,
    cache=6_291_456,
    shared=102_400,
    block_shared=101_376,
    minor=6,
    threads=1536,
)
RTX_4090 = A6000._replace(
    name="NVIDIA GeForce RTX 4090",
    cores=128,
    clock=2.52,
    memory=24_217 * 2**20,
    bandwidth=1_008_000_000_000,
    cache=75_497_472,
    minor=9,
)
GPUS = {
    "t4": V100._replace(
        name="Tesla T4",
        cores=40,
        clock=1.59,
        memory=15_102 * 2**20,
        bandwidth=320_000_000_000,
        cache=4_194_304,
        shared=65_536,
        block_shared=65_536,
        minor=5,
        threads=1024,
    ),
    "rtx3090": A6000._replace(
        name="NVIDIA GeForce RTX 3090",
        cores=82,
        clock=1.695,
        memory=24_268 * 2**20,
        bandwidth=936_000_000_000,
    ),
    "rtx4090": RTX_4090,
    "a10g": A6000._replace(
        name="NVIDIA A10G",
        cores=80,
        clock=1.71,
        memory=22_587 * 2**20,
        bandwidth=600_000_000_000,
    ),
    "a6000": A6000,
    "l4": RTX_4090._replace(
        name="NVIDIA L4",
        cores=58,
        clock=2.04,
        memory=22_566 * 2**20,
        bandwidth=300_000_000_000,
        cache=50_331_648,
    ),
    "l40s": RTX_4090._replace(
        name="NVIDIA L40S",
        cores=142,
        memory=45_589 * 2**20,
        bandwidth=864_000_000_000,
        cache=100_663_296,
    ),
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
  cuda_compute_capability {{
    major: {gpu.capability} minor: {gpu.minor} feature_extension: {feature}
  }}
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
  threads_per_core_limit: {gpu.threads}
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
