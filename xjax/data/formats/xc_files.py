"""Files of the Extreme Classification Repository: features, labels, scores.

A feature file has a header `N D L` and a row per document,
`label,label feature:value feature:value`; a row that starts with a space has no
labels. Without a header it is a LIBSVM multilabel file. A label file has a
header `N L` and rows `label:1.0 label:1.0`; with scores in place of the ones it
is a score file. All are counted from 0, may be gzipped, and are written back as
they were read.
"""

from collections.abc import Iterable, Iterator
import dataclasses
import gzip
import math
import os

import numpy as np
from scipy import sparse

from xjax.core.atomic import atomic_write
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


def write_xc(path: str | os.PathLike, xc: XcFile) -> None:
  """Writes a feature or label file that read_xc reads as the same.

  Values have six decimals, as those of the repository, where this keeps them
  exact, else as many digits as that takes.

  Args:
    path: the file; gzipped if its name ends in .gz.
    xc: what to write.
  """
  if xc.features is None:
    ones = np.ones(len(xc.gold.values))
    shape = (len(xc.gold), xc.n_labels)
    write_xc_scores(
      path, sparse.csr_array((ones, xc.gold.values, xc.gold.indptr), shape)
    )
    return
  n, d = xc.features.shape
  gold = (','.join(map(str, labels.tolist())) for labels in xc.gold)
  entries = _entries(xc.features)
  rows = (
    f'{labels} {row}' if row else labels for labels, row in zip(gold, entries)
  )
  header = [f'{n} {d} {xc.n_labels}'] if xc.header else []
  write_lines(path, header, rows)


def write_xc_scores(path: str | os.PathLike, scores: sparse.csr_array) -> None:
  """Writes a score file that read_xc_scores reads as the same.

  Args:
    path: the file; gzipped if its name ends in .gz.
    scores: float [N, L]; rows keep their order.
  """
  n, n_labels = scores.shape
  write_lines(path, [f'{n} {n_labels}'], _entries(scores, exact=True))


def _entries(matrix: sparse.csr_array, exact: bool = False) -> Iterator[str]:
  values = matrix.data
  if exact or not _six_decimals(values):
    spell = '{}:{!s}'.format  # the shortest text that is read as the same
  else:
    spell = '{}:{:.6f}'.format
  for start, end in zip(matrix.indptr, matrix.indptr[1:]):
    indices = matrix.indices[start:end].tolist()
    yield ' '.join(map(spell, indices, values[start:end]))


def _six_decimals(values: np.ndarray) -> bool:
  """Whether float32 values are the same when written so."""
  rounded = np.round(values.astype(np.float64), 6).astype(np.float32)
  return np.array_equal(rounded, values)


def write_lines(
  path: str | os.PathLike, header: list[str], rows: Iterable[str]
) -> None:
  """Writes a header and rows, a line each; gzipped if path ends in .gz."""
  with atomic_write(path, 'wb') as file:
    zipped = os.fspath(path).endswith('.gz')
    # Without a name and a time: the same bytes for the same rows.
    out = gzip.GzipFile('', 'wb', fileobj=file, mtime=0) if zipped else file
    out.writelines(f'{line}\n'.encode() for line in header)
    out.writelines(f'{row}\n'.encode() for row in rows)
    if zipped:
      out.close()


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


def write_pairs(path: str | os.PathLike, pairs: np.ndarray) -> None:
  """Writes a filter that read_pairs reads as the same.

  Args:
    path: the file; gzipped if its name ends in .gz.
    pairs: integers [pairs, 2], document and label.
  """
  write_lines(path, [], (f'{doc} {label}' for doc, label in pairs.tolist()))


def among(rows: Ragged, pairs: np.ndarray) -> np.ndarray:
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


def write_inv_prop(path: str | os.PathLike, weights: np.ndarray) -> None:
  """Writes inverse propensities, float64 [L], as read_inv_prop reads them."""
  write_lines(path, [], map(repr, weights.tolist()))
