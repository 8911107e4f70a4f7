"""Defines one-vs-all training as a problem, and the solvers of this problem."""

import abc
from collections.abc import Callable
import dataclasses
import enum
from typing import ClassVar

from jaxtyping import Int32, Int64
import numpy as np
from scipy import sparse

from xjax.core.config_part import ConfigPart
from xjax.core.errors import DataError
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import Ragged
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.linear.classifiers import PartFiles

_ROWS = 4096  # rows that are squared at a time


class Loss(enum.Enum):
  """Chooses the loss of a document, a function of the document's margin m.

  The margin is m = y (w.x + b). Here, x are the features of the document, and w
  and b are the weights and the bias of a label. y is 1 if the document has the
  label, else -1.
  """

  SQUARED_HINGE = 'squared_hinge'  # max(0, 1 - m)^2: an SVM; scores are margins
  LOGISTIC = 'logistic'  # log(1 + exp(-m)): scores are logits


@dataclasses.dataclass(frozen=True, eq=False)
class OneVsAllProblem:
  """Describes the task of training one classifier for each label."""

  rows: sparse.csr_array  # float32 [N, D], finite, with sorted indices
  gold: Ragged  # N rows; labels >= n_labels are ignored
  n_labels: int
  loss: Loss
  c: float  # weight of the losses relative to the regulariser (LIBLINEAR's C)
  threshold: float  # weights with a smaller absolute value become 0
  seed: int
  mesh: MeshConfig
  parts: PartFiles  # the files of trained groups of labels
  between: Callable[[], None]  # called between steps; an error ends training


@dataclasses.dataclass
class SolverConfig(ConfigPart, abstract=True):
  """Chooses the method of training one-vs-all classifiers."""

  processes: ClassVar[bool] = False  # whether several can train together

  @abc.abstractmethod
  def fit(self, problem: OneVsAllProblem) -> BlockWeights:
    """Trains one block of all labels; those without documents rank last."""


def check_training_rows(rows: sparse.csr_array, gold: Ragged) -> None:
  """Raises a DataError if no row has a feature, or a value is not finite."""
  if rows.shape[0] != len(gold):
    raise ValueError(
      f'{rows.shape[0]} rows of features but {len(gold)} rows of labels'
    )
  if not rows.nnz:
    raise DataError(
      'no document has any feature, so there is nothing to train on'
    )
  if not np.isfinite(rows.data).all():
    raise DataError('features of documents must be finite')


def documents_of_labels(
  gold: Ragged, n_labels: int
) -> tuple[Int64[np.ndarray, ' label_bounds'], Int32[np.ndarray, ' documents']]:
  """Returns the bounds and the documents of each label, the transpose of gold.

  Documents of a label ascend. Labels >= n_labels are ignored.
  """
  docs = np.repeat(np.arange(len(gold), dtype=np.int32), gold.lengths)
  inside = gold.values < n_labels
  labels = gold.values[inside]
  # Stable, so that documents of a label ascend.
  order = np.argsort(labels, kind='stable')
  indptr = np.zeros(n_labels + 1, np.int64)
  np.cumsum(np.bincount(labels, minlength=n_labels), out=indptr[1:])
  return indptr, docs[inside][order]


def largest_norm(rows: sparse.csr_array) -> float:
  """Returns the largest L2 norm of a row."""
  largest = 0.0
  for first in range(0, rows.shape[0], _ROWS):
    # In blocks, because a float64 copy of all rows would double the memory.
    part = rows[first : first + _ROWS].astype(np.float64)
    part.data **= 2
    largest = max(largest, float(part.sum(axis=1).max(initial=0)))
  return largest**0.5
