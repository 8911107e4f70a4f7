"""Holds the result of training, linear classifiers, and saves parts of it."""

from collections.abc import Mapping, Sequence
import dataclasses
import os
import pathlib

from absl import logging
from jaxtyping import Bool, Float, Float32, Int, Shaped
import numpy as np
from scipy import sparse

from xjax.core.atomic import write_npz
from xjax.core.errors import DAMAGE

_COUNT = 'part_count'  # an array with the number of the others
_BEGUN, _SUFFIX = 'begun', '.part.npz'

# Maps names to the arrays of a file. A value may also be a NumPy scalar instead
# of a 0-d array.
FileArrays = Mapping[str, Shaped[np.ndarray, '...'] | np.generic]


@dataclasses.dataclass(frozen=True, eq=False)
class Classifiers:
  """Holds one linear classifier per label, with scores X @ weights + bias."""

  weights: sparse.csc_array  # float32 CSC [D, L]; features of a label ascend
  bias: Float32[np.ndarray, ' L']

  @property
  def n_labels(self) -> int:
    return len(self.bias)

  @property
  def n_features(self) -> int:
    return self.weights.shape[0]

  @classmethod
  def from_dense(
    cls,
    weights_DC: Float[np.ndarray, 'D C'],
    bias_C: Float[np.ndarray, ' C'],
    threshold: float,
  ) -> 'Classifiers':
    """Makes sparse classifiers, without weights below a threshold."""
    # DiSMEC prunes weights in the same way (Babbar and Schoelkopf 2017).
    kept_DC = np.where(np.abs(weights_DC) >= threshold, weights_DC, 0)
    weights = sparse.csc_array(kept_DC.astype(np.float32))
    return cls(weights, bias_C.astype(np.float32))

  @classmethod
  def zeros(cls, n_features: int, n_labels: int) -> 'Classifiers':
    shape = n_features, n_labels
    weights = sparse.csc_array(shape, dtype=np.float32)
    return cls(weights, np.zeros(n_labels, np.float32))

  @classmethod
  def join(cls, parts: Sequence['Classifiers']) -> 'Classifiers':
    # The indices are int64 where all labels have more than 2^31 weights.
    weights = sparse.hstack([part.weights for part in parts], format='csc')
    return cls(weights, np.concatenate([part.bias for part in parts]))

  def renumber_features(
    self, features: Int[np.ndarray, ' D'], n_features: int
  ) -> 'Classifiers':
    """Returns the classifiers with new feature numbers, which must ascend."""
    old, indices = self.weights, features[self.weights.indices]
    parts = old.data, indices.astype(np.int32), old.indptr
    weights = sparse.csc_array(parts, (n_features, self.n_labels))
    return Classifiers(weights, self.bias)

  def lowest_scores(self, norm: float) -> Float[np.ndarray, ' L']:
    """Returns each label's lowest score for rows with a norm up to `norm`."""
    # By Cauchy and Schwarz, |w.x| is at most |w| |x|.
    return self.bias - norm * np.sqrt(self.weights.power(2).sum(axis=0))

  def arrays(self) -> FileArrays:
    """Returns the arrays to save, which `of_arrays` reads."""
    return {
      'data': self.weights.data,
      'indices': self.weights.indices.astype(np.int32, copy=False),
      'indptr': self.weights.indptr.astype(np.int64, copy=False),
      'bias': self.bias,
      'n_features': np.int64(self.n_features),
    }

  @classmethod
  def of_arrays(cls, arrays: FileArrays) -> 'Classifiers':
    parts = tuple(arrays[name] for name in ('data', 'indices', 'indptr'))
    shape = int(arrays['n_features']), len(arrays['bias'])
    return cls(sparse.csc_array(parts, shape), arrays['bias'])


def bias_of_last(
  bias_L: Float32[np.ndarray, ' L'],
  lowest_L: Float[np.ndarray, ' L'],
  last_L: Bool[np.ndarray, ' L'],
) -> Float32[np.ndarray, ' L']:
  """Returns biases that rank some labels last, below all scores of the others.

  A fixed bias such as -1 would not be low enough if others have lower scores.
  """
  lowest = lowest_L[~last_L].min() if not last_L.all() else 0.0
  return np.where(last_L, np.float32(lowest - 1), bias_L)


@dataclasses.dataclass(frozen=True)
class PartFiles:
  """Reads and writes one .npz file for each finished part of a computation.

  A resumed run has the same config and corpus; `begin` compares the rest.
  """

  folder: pathlib.Path  # save() creates it

  def begin(self, **made_for: np.ndarray) -> None:
    """Removes the parts unless they were made for the same arrays."""
    saved = self.load(_BEGUN) or {}
    if saved.keys() != made_for.keys() or not all(
      np.array_equal(saved[name], made_for[name]) for name in saved
    ):
      for path in self.folder.glob(f'*{_SUFFIX}'):
        path.unlink(missing_ok=True)
      self.save(_BEGUN, made_for)

  def load(self, name: str) -> FileArrays | None:
    """Returns a part; None if its file is absent or damaged."""
    path = self._path(name)
    if not os.path.lexists(path):
      return None
    try:
      # Reading all arrays compares the checksums of the zip file. They do not
      # cover its list of members.
      with open(path, 'rb') as raw, np.load(raw, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
      if arrays.pop(_COUNT) != len(arrays):
        raise ValueError('arrays are missing')
      return arrays
    # A part is only a shortcut. Training it again is safe, so damage is no
    # error here.
    except DAMAGE:
      logging.warning('%s: is damaged; this part is computed again', path)
      return None

  def save(self, name: str, arrays: FileArrays) -> None:
    """Writes the file of a part; an error leaves no partial file."""
    write_npz(self._path(name), {**arrays, _COUNT: np.int64(len(arrays))})

  def _path(self, name: str) -> pathlib.Path:
    return self.folder / f'{name}{_SUFFIX}'
