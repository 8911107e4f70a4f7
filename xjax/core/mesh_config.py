"""Defines the sizes of the device mesh."""

import dataclasses

from xjax.core.config_part import Bound, ConfigPart, field
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


def mesh_shape(config: MeshConfig, count: int) -> tuple[int, int]:
  """Returns the sizes of the data axis and the label axis.

  Args:
    config: the requested sizes.
    count: number of devices.

  Raises:
    ConfigError: the product of the sizes is not the number of devices.
  """
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
