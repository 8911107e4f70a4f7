"""Contains the memory sizes and peak rates of devices.

The sources are NVIDIA's data sheets, and
https://cloud.google.com/tpu/docs/system-architecture-tpu-vm. If a GPU exists as
an SXM module, its numbers are for this module. Rates of tensor cores are for
dense matrices, not for sparse matrices.
"""

import dataclasses
import enum
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
# - texts of jax.Device.device_kind, one of which must match exactly; a longer
#   text stands for a slower device (PCIe, NVL) or for a part of a device (MIG)
_TABLE = {
  'v100-16': (16, 900, 15.7, 15.7, 'Tesla V100-SXM2-16GB'),
  'v100-32': (32, 900, 15.7, 15.7, 'Tesla V100-SXM2-32GB'),
  'a100-40': (40, 1555, 312, 19.5, 'NVIDIA A100-SXM4-40GB'),
  'a100-80': (80, 2039, 312, 19.5, 'NVIDIA A100-SXM4-80GB'),
  'h100-80': (80, 3350, 989, 67, 'NVIDIA H100 80GB HBM3'),
  'h200': (141, 4800, 989, 67, 'NVIDIA H200'),
  'l4': (24, 300, 121, 30.3, 'NVIDIA L4'),
  'a10': (24, 600, 125, 31.2, 'NVIDIA A10'),
  'v4': (32, 1228, 275, 275 / 6, 'TPU v4'),
  'v5e': (16, 819, 197, 197 / 6, 'TPU v5 lite', 'TPU v5e'),
  'v5p': (95, 2765, 459, 459 / 6, 'TPU v5', 'TPU v5p'),
  'v6e': (32, 1640, 918, 918 / 6, 'TPU v6 lite', 'TPU v6e'),
}

CHIPS = {'laptop': _cpu('laptop', 16 * 2**30, cores=4)}
_KINDS: dict[str, Chip] = {}
for _name, (_memory, _rate, _16, _32, *_kinds) in _TABLE.items():
  _is_tpu = _kinds[0].startswith('TPU')
  _platform, _unit = (Platform.TPU, 2**30) if _is_tpu else (Platform.GPU, 1e9)
  _rates = _rate * 1e9, _16 * 1e12, _32 * 1e12
  CHIPS[_name] = Chip(_name, _platform, _memory * _unit, *_rates)
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
