"""A batch of labels by LIBLINEAR; what processes that train need, not more."""

from collections.abc import Callable
import dataclasses
import json
import pathlib
import warnings

import numpy as np
from scipy import sparse
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from xjax.core.atomic import write_json
from xjax.score.linear.classifiers import Classifiers
from xjax.score.linear.config import Loss
from xjax.score.linear.part_files import PartFiles

SKIPPED, UNCONVERGED = 'skipped', 'unconverged'  # bool [C], by label of a part


@dataclasses.dataclass(frozen=True)
class Settings:
  """How each label is trained.

  Attributes:
    loss: of a document.
    c: its weight beside the norm of weights and bias.
    eps: LIBLINEAR's stopping tolerance.
    max_iter: passes over the documents, at most.
    threshold: as of Classifiers.pruned.
  """

  loss: Loss
  c: float
  eps: float
  max_iter: int
  threshold: float


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
  """Documents and the labels they have.

  Attributes:
    rows: float64 CSR [N + 1, D] with int32 indices, ascending in each row; the
      last row is empty.
    indptr: [L + 1], label l is of documents[indptr[l]:indptr[l + 1]].
    documents: rows of each label.
  """

  rows: sparse.csr_array
  indptr: np.ndarray
  documents: np.ndarray

  def save(self, folder: pathlib.Path) -> None:
    """Writes what processes then share, mapped into their memory."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in self._arrays().items():
      np.save(folder / f'{name}.npy', array)
    write_json(folder / 'shape.json', list(map(int, self.rows.shape)))

  @classmethod
  def mapped(cls, folder: pathlib.Path) -> 'Problem':
    """What was saved, none of it copied."""
    data, indices, row_indptr, indptr, documents = (
      np.load(folder / f'{name}.npy', mmap_mode='r')
      for name in ('data', 'indices', 'row_indptr', 'indptr', 'documents')
    )
    shape = tuple(json.loads((folder / 'shape.json').read_text()))
    rows = sparse.csr_array((data, indices, row_indptr), shape=shape)
    rows.has_canonical_format = True  # else scikit-learn would sort in place
    return cls(rows, indptr, documents)

  def _arrays(self) -> dict[str, np.ndarray]:
    return {
      'data': self.rows.data,
      'indices': self.rows.indices,
      'row_indptr': self.rows.indptr,
      'indptr': self.indptr,
      'documents': self.documents,
    }


def train_batch(
  problem: Problem, labels: range, settings: Settings, each: Callable[[], None]
) -> tuple[Classifiers, dict[str, np.ndarray]]:
  """Trains labels one after the other.

  Args:
    problem: all labels'.
    labels: which.
    settings: of all.
    each: called after each label; what it raises ends the batch.

  Returns:
    The labels' classifiers, of zeros where no document has the label, and the
    arrays SKIPPED, of these, and UNCONVERGED, of those that max_iter ended.
  """
  found = []
  flags = {x: np.zeros(len(labels), bool) for x in (SKIPPED, UNCONVERGED)}
  n_docs, n_features = problem.rows.shape
  weights_N = np.ones(n_docs)
  # LIBLINEAR wants two classes, also where all documents have a label: the
  # empty row is of the other and does not count.
  weights_N[-1] = 0
  for at, label in enumerate(labels):
    gold = problem.documents[problem.indptr[label] : problem.indptr[label + 1]]
    weights_D1, bias = np.zeros((n_features, 1)), np.zeros(1)
    flags[SKIPPED][at] = not len(gold)
    if len(gold):
      has_N = np.zeros(n_docs)
      has_N[gold] = 1
      model, flags[UNCONVERGED][at] = _fitted(
        settings, problem.rows, has_N, weights_N
      )
      weights_D1, bias = model.coef_.T, model.intercept_
    found.append(Classifiers.pruned(weights_D1, bias, settings.threshold))
    each()
  return Classifiers.joined(found), flags


def _fitted(
  settings: Settings,
  rows: sparse.csr_array,
  has_N: np.ndarray,
  weights_N: np.ndarray,
) -> tuple[LinearSVC | LogisticRegression, bool]:
  """One label's estimator, and whether max_iter ended it."""
  shared = {
    'dual': True,  # of sparse rows several times faster than the primal
    'C': settings.c,
    'tol': settings.eps,
    'max_iter': settings.max_iter,
    'random_state': 0,
    'intercept_scaling': 1,
  }
  match settings.loss:
    case Loss.SQUARED_HINGE:
      model = LinearSVC(loss='squared_hinge', **shared)
    case Loss.LOGISTIC:
      model = LogisticRegression(solver='liblinear', **shared)
  with warnings.catch_warnings(), sklearn.config_context(assume_finite=True):
    warnings.simplefilter('ignore', ConvergenceWarning)
    model.fit(rows, has_N, sample_weight=weights_N)
  return model, bool(np.max(model.n_iter_) >= settings.max_iter)


def part_name(labels: range) -> str:
  """Of the part with these labels."""
  return f'labels_{labels.start:08}'


def save_batch(
  problem: Problem,
  labels: range,
  settings: Settings,
  parts: PartFiles,
  each: Callable[[], None],
) -> None:
  """Trains labels and keeps them as a part."""
  found, flags = train_batch(problem, labels, settings, each)
  parts.save(part_name(labels), {**found.arrays(), **flags})
