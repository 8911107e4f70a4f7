"""The order of labels, from a file: what the columns of other files are."""

from collections.abc import Sequence
import dataclasses
import os
import pathlib
import re

import numpy as np

from xjax.core.errors import DataError
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import Fields, numbered_lines, open_text
from xjax.data.formats.descriptors import read_descriptors
from xjax.judge.files.rows import LabelRows

_NUMBER = re.compile('0|[1-9][0-9]{0,7}')


def column_numbers(labels: Sequence[str]) -> np.ndarray:
  """The column that each id is the number of, int64; -1: it is none."""
  numbers = (int(i) if _NUMBER.fullmatch(i) else -1 for i in labels)
  return np.fromiter(numbers, np.int64, len(labels))


@dataclasses.dataclass(frozen=True, eq=False)
class LabelOrder:
  """Label ids by column.

  Attributes:
    path: the file, for messages.
    labels: L label ids.
  """

  path: str | os.PathLike
  labels: tuple[str, ...]

  @property
  def numbered(self) -> bool:
    """Whether all ids are numbers of columns."""
    return bool(np.all(column_numbers(self.labels) >= 0))

  def name(self, found: LabelRows) -> LabelRows:
    """The same rows, their columns named; as they are if they have ids.

    Raises:
      DataError: there are not as many columns as labels.
    """
    if found.labels is not None:
      return found
    n = len(self.labels)
    if found.n_labels not in (None, n):
      raise DataError(
        f'{found.path}: {found.n_labels} labels, but {self.path} names {n}'
      )
    beyond = f'label {{}} is not in 0..{n - 1}, which {self.path} names'
    found.check(found.rows.values >= n, beyond)
    return dataclasses.replace(found, labels=self.labels, n_labels=n)


def read_label_order(path: str | os.PathLike) -> LabelOrder:
  """Reads labels in order: JSON lines with ids, or one bare id per line.

  Raises:
    DataError: it cannot be read, a line is no id, one stands twice, or ids
      are the numbers of columns in another order, so that it is not known
      which of the two they mean.
  """
  with open_text(path) as file:
    lines = list(numbered_lines(file, path))
  faults = Faults(on_error=None)
  if lines and lines[0][1].lstrip().startswith(b'{'):
    labels = tuple(read_descriptors(pathlib.Path(path), faults).labels)
  else:
    labels = _bare(lines, path, faults)
  faults.settle()
  order = LabelOrder(path, labels)
  if order.numbered and np.any(np.diff(column_numbers(labels)) < 0):
    raise DataError(
      f'{path}: its ids are numbers of columns, but not in their order; name '
      'the labels otherwise, or put them in order'
    )
  return order


def _bare(
  lines: Sequence[tuple[int, bytes]], path: str | os.PathLike, faults: Faults
) -> tuple[str, ...]:
  found: dict[str, None] = {}
  for number, line in lines:
    fields = Fields({})
    id_ = fields.as_id(line.decode('utf-8', 'surrogateescape'), 'the id')
    if id_ in found:
      fields.faults.append(f'duplicate label {id_!a}')
    if faults.extend(path, number, fields.faults):
      found[id_] = None
  if not found:
    faults.add_empty(path, 'label', 0)
  return tuple(found)
