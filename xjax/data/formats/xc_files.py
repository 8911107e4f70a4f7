"""Reads the file formats of the Extreme Classification Repository.

- A feature file has a header `N D L` and one row per document,
  `label,label feature:value feature:value`. A row that starts with a space has
  no labels. The header may be missing, as in LIBSVM multilabel files.
- A label file has a header `N L` and one row per document,
  `label:1.0 label:1.0`.
- A score file is like a label file, but has scores in place of 1.0.

The header has the numbers of documents (N), features (D) and labels (L). The
first feature and the first label have number 0. All files may be gzipped.
"""

import dataclasses
import math
import os

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.files.json_lines import numbered_lines, open_text
from xjax.data.formats.svmlight import (
  MOST,
  SparseRows,
  read_sparse,
)

NOT_GOLD = (
  'the value of gold label {} must be 0 or 1; scores are not gold labels'
)


def read_xc(path: str | os.PathLike, features: bool = True) -> SparseRows:
  """Reads a feature or label file; the labels of both are in `labels`.

  In a label file, a label with value 0 is left out. A value in it that is not 0
  or 1, or a feature that is not finite, is a DataError.
  """
  rows = read_sparse(path, features)
  if len(rows.header) != 2:
    faulty = ~np.isfinite(rows.values)
    rows.check(rows.entries, faulty, 'the value of feature {} is not finite')
    return rows
  rows.check(rows.entries, ~np.isin(rows.values, (0, 1)), NOT_GOLD)
  gold = rows.entries.keep(rows.values != 0).ascending()
  return dataclasses.replace(rows, labels=gold)


def read_pairs(
  path: str | os.PathLike, n_docs: int, n_labels: int
) -> np.ndarray:
  """Reads the int64 rows `document label` of a reciprocal-pair filter.

  Numbers start at 0. In a pair, label and document are the same item, so the
  label is removed before the best labels of the document are selected.
  """
  pairs: list[int] = []
  with open_text(path) as file:
    for number, line in numbered_lines(file, path):
      tokens = line.split()
      where = f'{path}:{number}'
      if tokens and (len(tokens) != 2 or not all(map(_is_count, tokens))):
        raise DataError(f'{where}: not a pair `document label`')
      for token, most, kind in zip(
        tokens, (n_docs, n_labels), ('document', 'label')
      ):
        if int(token) >= most:
          raise DataError(
            f'{where}: {kind} {int(token)} is not in 0..{most - 1}'
          )
        pairs.append(int(token))
  if not pairs:
    raise DataError(f'{path}: no pair in it')
  return np.array(pairs, np.int64).reshape(-1, 2)


def _is_count(token: bytes) -> bool:
  return token.isdigit() and len(token) < 19  # fits into int64


def in_pairs(rows: Ragged, pairs: np.ndarray) -> np.ndarray:
  """Returns for each of rows.values whether it forms a pair with its row."""
  # Each pair is encoded as one integer.
  pair_codes = np.unique(pairs[:, 0] * MOST + pairs[:, 1])
  codes = rows.cells(MOST)
  at = np.searchsorted(pair_codes, codes)
  return np.append(pair_codes, -1)[at] == codes


def read_inv_prop(path: str | os.PathLike) -> np.ndarray:
  """Reads inverse propensities, one positive number per line, in label order.

  The result is float64 [L].
  """
  weights: list[float] = []
  with open_text(path) as file:
    for number, line in numbered_lines(file, path):
      if line.strip():
        weights.append(_weight(line, f'{path}:{number}'))
  if not weights:
    raise DataError(f'{path}: no number in it')
  return np.array(weights, np.float64)


def _weight(line: bytes, where: str) -> float:
  try:
    # Python would read 1_0 as 10; other programs would not.
    weight = math.nan if b'_' in line else float(line)
  except ValueError:
    weight = math.nan
  if not 0 < weight < math.inf:
    shown = line[:30].decode('utf-8', 'backslashreplace')
    raise DataError(f'{where}: {shown!a} is not a positive number')
  return weight
