"""Files of the Extreme Classification Repository: features, labels, scores.

A feature file has a header `N D L` and a row per document,
`label,label feature:value feature:value`; a row that starts with a space has no
labels. Without a header it is a LIBSVM multilabel file. A label file has a
header `N L` and rows `label:1.0 label:1.0`; with scores in place of the ones it
is a score file. All are counted from 0, and may be gzipped.
"""

import dataclasses
import math
import os

import numpy as np
from scipy import sparse

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.files.json_lines import numbered_lines, open_text
from xjax.data.formats.svmlight import MOST, SparseRows, read_sparse

NO_HEADER = (
  'a header `N L`, documents and labels, is missing: a score file starts with '
  'one'
)
NOT_GOLD = 'the value of label {} is neither 0 nor 1: scores are no gold'


@dataclasses.dataclass(frozen=True, eq=False)
class XcFile:
  """A feature or label file.

  Attributes:
    features: float32 [N, D], rows ascending; None: a label file.
    gold: N rows of labels, ascending.
    n_labels: L of the header; without one, the largest label + 1.
    header: whether a feature file starts with one; a label file always does.
  """

  features: sparse.csr_array | None
  gold: Ragged
  n_labels: int
  header: bool = True


def read_xc(path: str | os.PathLike, features: bool = True) -> XcFile:
  """Reads a feature or label file.

  Args:
    path: the file.
    features: whether to keep them, where there are any.

  Returns:
    What it says. In a label file a value of 0 is no label.

  Raises:
    DataError: as read_sparse; a value that is no finite number, or, in a label
      file, neither 0 nor 1.
  """
  rows = read_sparse(path, features)
  _check_finite(rows)
  if len(rows.header) == 2:
    rows.check(rows.entries, ~np.isin(rows.values, (0, 1)), NOT_GOLD)
    gold = rows.entries.keep(rows.values != 0)
    return XcFile(None, _ascending(gold), rows.header[1])
  return XcFile(
    features=_matrix(rows) if features else None,
    gold=rows.labels,
    n_labels=rows.header[2] if rows.header else _width(rows.labels),
    header=bool(rows.header),
  )


def read_xc_scores(path: str | os.PathLike) -> sparse.csr_array:
  """Reads a score file; a label file is one of ones.

  Returns:
    float64 [N, L], rows in the order of the file; an entry of 0 is an entry.

  Raises:
    DataError: as read_sparse; no header `N L`; a score that is no finite
      number.
  """
  rows = read_sparse(path)
  if len(rows.header) != 2:
    raise DataError(f'{path}:1: {NO_HEADER}')
  _check_finite(rows)
  return _matrix(rows)


def _check_finite(rows: SparseRows) -> None:
  of_labels = len(rows.header) == 2
  what = f'the {"score of label" if of_labels else "value of feature"} {{}} is '
  rows.check(rows.entries, np.isnan(rows.values), what + 'NaN')
  rows.check(rows.entries, np.isinf(rows.values), what + 'infinite')


def _matrix(rows: SparseRows) -> sparse.csr_array:
  width = rows.header[1] if rows.header else _width(rows.entries)
  indptr = rows.entries.indptr
  if indptr[-1] < 2**31:  # LIBLINEAR and its like take no wider indices
    indptr = indptr.astype(np.int32)
  parts = (rows.values, rows.entries.values, indptr)
  return sparse.csr_array(parts, shape=(len(rows.entries), width))


def _width(rows: Ragged) -> int:
  return int(rows.values.max(initial=-1)) + 1


def _ascending(rows: Ragged) -> Ragged:
  row = np.repeat(np.arange(len(rows)), rows.lengths)
  return Ragged(rows.indptr, rows.values[np.lexsort((rows.values, row))])


def read_pairs(
  path: str | os.PathLike, n_docs: int, n_labels: int
) -> np.ndarray:
  """Reads a reciprocal-pair filter: rows `document label`, counted from 0.

  Such labels are the document itself under another name: predicting them is
  no merit. They are taken out before the best labels are selected; a label
  that scores 0 is not taken out.

  Returns:
    int64 [pairs, 2].

  Raises:
    DataError: the file cannot be read, or a line is no pair of these.
  """
  pairs: list[int] = []
  with open_text(path) as file:
    for number, line in numbered_lines(file, path):
      tokens = line.split()
      where = f'{path}:{number}'
      if tokens and (len(tokens) != 2 or not all(map(_is_count, tokens))):
        raise DataError(f'{where}: not a pair `document label`')
      for token, most, what in zip(
        tokens, (n_docs, n_labels), ('document', 'label')
      ):
        if int(token) >= most:
          raise DataError(
            f'{where}: {what} {int(token)} is not in 0..{most - 1}'
          )
        pairs.append(int(token))
  if not pairs:
    raise DataError(f'{path}: no pair in it')
  return np.array(pairs, np.int64).reshape(-1, 2)


def _is_count(token: bytes) -> bool:
  return token.isdigit() and len(token) < 19


def in_pairs(rows: Ragged, pairs: np.ndarray) -> np.ndarray:
  """Bool over the values of rows: row and value are one of the pairs.

  Args:
    rows: N rows of labels.
    pairs: int64 [pairs, 2], document and label.
  """
  wanted = np.unique(pairs[:, 0] * MOST + pairs[:, 1])
  found = np.repeat(np.arange(len(rows), dtype=np.int64), rows.lengths)
  found = found * MOST + rows.values
  at = np.searchsorted(wanted, found)
  return np.append(wanted, -1)[at] == found


def read_inv_prop(
  path: str | os.PathLike, n_labels: int | None = None
) -> np.ndarray:
  """Reads inverse propensities, a positive number a line, in label order.

  Args:
    path: the file.
    n_labels: how many there must be; None: the file says.

  Returns:
    float64 [L].

  Raises:
    DataError: the file cannot be read, a line is no such number, or there
      are none, or not as many as labels.
  """
  weights: list[float] = []
  with open_text(path) as file:
    for number, line in numbered_lines(file, path):
      if line.strip():
        weights.append(_weight(line, f'{path}:{number}'))
  if not weights:
    raise DataError(f'{path}: no number in it')
  if n_labels not in (None, len(weights)):
    raise DataError(
      f'{path}: {len(weights)} numbers, but there are {n_labels} labels'
    )
  return np.array(weights, np.float64)


def _weight(line: bytes, where: str) -> float:
  try:
    # Python alone takes 1_0 for 10.
    weight = math.nan if b'_' in line else float(line)
  except ValueError:
    weight = math.nan
  if not 0 < weight < math.inf:
    shown = line[:30].decode('utf-8', 'backslashreplace')
    raise DataError(f'{where}: {shown!a} is no positive number')
  return weight
