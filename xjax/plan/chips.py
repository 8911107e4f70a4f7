"""Contains what devices have: memory, peak rates, links, and their compilers.

The sources are NVIDIA's data sheets, the pages of Google's TPUs such as
https://cloud.google.com/tpu/docs/v6e, and for compilers the device descriptions
of XLA (xla/tools/hlo_opt/gpu_specs). If a GPU exists as an SXM module, its
numbers are for this module. Rates of tensor cores are for dense matrices, not
for sparse matrices.
"""

import dataclasses
import enum
import math
import os

from xjax.core.errors import ConfigError


class Platform(enum.Enum):
  CPU = 'cpu'
  GPU = 'gpu'
  TPU = 'tpu'


@dataclasses.dataclass(frozen=True)
class Chip:
  """Holds the properties of one device; all rates are per second."""

  name: str  # its name for --chip
  platform: Platform  # the platform for which XLA compiles
  memory: float  # bytes
  bandwidth: float  # bytes of memory read or written
  bfloat16: float  # operations on 2-byte operands with sums in float32
  float32: float  # operations on float32 operands at full precision
  # Bytes that it sends to the other devices of its slice or host, over all its
  # links, and its part of what a host sends over the network.
  link: float = math.inf
  network: float = math.inf
  target: str = ''  # a GPU's description for the compiler

  def peak(self, operand_bytes: int) -> float:
    return self.bfloat16 if operand_bytes < 4 else self.float32


def _cpu(name: str, memory: float, cores: int) -> Chip:
  """Returns a CPU with estimated rates.

  A core has two vector units of 256 bits, so 16 float32 multiplications and 16
  additions (bfloat16 as float32) in each of 3e9 cycles per second. Two channels
  of DDR4-3200 memory are read at 51 GB/s.
  """
  operations = cores * 2 * 16 * 3e9
  return Chip(name, Platform.CPU, memory, 51e9, operations, operations)


# Compute capability, cores, MiB of L2 cache, GHz; and of a core, the float
# units, threads and KiB of shared memory.
_V100 = '7.0', 80, 6, 1.53, 64, 2048, 96
_A100 = '8.0', 108, 40, 1.41, 64, 2048, 164
_A10 = '8.6', 72, 6, 1.695, 128, 1536, 100
_L4 = '8.9', 58, 48, 2.04, 128, 1536, 100
_H100 = '9.0', 132, 50, 1.98, 128, 2048, 228
_H200 = '9.0', 132, 60, 1.98, 128, 2048, 228

# The columns are:
# - memory in GB of GPUs, or in GiB of TPUs
# - memory bandwidth in GB/s
# - TFLOP/s of bfloat16; V100 computes bfloat16 as float32
# - TFLOP/s of float32; on TPUs, such a product takes 6 bfloat16 products
# - GB/s that a device sends over NVLink (L4 and A10: PCIe), or to other TPUs
# - GB/s over the network, that of a DGX system (L4 and A10: 100 Gbit/s for 8)
#   or of a TPU pod, divided by their chips; v4 as v5p
# - the GPU, as above
# - texts of jax.Device.device_kind, one of which must match exactly; a longer
#   text stands for a slower device (PCIe, NVL) or for a part of a device (MIG)
_TABLE = {
  'v100-16': (16, 900, 15.7, 15.7, 150, 6.25, _V100, 'Tesla V100-SXM2-16GB'),
  'v100-32': (32, 900, 15.7, 15.7, 150, 6.25, _V100, 'Tesla V100-SXM2-32GB'),
  'a100-40': (40, 1555, 312, 19.5, 300, 25, _A100, 'NVIDIA A100-SXM4-40GB'),
  'a100-80': (80, 2039, 312, 19.5, 300, 25, _A100, 'NVIDIA A100-SXM4-80GB'),
  'h100-80': (80, 3350, 989, 67, 450, 50, _H100, 'NVIDIA H100 80GB HBM3'),
  'h200': (141, 4800, 989, 67, 450, 50, _H200, 'NVIDIA H200'),
  'l4': (24, 300, 121, 30.3, 32, 1.56, _L4, 'NVIDIA L4'),
  'a10': (24, 600, 125, 31.2, 32, 1.56, _A10, 'NVIDIA A10'),
  'v4': (32, 1228, 275, 275 / 6, 300, 6.25, (), 'TPU v4'),
  'v5e': (16, 819, 197, 197 / 6, 200, 3.125, (), 'TPU v5 lite', 'TPU v5e'),
  'v5p': (95, 2765, 459, 459 / 6, 600, 6.25, (), 'TPU v5', 'TPU v5p'),
  'v6e': (32, 1640, 918, 918 / 6, 400, 12.5, (), 'TPU v6 lite', 'TPU v6e'),
}


def _target(kind: str, memory: float, rate: float, gpu: tuple) -> str:
  """Returns the text of XLA's GpuTargetConfigProto; '' if it is no GPU."""
  if not gpu:
    return ''
  capability, cores, cache, clock, units, threads, shared = gpu
  major, minor = capability.split('.')
  # Newer GPUs keep 1 KiB of a core's shared memory for themselves.
  usable = shared - (major > '7')
  return f"""
gpu_device_info {{
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  core_count: {cores} clock_rate_ghz: {clock} l2_cache_size: {cache * 2**20}
  device_memory_size: {memory:.0f} memory_bandwidth: {rate:.0f}
  fpus_per_core: {units} threads_per_core_limit: {threads}
  shared_memory_per_core: {shared * 1024} shared_memory_per_block: 49152
  shared_memory_per_block_optin: {usable * 1024}
  threads_per_block_limit: 1024 threads_per_warp: 32
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}}
platform_name: "CUDA" device_description_str: "{kind}"
dnn_version_info {{ major: 9 minor: 8 }}
runtime_version {{ major: 12 minor: 9 }}"""


CHIPS = {'laptop': _cpu('laptop', 16 * 2**30, cores=4)}
_KINDS: dict[str, Chip] = {}
for _name, (
  _memory,
  _rate,
  _16,
  _32,
  _link,
  _net,
  _gpu,
  *_kinds,
) in _TABLE.items():
  _platform, _unit = (Platform.GPU, 1e9) if _gpu else (Platform.TPU, 2**30)
  _memory, _rate = _memory * _unit, _rate * 1e9
  _rates = _rate, _16 * 1e12, _32 * 1e12, _link * 1e9, _net * 1e9
  _text = _target(_kinds[0], _memory, _rate, _gpu)
  CHIPS[_name] = Chip(_name, _platform, _memory, *_rates, _text)
  _KINDS |= dict.fromkeys(_kinds, CHIPS[_name])


def chip_named(name: str) -> Chip:
  """Returns the chip with this name, or this machine's chip if name is ''."""
  names = ', '.join(CHIPS)
  if name in CHIPS:
    return CHIPS[name]
  if name:
    raise ConfigError(f'--chip={name}: must be one of {names}')
  import jax

  if jax.default_backend() == 'cpu':
    memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
    return _cpu("this machine's CPU", memory, os.cpu_count() or 1)
  kind = jax.devices()[0].device_kind
  if kind not in _KINDS:
    raise ConfigError(
      f'--chip: this machine has a {kind!r}, whose rates are not known; choose '
      f'the most similar of these chips: {names}'
    )
  return _KINDS[kind]
