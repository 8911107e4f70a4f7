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
from xjax.models.linear.part_files import PartFiles

_ROWS = 4096  # rows that are squared at a time


class Loss(enum.Enum):
  """Chooses the loss of a document, a function of the document's margin m.

  The margin is m = y (w.x + b). Here, x are the features of the document, and w
  and b are the weights and the bias of a label. y is 1 if the document has the
  label, else -1.

  Attributes:
    SQUARED_HINGE: max(0, 1 - m) ** 2. The classifier is an L2-loss SVM. Its
      scores are margins.
    LOGISTIC: log(1 + exp(-m)). The classifier is a logistic regression. Its
      scores are logits.
  """

  SQUARED_HINGE = 'squared_hinge'
  LOGISTIC = 'logistic'


@dataclasses.dataclass(frozen=True, eq=False)
class OneVsAllProblem:
  """Describes the task of training one classifier for each label.

  Attributes:
    rows: float32 [N, D], the documents' features. All values are finite, and
      the indices of each row are sorted.
    gold: N rows of labels. Labels >= n_labels are ignored.
    n_labels: number of labels, L.
    loss: the loss of a document.
    c: weight of the losses relative to the regulariser (LIBLINEAR's C).
    threshold: weights whose absolute value is below this number become 0.
    seed: the seed of all random choices.
    mesh: the devices, for solvers that use devices.
    parts: the files of trained groups of labels. If training is interrupted,
      the next training of the same problem reads these groups from the files.
    between: a function that is called between steps of training, or between
      parts. Training ends if this function raises an error.
  """

  rows: sparse.csr_array
  gold: Ragged
  n_labels: int
  loss: Loss
  c: float
  threshold: float
  seed: int
  mesh: MeshConfig
  parts: PartFiles
  between: Callable[[], None]


@dataclasses.dataclass
class SolverConfig(ConfigPart, abstract=True):
  """Chooses the method of training one-vs-all classifiers.

  Attributes:
    processes: whether several processes can train together.
  """

  processes: ClassVar[bool] = False

  @abc.abstractmethod
  def fit(self, problem: OneVsAllProblem) -> BlockWeights:
    """Trains the classifiers of all labels, and returns them as one block.

    Labels without training documents rank after all other labels.
    """


def check_training_rows(rows: sparse.csr_array, gold: Ragged) -> None:
  """Checks that classifiers can be trained on the documents.

  Args:
    rows: [N, D], documents' features.
    gold: N rows of labels.

  Raises:
    DataError: no row has a feature, or a value is not finite.
    ValueError: `rows` and `gold` have different numbers of rows.
  """
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
  """Returns the documents of each label, that is, the transpose of gold.

  Args:
    gold: N rows of labels. Labels >= n_labels are ignored.
    n_labels: number of labels, L.

  Returns:
    indptr: int64 [L + 1]. Label l has documents[indptr[l]:indptr[l + 1]].
    documents: int32, in ascending order for each label.
  """
  docs = np.repeat(np.arange(len(gold), dtype=np.int32), gold.lengths)
  inside = gold.values < n_labels
  labels = gold.values[inside]
  order = np.argsort(labels, kind='stable')
  indptr = np.zeros(n_labels + 1, np.int64)
  np.cumsum(np.bincount(labels, minlength=n_labels), out=indptr[1:])
  return indptr, docs[inside][order]


def largest_norm(rows: sparse.csr_array) -> float:
  """Returns the largest L2 norm of a row."""
  largest = 0.0
  for first in range(0, rows.shape[0], _ROWS):
    part = rows[first : first + _ROWS].astype(np.float64)
    part.data **= 2
    largest = max(largest, float(part.sum(axis=1).max(initial=0)))
  return largest**0.5
