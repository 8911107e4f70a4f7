"""Sets the size of the device mesh, and which rows each process reads."""

import collections
import dataclasses

import numpy as np

from xjax.core.config_part import Bound, ConfigPart, field
from xjax.core.distributed import process_count, process_index
from xjax.core.errors import ConfigError

# The label axis of every parameter is padded to a multiple of this number on
# every mesh, so that a checkpoint can be restored on any mesh whose number of
# devices divides LABEL_MULTIPLE.
LABEL_MULTIPLE = 1536  # 512 times 3


_AXIS = Bound(
  lambda n: n == -1 or n >= 1, 'at least 1, or -1 for the rest of the devices'
)


@dataclasses.dataclass
class MeshConfig(ConfigPart):
  """Sets the number of devices along each axis of the mesh.

  One number may be -1, which means all remaining devices. The label rows of
  OneVsAll are divided over both axes. So the product of both numbers must
  divide LABEL_MULTIPLE. If the product is a power of 2, it is at most 512.
  """

  data: int = field(
    -1,
    'Devices over which documents are divided; -1 means all remaining devices.',
    _AXIS,
  )
  label: int = field(
    1,
    'Devices over which labels are divided; -1 means all remaining devices.',
    _AXIS,
  )
  slices: int = field(
    0,
    'TPU slices, or nodes with GPUs, among which documents are divided first; '
    '0 finds them.',
    Bound(lambda n: n >= 0, 'at least 1, or 0 to find them'),
  )


def mesh_shape(config: MeshConfig, count: int) -> tuple[int, int]:
  """Returns the sizes of the data axis and the label axis, without -1."""
  shape = [config.data, config.label]
  if shape.count(-1) == 1:
    rest = max(1, -shape[0] * shape[1])
    shape[shape.index(-1)] = count // rest
  if min(shape) < 1 or shape[0] * shape[1] != count:
    raise ConfigError(
      f'mesh.data={config.data} x mesh.label={config.label} does not fit '
      f'{count} devices: choose sizes whose product is {count} (-1 means '
      'the rest of the devices), or set JAX_NUM_CPU_DEVICES to divide a CPU '
      'into devices'
    )
  if LABEL_MULTIPLE % shape[1]:
    raise ConfigError(f'mesh.label={shape[1]} must divide {LABEL_MULTIPLE}')
  return shape[0], shape[1]


@dataclasses.dataclass(frozen=True)
class ProcessShare:
  """Tells which of the equal parts of every batch a process reads."""

  parts: tuple[int, ...] = (0,)  # indices, ascending
  of: int = 1  # number of parts of a batch

  @property
  def readers(self) -> int:
    """Returns how many shares of this size make up a batch."""
    return self.of // len(self.parts)

  def rows(self, size: int) -> np.ndarray:
    """Returns the process's rows of a batch, int64; a ConfigError if uneven."""
    if size < 1 or size % self.of:
      raise ConfigError(
        f'a batch of {size} documents does not divide into {self.of} equal '
        f'part(s) for processes and devices; choose a batch size that is a '
        f'multiple of {self.of}'
      )
    return np.arange(size).reshape(self.of, -1)[list(self.parts)].ravel()


WHOLE = ProcessShare()  # the share of a single process: all rows


def own_share() -> ProcessShare:
  """Returns this process's share of work that is divided without a mesh."""
  return ProcessShare((process_index(),), process_count())


def shares(devices_DL: np.ndarray) -> dict[int, ProcessShare]:
  """Returns the share of a batch that each process reads, by process index.

  Processes whose devices have the same indices along the data axis read the
  same rows. Each of these processes uses the rows for its own part of the label
  axis. Shares that overlap in part, or differ in size, raise a ConfigError.
  """
  parts = collections.defaultdict(set)
  for (part, _), device in np.ndenumerate(devices_DL):
    parts[device.process_index].add(part)
  of, labels = devices_DL.shape
  distinct = {tuple(sorted(indices)) for indices in parts.values()}
  # The distinct sets together cover the data axis. So they do not overlap if
  # the sum of their lengths is the length of the axis.
  lengths = [len(indices) for indices in distinct]
  if sum(lengths) != of or len(set(lengths)) > 1:
    raise ConfigError(
      f'mesh.data={of} x mesh.label={labels}: all processes must read the same '
      'number of rows of a batch, and two processes must read either the same '
      'rows or no common row. Choose a mesh.label that is a multiple or a '
      f'divisor of {devices_DL.size // len(parts)}, the number of devices per '
      'process'
    )
  return {
    process: ProcessShare(tuple(sorted(indices)), of)
    for process, indices in parts.items()
  }
