"""What lies beside the Extreme Classification Repository's data.

Pairs of a document and a label that must not be predicted for it (a
reciprocal-pair filter), and inverse propensities of the labels.
"""

import math
import os

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.files.text_lines import numbered_lines, open_text
from xjax.data.formats.svmlight import MOST
from xjax.data.formats.xc_files import write_lines


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
