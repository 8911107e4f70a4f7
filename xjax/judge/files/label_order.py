"""Reads a file of label ids that name the columns of gold and score files."""

from collections.abc import Sequence
import dataclasses
import itertools
import os
import re

import numpy as np

from xjax.core.errors import DataError
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import (
  check_rereadable,
  numbered_lines,
  open_text,
)
from xjax.data.formats.label_files import (
  is_table,
  read_descriptors,
  read_ids,
)
from xjax.judge.files.document_labels import DocumentLabels

_NUMBER = re.compile('0|[1-9][0-9]{0,7}')


def column_numbers(labels: Sequence[str]) -> np.ndarray:
  """Converts ids to int64 column numbers; another id becomes -1."""
  numbers = (int(i) if _NUMBER.fullmatch(i) else -1 for i in labels)
  return np.fromiter(numbers, np.int64, len(labels))


@dataclasses.dataclass(frozen=True, eq=False)
class LabelOrder:
  """Holds the label id of each column."""

  path: str | os.PathLike  # for messages
  labels: tuple[str, ...]

  @property
  def numbered(self) -> bool:
    return bool(np.all(column_numbers(self.labels) >= 0))

  def check(self, source: DocumentLabels) -> None:
    """Checks that all label ids of a file are in this order.

    A mistyped id would count as one label more, and change all metrics.
    """
    known = set(self.labels)
    source.check_labels(
      np.array([id_ not in known for id_ in source.labels], bool),
      f'label {{}} is not in {self.path} (--label_order); correct the id, or '
      'add a line for the label (and a column to files with columns)',
    )


def name_columns(
  source: DocumentLabels, ids: Sequence[str], path: str | os.PathLike
) -> DocumentLabels:
  """Adds label ids to the rows of a file that has only column numbers."""
  if source.labels is not None:
    return source
  n = len(ids)
  if source.n_labels not in (None, n):
    raise DataError(
      f'{source.path}: has {source.n_labels} labels, but {path} has {n}'
    )
  message = f'label {{}} is not in 0..{n - 1}, the columns of {path}'
  source.check(source.rows.values >= n, message)
  return dataclasses.replace(source, labels=tuple(ids), n_labels=n)


def read_label_order(path: str | os.PathLike) -> LabelOrder:
  """Reads the label id of each column: a file of labels, or plain ids.

  Ids that are column numbers must ascend: otherwise, the column could be the id
  or the place of the line.
  """
  check_rereadable(path)
  with open_text(path) as file:
    _, first = next(numbered_lines(file, path), (0, b''))
  faults = Faults(on_error=None)
  if first.lstrip().startswith(b'{') or is_table(path):
    labels = tuple(read_descriptors(path, faults))
  else:
    lines = read_ids(path, faults)
    labels = tuple(lines)
    # A line that is left out would move the labels after it.
    rows = (row for row, line in enumerate(lines.values(), 1) if row != line)
    for row in itertools.islice(rows, not faults.count):
      faults.add(path, row, 'the id is empty')
  faults.raise_or_log()
  order = LabelOrder(path, labels)
  if order.numbered and np.any(np.diff(column_numbers(labels)) < 0):
    raise DataError(
      f'{path}: the ids are column numbers, but not in ascending order; use '
      'other ids, or sort the lines by id'
    )
  return order
