"""Which rows of a batch each process reads."""

import collections
import dataclasses

import jax
import numpy as np

from xjax.core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Share:
  """The rows of every batch that a process reads.

  Attributes:
    parts: these, ascending, of the equal parts that a batch is cut into.
    of: number of parts.
  """

  parts: tuple[int, ...] = (0,)
  of: int = 1

  @property
  def readers(self) -> int:
    """Into how many shares as large as this one a batch is divided."""
    return self.of // len(self.parts)

  def rows(self, size: int) -> np.ndarray:
    """Places of these rows, int64 ascending, in a batch of `size` rows.

    Raises:
      ConfigError: the batch does not divide.
    """
    if size < 1 or size % self.of:
      raise ConfigError(
        f'a batch of {size} documents does not divide into {self.of} equal '
        f'part(s) for processes and devices: choose a multiple of {self.of}'
      )
    return np.arange(size).reshape(self.of, -1)[list(self.parts)].ravel()


WHOLE = Share()  # of a single process


def own_share() -> Share:
  """Of work without a mesh: a part for each process."""
  return Share((jax.process_index(),), jax.process_count())


def shares(devices_DL: np.ndarray) -> dict[int, Share]:
  """The share of each process: the rows that lie on its devices.

  Processes whose devices lie on the same places of the data axis read the same
  rows, each for its own part of the label axis.

  Args:
    devices_DL: devices, data axis first; each has a process_index.

  Raises:
    ConfigError: two processes have some of their rows in common and others
      not, or one has more than another.
  """
  parts = collections.defaultdict(set)
  for (part, _), device in np.ndenumerate(devices_DL):
    parts[device.process_index].add(part)
  of, labels = devices_DL.shape
  different = {tuple(sorted(found)) for found in parts.values()}
  # Together they cover the axis: as long as it is, they do not overlap.
  lengths = [len(found) for found in different]
  if sum(lengths) != of or len(set(lengths)) > 1:
    raise ConfigError(
      f'mesh.data={of} x mesh.label={labels}: processes must read as many rows '
      'of a batch each, and any two the same rows or none in common. Choose a '
      'mesh.label that is a multiple or a divisor of the devices of each '
      f'process, {devices_DL.size // len(parts)}'
    )
  return {
    process: Share(tuple(sorted(found)), of) for process, found in parts.items()
  }
