"""What devices have and can do at most, as their makers say.

NVIDIA's data sheets (SXM modules where there are such; dense, not sparse, rates
of tensor cores), and https://cloud.google.com/tpu/docs/system-architecture-tpu-vm.
Bandwidths of networks are of one direction, half of what both have.
"""

import dataclasses
import enum
import os

import jax

from xjax.core.errors import ConfigError


class Platform(enum.Enum):
  """As jax.default_backend() calls it."""

  CPU = 'cpu'
  GPU = 'gpu'
  TPU = 'tpu'


@dataclasses.dataclass(frozen=True)
class Chip:
  """One device; rates per second.

  Attributes:
    name: as asked for.
    platform: whose compiler it has.
    memory: bytes.
    bandwidth: bytes of memory read or written.
    bfloat16: operations on operands of 2 bytes, summed in float32.
    float32: operations on float32 operands, none of whose bits are dropped.
    network: bytes sent to other devices; 0: there is no network.
    neighbours: devices that this network joins.
    float8: whether arrays of 1-byte floats are changed where they lie; else
      there is a second copy while they are.
  """

  name: str
  platform: Platform
  memory: float
  bandwidth: float
  bfloat16: float
  float32: float
  network: float = 0.0
  neighbours: int = 1
  float8: bool = True

  def peak(self, operand_bytes: int) -> float:
    """Operations on operands of so many bytes."""
    return self.bfloat16 if operand_bytes < 4 else self.float32


_GIB, _GB, _TERA = 2**30, 1e9, 1e12


def _gpu(name, memory, bandwidth, bfloat16, float32, network, neighbours):
  return Chip(
    name,
    Platform.GPU,
    memory * _GB,
    bandwidth * _GB,
    bfloat16 * _TERA,
    float32 * _TERA,
    network * _GB,
    neighbours,
  )


_PASSES = 6  # products of bfloat16 that make up one of float32 on a TPU


def _tpu(name, memory, bandwidth, bfloat16, network, neighbours):
  return Chip(
    name,
    Platform.TPU,
    memory * _GIB,
    bandwidth * _GB,
    bfloat16 * _TERA,
    bfloat16 * _TERA / _PASSES,
    network * _GB,
    neighbours,
    # XLA compiled for v5e keeps a second array of such rows.
    float8=False,
  )


def _cpu(name: str, memory: float, cores: int) -> Chip:
  """Estimates: 16 multiplications and additions of float32 a cycle at 3 GHz.

  That is two vector units of 256 bits in each core; bfloat16 is converted.
  Two channels of DDR4-3200 are read at 51 GB/s.
  """
  operations = cores * 2 * 16 * 3e9
  return Chip(name, Platform.CPU, memory, 51e9, operations, operations)


_LAPTOP = _cpu('laptop', 16 * _GIB, cores=4)

# Memory GB, GB/s, TFLOP/s of bfloat16 and of float32, GB/s to neighbours (by
# NVLink; L4 and A10 by PCIe 4.0 x16), of which a machine has so many. V100 has
# no bfloat16: it is computed as float32.
_GPUS = (
  _gpu('v100-16', 16, 900, 15.7, 15.7, 150, 8),
  _gpu('v100-32', 32, 900, 15.7, 15.7, 150, 8),
  _gpu('a100-40', 40, 1555, 312, 19.5, 300, 8),
  _gpu('a100-80', 80, 2039, 312, 19.5, 300, 8),
  _gpu('h100-80', 80, 3350, 989, 67, 450, 8),
  _gpu('h200', 141, 4800, 989, 67, 450, 8),
  _gpu('l4', 24, 300, 121, 30.3, 32, 8),
  _gpu('a10', 24, 600, 125, 31.2, 32, 8),
)

# Memory GiB, GB/s, TFLOP/s of bfloat16, GB/s to neighbours, chips of a pod.
_TPUS = (
  _tpu('v4', 32, 1228, 275, 300, 4096),
  _tpu('v5e', 16, 819, 197, 200, 256),
  _tpu('v5p', 95, 2765, 459, 600, 8960),
  _tpu('v6e', 32, 1640, 918, 400, 256),
)

CHIPS = {chip.name: chip for chip in (_LAPTOP, *_GPUS, *_TPUS)}

# By jax.Device.device_kind, as a whole: what begins alike is slower (PCIe, NVL)
# or a part of a device (MIG).
_KINDS = {
  'NVIDIA H200': 'h200',
  'NVIDIA H100 80GB HBM3': 'h100-80',
  'NVIDIA A100-SXM4-40GB': 'a100-40',
  'NVIDIA A100-SXM4-80GB': 'a100-80',
  'NVIDIA A10': 'a10',
  'NVIDIA L4': 'l4',
  'Tesla V100-SXM2-32GB': 'v100-32',
  'Tesla V100-SXM2-16GB': 'v100-16',
  'TPU v4': 'v4',
  'TPU v5 lite': 'v5e',
  'TPU v5e': 'v5e',
  'TPU v5': 'v5p',
  'TPU v5p': 'v5p',
  'TPU v6 lite': 'v6e',
  'TPU v6e': 'v6e',
}


def chip_named(name: str) -> Chip:
  """The chip of that name; empty: this machine's own.

  Raises:
    ConfigError: it is not in the table.
  """
  known = ', '.join(CHIPS)
  if not name:
    kind = jax.devices()[0].device_kind
    if jax.default_backend() == 'cpu':
      return _this_cpu()
    name = _KINDS.get(kind, '')
    if not name:
      raise ConfigError(
        f'--chip: {kind!r}, a device of this machine, is not among those '
        f'known: {known}; name the one most like it'
      )
  if name not in CHIPS:
    raise ConfigError(f'--chip={name}: must be one of {known}')
  return CHIPS[name]


def _this_cpu() -> Chip:
  pages, size = os.sysconf('SC_PHYS_PAGES'), os.sysconf('SC_PAGE_SIZE')
  return _cpu("this machine's CPU", pages * size, os.cpu_count() or 1)
