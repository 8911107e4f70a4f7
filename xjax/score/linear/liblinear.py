"""One classifier per label by LIBLINEAR, on CPUs.

min 0.5 (|w|^2 + b^2) + C sum_i loss(y_i (w.x_i + b)) for each label, in its
dual by coordinate descent (Hsieh et al. 2008; logistic: Yu et al. 2011), as
scikit-learn ships it. The bias is the weight of a feature that is always 1.

Memory: documents as float64 CSR, 12 bytes per entry, here, and once more in
files that all other processes map; in each process that trains 16 bytes per
entry, LIBLINEAR's own copy, made anew for each label, and 8 per feature.
"""

from collections.abc import Callable

from absl import logging
import numpy as np
from scipy import sparse
import tqdm

from xjax.core.errors import ConfigError, DataError, UserError
from xjax.core.types import Ragged
from xjax.score.linear.classifiers import Classifiers
from xjax.score.linear.config import Loss
from xjax.score.linear.liblinear_batches import (
  SKIPPED,
  UNCONVERGED,
  Problem,
  Settings,
  part_name,
  save_batch,
)
from xjax.score.linear.liblinear_processes import train_in_processes
from xjax.score.linear.part_files import PartFiles
from xjax.score.linear.problem import (
  check_rows,
  documents_of_labels,
  largest_norm,
)


def fit_liblinear(
  rows: sparse.csr_array,
  gold: Ragged,
  n_labels: int,
  *,
  loss: Loss,
  c: float,
  eps: float,
  max_iter: int,
  threshold: float,
  batch_labels: int,
  workers: int,
  parts: PartFiles,
  between: Callable[[], None],
) -> Classifiers:
  """Trains labels 0 to n_labels - 1, each against all others.

  Labels that no document has come after all others (Classifiers.with_last).

  Args:
    rows: float32 [N, D], documents' features, finite.
    gold: documents' labels; those from n_labels on are left out.
    n_labels: L.
    loss: of a document.
    c: weight of the losses beside the norm.
    eps: LIBLINEAR's stopping tolerance; 0.1 is its own for the dual.
    max_iter: passes over the documents, at most; the log tells how many labels
      it ended.
    threshold: smaller weights are left out.
    batch_labels: labels of one part; what a killed run loses.
    workers: processes that train, each a batch at a time; 1: this one.
    parts: keeps what is done; the same call goes on from there. Its key need
      not tell of any of these arguments.
    between: called between labels, or five times a second where other
      processes train; what it raises ends training.

  Raises:
    ConfigError: a number is out of range.
    DataError: rows are not finite, or have too many entries.
    UserError: a process died.
  """
  settings = Settings(loss, c, eps, max_iter, threshold)
  _check(settings, batch_labels, workers)
  problem = _problem(rows, gold, n_labels)
  batches = [
    range(start, min(start + batch_labels, n_labels))
    for start in range(0, n_labels, batch_labels)
  ]
  parts = parts.of('liblinear', rows, gold, n_labels, settings, batch_labels)
  left = [batch for batch in batches if parts.load(part_name(batch)) is None]
  done = n_labels - sum(map(len, left))
  with tqdm.tqdm(
    total=n_labels, initial=done, desc='labels', unit='label', disable=None
  ) as bar:
    if workers == 1:
      _here(problem, left, settings, parts, between, bar)
    elif left:
      train_in_processes(problem, left, settings, parts, between, bar, workers)
  return _joined(batches, parts, largest_norm(rows))


def _check(settings: Settings, batch_labels: int, workers: int) -> None:
  least = {'c': 0, 'eps': 0, 'max_iter': 0, 'batch_labels': 0, 'workers': 0}
  have = {
    **vars(settings),
    'batch_labels': batch_labels,
    'workers': workers,
  }
  for name, bound in least.items():
    if not have[name] > bound:
      raise ConfigError(f'{name}={have[name]}: must be above {bound}')
  if not settings.threshold >= 0:
    raise ConfigError(f'threshold={settings.threshold}: must not be negative')


def _problem(rows: sparse.csr_array, gold: Ragged, n_labels: int) -> Problem:
  """As LIBLINEAR takes it."""
  if rows.nnz >= 2**31:
    raise DataError(
      f'{rows.nnz} features of all documents are more than LIBLINEAR takes '
      '(2^31): keep fewer features'
    )
  check_rows(rows, gold)
  indptr = np.append(rows.indptr, rows.nnz).astype(np.int32)
  rows64 = sparse.csr_array(
    (rows.data.astype(np.float64), rows.indices.astype(np.int32), indptr),
    shape=(rows.shape[0] + 1, rows.shape[1]),
  )
  rows64.sum_duplicates()
  return Problem(rows64, *documents_of_labels(gold, n_labels))


def _here(
  problem: Problem,
  batches: list[range],
  settings: Settings,
  parts: PartFiles,
  between: Callable[[], None],
  bar: tqdm.tqdm,
) -> None:
  """Trains in this process."""

  def each() -> None:
    bar.update()
    between()

  for batch in batches:
    save_batch(problem, batch, settings, parts, each)


def _joined(
  batches: list[range], parts: PartFiles, largest_norm: float
) -> Classifiers:
  """All parts."""
  found = [parts.load(part_name(batch)) for batch in batches]
  if any(part is None for part in found):
    raise UserError(f'{parts.folder}: a part is gone; start again')
  unconverged = sum(int(part[UNCONVERGED].sum()) for part in found)
  if unconverged:
    logging.warning(
      '%d labels had not converged after max_iter passes', unconverged
    )
  skipped_L = np.concatenate([part[SKIPPED] for part in found])
  joined = Classifiers.joined([Classifiers.of_arrays(part) for part in found])
  return joined.with_last(skipped_L, largest_norm)
