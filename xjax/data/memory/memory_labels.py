"""Turns the labels that a caller has in memory into lists of label ids."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np
from scipy import sparse

from xjax.core.errors import DataError
from xjax.data.files.json_lines import Fields
from xjax.data.memory.memory_texts import (
  is_frame,
  is_missing,
  items_of,
  kind_of,
)
from xjax.data.schema import Label

_EXPECTED = (
  'expected a list of labels for each document, one label for each document, '
  'or an indicator matrix of zeros and ones, [documents, labels]'
)


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryLabels:
  rows: list[tuple[str, ...]]  # ids of N documents; as in `labels`, or sorted
  labels: tuple[Label, ...] | None  # all labels, in order, if they are given


def labels_of(
  labels: Any,
  label_names: Sequence[str | Label] | None = None,
  name: str = 'labels',
) -> MemoryLabels:
  """Returns labels that are given in one of many forms.

  `labels` is a list, tuple, generator, array or Series, whose items are lists,
  tuples, sets or arrays of ids, or each a document's only id; or an indicator
  matrix [N, L] of zeros and ones: an array, a sparse matrix or a DataFrame. An
  integer id stands for its digits. `label_names` are all labels, or those of
  the columns; by default, those that occur. `name` is for the DataError of a
  fault.
  """
  if is_frame(labels):
    if label_names is None:
      label_names = [str(column) for column in labels.columns]
    labels = labels.to_numpy()
  known = _known(label_names)
  if getattr(labels, 'ndim', 1) == 2 and labels.dtype.kind in 'biufO':
    return _of_matrix(labels, known, name)
  lists = _id_lists(items_of(labels, name, _EXPECTED), name)
  if known is None:
    return MemoryLabels([tuple(sorted(ids)) for ids in lists], None)
  index = {label.id: i for i, label in enumerate(known)}
  for row, ids in enumerate(lists):
    for id_ in ids:
      if id_ not in index:
        raise DataError(f'{name}[{row}]: {id_!a} is not in label_names')
  rows = [tuple(sorted(ids, key=index.__getitem__)) for ids in lists]
  return MemoryLabels(rows, known)


def _known(
  label_names: Sequence[str | Label] | None,
) -> tuple[Label, ...] | None:
  if label_names is None:
    return None
  items = items_of(label_names, 'label_names', 'expected a list of labels')
  labels: dict[str, Label] = {}
  for row, item in enumerate(items):
    where = f'label_names[{row}]'
    id_ = _id_of(item.id if isinstance(item, Label) else item, where)
    if id_ in labels:
      raise DataError(f'{where}: {id_!a} occurs twice')
    labels[id_] = item if isinstance(item, Label) else Label(id_, id_)
  if not labels:
    raise DataError('label_names is empty')
  return tuple(labels.values())


def _id_lists(items: Sequence[Any], name: str) -> list[tuple[str, ...]]:
  single = bool(items) and not _is_list(items[0])
  lists = []
  for row, item in enumerate(items):
    where = f'{name}[{row}]'
    if is_missing(item):
      raise DataError(
        f'{where} is {kind_of(item)}; use [] for a document without labels'
      )
    if _is_list(item) == single:
      raise DataError(
        f'{where} is {kind_of(item)}, but {name}[0] is {kind_of(items[0])}; '
        'give a list of labels for every document, or one label for every '
        'document'
      )
    values = [item] if single else list(item)
    ids = [_id_of(v, f'{where}[{i}]') for i, v in enumerate(values)]
    if len(set(ids)) < len(ids):
      twice = next(id_ for id_ in ids if ids.count(id_) > 1)
      raise DataError(f'{where}: the label {twice!a} occurs twice')
    lists.append(tuple(ids))
  return lists


def _is_list(item: Any) -> bool:
  return isinstance(item, list | tuple | set | frozenset | np.ndarray)


def _id_of(value: Any, where: str) -> str:
  """Returns a label id; an integer becomes its decimal digits."""
  if isinstance(value, int | np.integer) and not isinstance(value, bool):
    return str(value)
  if not isinstance(value, str):
    raise DataError(
      f'{where} is {kind_of(value)}; a label must be a text or an integer'
    )
  fields = Fields({})
  id_ = fields.as_id(str(value), where)
  if fields.faults:
    raise DataError(fields.faults[0])
  return id_


def _of_matrix(
  matrix: Any, known: tuple[Label, ...] | None, name: str
) -> MemoryLabels:
  if not sparse.issparse(matrix):  # 2 is refused below, like other values
    matrix = np.where(np.isin(matrix, (0, 1)), matrix, 2).astype(np.int8)
  gold = sparse.csr_array(matrix, copy=True)  # the caller's may be read-only
  gold.sum_duplicates()
  if not np.isin(gold.data, (0, 1)).all():
    raise DataError(f'{name} has other values than 0 and 1; {_EXPECTED}')
  n_labels = gold.shape[1]
  if known is None:
    known = tuple(Label(str(i), str(i)) for i in range(n_labels))
  if len(known) != n_labels:
    raise DataError(
      f'{name} has {n_labels} columns, but label_names has {len(known)} labels'
    )
  gold.eliminate_zeros()
  ids = np.array([label.id for label in known], object)
  rows = np.split(ids[gold.indices], gold.indptr[1:-1])
  return MemoryLabels([tuple(row) for row in rows[: gold.shape[0]]], known)
