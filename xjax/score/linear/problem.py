"""One-vs-all classifiers to be trained: documents, labels, and who does it."""

import abc
from collections.abc import Callable
import dataclasses
import enum
from typing import ClassVar

import numpy as np
from scipy import sparse

from xjax.core.config_part import ConfigPart
from xjax.core.errors import DataError
from xjax.core.mesh import MeshConfig
from xjax.core.types import Ragged
from xjax.score.linear.block_weights import BlockWeights
from xjax.score.linear.part_files import PartFiles

_ROWS = 4096  # that are squared at a time


class Loss(enum.Enum):
  """Loss of a document of margin m = y (w.x + b), y being 1 or -1.

  Attributes:
    SQUARED_HINGE: max(0, 1 - m) ** 2, an L2-loss SVM; scores are margins.
    LOGISTIC: log(1 + exp(-m)), logistic regression; scores are logits.
  """

  SQUARED_HINGE = 'squared_hinge'
  LOGISTIC = 'logistic'


@dataclasses.dataclass(frozen=True, eq=False)
class OneVsAllProblem:
  """A classifier for each label, against all others, to be trained.

  Attributes:
    rows: float32 [N, D], documents' features, finite, with sorted indices.
    gold: N rows of labels; those from n_labels on are left out.
    n_labels: L.
    loss: of a document.
    c: weight of the losses beside the regulariser (LIBLINEAR's C).
    threshold: weights of a smaller size become 0.
    seed: decides what is drawn.
    mesh: the devices, for solvers that use them.
    parts: keeps what is done; the same problem goes on from there.
    between: called now and then; what it raises ends training.
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
  """What trains one-vs-all classifiers.

  Attributes:
    processes: whether several processes can train together.
  """

  processes: ClassVar[bool] = False

  @abc.abstractmethod
  def fit(self, problem: OneVsAllProblem) -> BlockWeights:
    """Trains all labels, as one block.

    Labels that no document has come after all others.
    """


def check_rows(rows: sparse.csr_array, gold: Ragged) -> None:
  """Raises DataError where documents cannot be trained on."""
  if rows.shape[0] != len(gold):
    raise ValueError(f'{rows.shape[0]} rows, {len(gold)} documents')
  if not rows.nnz:
    raise DataError('no document has any feature: there is nothing to train on')
  if not np.isfinite(rows.data).all():
    raise DataError('features of documents must be finite')


def documents_of_labels(
  gold: Ragged, n_labels: int
) -> tuple[np.ndarray, np.ndarray]:
  """The documents that have each label: gold transposed.

  Returns:
    indptr: int64 [L + 1].
    documents: int32, ascending in each label.
  """
  docs = np.repeat(np.arange(len(gold), dtype=np.int32), gold.lengths)
  known = gold.values < n_labels
  order = np.argsort(gold.values[known], kind='stable')
  indptr = np.zeros(n_labels + 1, np.int64)
  np.cumsum(np.bincount(gold.values[known], minlength=n_labels), out=indptr[1:])
  return indptr, docs[known][order]


def largest_norm(rows: sparse.csr_array) -> float:
  """Of the documents' rows."""
  largest = 0.0
  for first in range(0, rows.shape[0], _ROWS):
    part = rows[first : first + _ROWS].astype(np.float64)
    part.data **= 2
    largest = max(largest, float(part.sum(axis=1).max(initial=0)))
  return largest**0.5
