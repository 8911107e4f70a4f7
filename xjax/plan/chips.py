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


# The columns are:
# - memory in GB of GPUs, or in GiB of TPUs
# - memory bandwidth in GB/s
# - TFLOP/s of bfloat16; V100 computes bfloat16 as float32
# - TFLOP/s of float32; on TPUs, such a product takes 6 bfloat16 products
# - GB/s that a device sends over NVLink (L4 and A10: PCIe), or between TPUs
# - GB/s over the network: of DGX systems (L4 and A10: 100 Gbit/s for 8 GPUs),
#   or of TPU pods, divided by their chips; v4 as v5p
# - of GPUs: compute capability, cores, MiB of L2 cache, GHz
# - texts of jax.Device.device_kind, one of which must match exactly; a longer
#   text stands for a slower device (PCIe, NVL) or for a part of a device (MIG)
_GPUS = {
  'v100-16': (16, 900, 15.7, 15.7, 150, 6.25, '7.0', 80, 6, 1.53),
  'v100-32': (32, 900, 15.7, 15.7, 150, 6.25, '7.0', 80, 6, 1.53),
  'a100-40': (40, 1555, 312, 19.5, 300, 25, '8.0', 108, 40, 1.41),
  'a100-80': (80, 2039, 312, 19.5, 300, 25, '8.0', 108, 40, 1.41),
  'h100-80': (80, 3350, 989, 67, 450, 50, '9.0', 132, 50, 1.98),
  'h200': (141, 4800, 989, 67, 450, 50, '9.0', 132, 60, 1.98),
  'l4': (24, 300, 121, 30.3, 32, 1.56, '8.9', 58, 48, 2.04),
  'a10': (24, 600, 125, 31.2, 32, 1.56, '8.6', 72, 6, 1.695),
}
_TPUS = {
  'v4': (32, 1228, 275, 275 / 6, 300, 6.25),
  'v5e': (16, 819, 197, 197 / 6, 200, 3.125),
  'v5p': (95, 2765, 459, 459 / 6, 600, 6.25),
  'v6e': (32, 1640, 918, 918 / 6, 400, 12.5),
}
_KINDS = {
  'Tesla V100-SXM2-16GB': 'v100-16',
  'Tesla V100-SXM2-32GB': 'v100-32',
  'NVIDIA A100-SXM4-40GB': 'a100-40',
  'NVIDIA A100-SXM4-80GB': 'a100-80',
  'NVIDIA H100 80GB HBM3': 'h100-80',
  'NVIDIA H200': 'h200',
  'NVIDIA L4': 'l4',
  'NVIDIA A10': 'a10',
  'TPU v4': 'v4',
  'TPU v5 lite': 'v5e',
  'TPU v5e': 'v5e',
  'TPU v5': 'v5p',
  'TPU v5p': 'v5p',
  'TPU v6 lite': 'v6e',
  'TPU v6e': 'v6e',
}
# Of a GPU core: float units, threads, KiB of shared memory.
_CORES = {
  '7.0': (64, 2048, 96),
  '8.0': (64, 2048, 164),
  '8.6': (128, 1536, 100),
  '8.9': (128, 1536, 100),
  '9.0': (128, 2048, 228),
}


def _target(
  kind: str,
  memory: float,
  bandwidth: float,
  capability: str,
  cores: int,
  cache: int,
  clock: float,
) -> str:
  """Returns the text of XLA's GpuTargetConfigProto."""
  (units, threads, shared), (major, minor) = _CORES[capability], capability.split('.')
  return f"""
gpu_device_info {{
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  core_count: {cores} clock_rate_ghz: {clock} l2_cache_size: {cache * 2**20}
  device_memory_size: {memory:.0f} memory_bandwidth: {bandwidth:.0f}
  fpus_per_core: {units} threads_per_core_limit: {threads}
  shared_memory_per_core: {shared * 1024} shared_memory_per_block: 49152
  shared_memory_per_block_optin: {(shared - (major != '7')) * 1024}
  threads_per_block_limit: 1024 threads_per_warp: 32
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}}
platform_name: "CUDA" device_description_str: "{kind}"
dnn_version_info {{ major: 9 minor: 8 }}
runtime_version {{ major: 12 minor: 9 }}"""


CHIPS = {'laptop': _cpu('laptop', 16 * 2**30, cores=4)}
for _name, (_memory, *_rates) in (_GPUS | _TPUS).items():
  _is_tpu, _giga = _name in _TPUS, [1e9, 1e12, 1e12, 1e9, 1e9]
  _memory *= 2**30 if _is_tpu else 1e9
  _scaled = [x * unit for x, unit in zip(_rates, _giga)]
  _text = ''
  if not _is_tpu:
    _kind = next(kind for kind, name in _KINDS.items() if name == _name)
    _text = _target(_kind, _memory, _scaled[0], *_rates[5:])
  _platform = Platform.TPU if _is_tpu else Platform.GPU
  CHIPS[_name] = Chip(_name, _platform, _memory, *_scaled, _text)


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
  return CHIPS[_KINDS[kind]]
