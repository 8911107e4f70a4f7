"""Linear classifiers, one per label: what training gives and scoring reads."""

from collections.abc import Sequence
import dataclasses

import numpy as np
from scipy import sparse

_DTYPES = {
  'data': np.float32,
  'indices': np.int32,
  'indptr': np.int64,
  'bias': np.float32,
  'n_features': np.int64,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Classifiers:
  """Scores are X @ weights + bias.

  Attributes:
    weights: float32 CSC [D, L]; features of a label ascend.
    bias: float32 [L].
  """

  weights: sparse.csc_array
  bias: np.ndarray

  @property
  def n_labels(self) -> int:
    """L."""
    return len(self.bias)

  @property
  def n_features(self) -> int:
    """D."""
    return self.weights.shape[0]

  @classmethod
  def pruned(
    cls, weights_DC: np.ndarray, bias_C: np.ndarray, threshold: float
  ) -> 'Classifiers':
    """Of dense weights, without those below a threshold.

    As DiSMEC does (Babbar and Schoelkopf 2017); biases stay.

    Args:
      weights_DC: of any float type, finite.
      bias_C: of any float type, finite.
      threshold: weights of smaller absolute value are left out, as are zeros.
    """
    kept = [
      np.flatnonzero((np.abs(weights_D) >= threshold) & (weights_D != 0))
      for weights_D in weights_DC.T
    ]
    data = [weights_D[own] for weights_D, own in zip(weights_DC.T, kept)]
    indptr = np.cumsum([0, *map(len, kept)], dtype=np.int64)
    weights = _matrix(
      np.concatenate([np.empty(0, np.float32), *data], dtype=np.float32),
      np.concatenate([np.empty(0, np.int32), *kept], dtype=np.int32),
      indptr,
      len(weights_DC),
    )
    return cls(weights, bias_C.astype(np.float32))

  @classmethod
  def none(cls, n_features: int, n_labels: int) -> 'Classifiers':
    """Of zeros."""
    shape = n_features, n_labels
    weights = sparse.csc_array(shape, dtype=np.float32)
    return cls(weights, np.zeros(n_labels, np.float32))

  def take(self, labels: np.ndarray) -> 'Classifiers':
    """Those of some labels, in this order."""
    return Classifiers(self.weights[:, labels], self.bias[labels])

  @classmethod
  def joined(cls, parts: Sequence['Classifiers']) -> 'Classifiers':
    """Of the labels of all parts, one after the other."""
    matrices = [part.weights for part in parts]
    starts = np.cumsum([0, *(len(m.data) for m in matrices)])
    indptr = [m.indptr[:-1] + start for m, start in zip(matrices, starts)]
    weights = _matrix(
      np.concatenate([m.data for m in matrices]),
      np.concatenate([m.indices for m in matrices]),
      np.concatenate([*indptr, starts[-1:]]).astype(np.int64),
      parts[0].n_features,
    )
    return cls(weights, np.concatenate([part.bias for part in parts]))

  def of_features(self, features: np.ndarray, n_features: int) -> 'Classifiers':
    """The same, where feature i is features[i], ascending, of n_features."""
    given = self.weights
    indices = features[given.indices].astype(np.int32)
    return Classifiers(
      _matrix(given.data, indices, given.indptr, n_features), self.bias
    )

  def with_last(self, last_L: np.ndarray, norm: float) -> 'Classifiers':
    """Puts some labels after all others, of documents no longer than norm.

    Labels that nothing was learnt of are scored alike by a bias alone, and are
    no better than the worst of those that were trained: were it, say, -1, they
    would be listed before trained labels that score less, all of them at once.
    Their bias is 1 below the least that a trained label can score by its norm.

    Args:
      last_L: bool, whether a label is to be last.
      norm: of documents' rows, at most.
    """
    bias_L = bias_of_last(self.bias, self.lowest(norm), last_L)
    kept = np.repeat(~last_L, np.diff(self.weights.indptr))
    before = np.concatenate([[0], np.cumsum(kept)])
    weights = _matrix(
      self.weights.data[kept],
      self.weights.indices[kept],
      before[self.weights.indptr],
      self.n_features,
    )
    return Classifiers(weights, bias_L)

  def lowest(self, norm: float) -> np.ndarray:
    """float32 [L], the least that rows of this norm at most can score."""
    squares = self.weights.data**2, self.weights.indices, self.weights.indptr
    norm_L = np.sqrt(_matrix(*squares, self.n_features).sum(axis=0))
    return self.bias - norm * norm_L

  def arrays(self) -> dict[str, np.ndarray]:
    """What is saved; `of_arrays` undoes it."""
    return {
      'data': self.weights.data,
      'indices': self.weights.indices.astype(np.int32, copy=False),
      'indptr': self.weights.indptr.astype(np.int64, copy=False),
      'bias': self.bias,
      'n_features': np.int64(self.n_features),
    }

  @classmethod
  def of_arrays(cls, arrays: dict[str, np.ndarray]) -> 'Classifiers':
    """Of what was saved.

    Raises:
      ValueError: these are no classifiers; the message says why.
    """
    for name, dtype in _DTYPES.items():
      if name not in arrays:
        raise ValueError(f'{name} is missing')
      have, ndim = arrays[name], int(name != 'n_features')
      if have.dtype != dtype or have.ndim != ndim:
        raise ValueError(
          f'{name} is {have.dtype} of {have.ndim} axes, should be '
          f'{np.dtype(dtype)} of {ndim}'
        )
    data, indices, indptr, bias = (arrays[name] for name in list(_DTYPES)[:4])
    n_features = int(arrays['n_features'])
    _check(data, indices, indptr, bias, n_features)
    return cls(_matrix(data, indices, indptr, n_features), bias)


def bias_of_last(
  bias_L: np.ndarray, lowest_L: np.ndarray, last_L: np.ndarray
) -> np.ndarray:
  """The biases of Classifiers.with_last, of what each label scores at least."""
  lowest = lowest_L[~last_L].min() if not last_L.all() else 0.0
  return np.where(last_L, np.float32(lowest - 1), bias_L)


def _matrix(
  data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_features: int
) -> sparse.csc_array:
  shape = (n_features, len(indptr) - 1)
  return sparse.csc_array((data, indices, indptr), shape=shape)


def _check(
  data: np.ndarray,
  indices: np.ndarray,
  indptr: np.ndarray,
  bias: np.ndarray,
  n_features: int,
) -> None:
  """Raises ValueError where arrays do not fit together."""
  if len(indptr) != len(bias) + 1 or len(data) != len(indices):
    raise ValueError('arrays of different lengths')
  if indptr[0] or indptr[-1] != len(data) or (np.diff(indptr) < 0).any():
    raise ValueError('indptr does not count the weights')
  rises = np.diff(indices) > 0
  rises[indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < len(data))] - 1] = (
    True
  )
  inside = not len(indices) or 0 <= indices.min() <= indices.max() < n_features
  if not (inside and rises.all()):
    raise ValueError('features of a label must ascend from 0 to n_features')
  if not (np.isfinite(data).all() and np.isfinite(bias).all()):
    raise ValueError('weights that are not finite')
