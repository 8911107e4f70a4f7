"""Reads the texts, features and labels that a caller has in memory."""

from collections.abc import Container, Iterable, Mapping, Sequence
import dataclasses
from typing import Any
import warnings

import numpy as np
from scipy import sparse

from xjax.core.errors import DataError
from xjax.core.texts import ODD_SPACES, known_name, plain_name
from xjax.data.documents import SparseDocuments
from xjax.data.files.cells import (
  NO_SEPARATOR,
  are_flags,
  as_fact,
  as_flag,
  divisible,
  guess_separator,
  is_missing,
)
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import repeated
from xjax.data.schema import Document, Label

_SAMPLED = 1000  # labels from which it is guessed whether each is one label
_TEXTS = (
  'expected a list, an array or a Series of texts, a DataFrame of texts, a '
  'list of xjax.Document, or a matrix of features'
)


def documents_of(
  texts: Any,
  name: str = 'texts',
  zones: Sequence[str] = (),
  facts: Sequence[str] = (),
) -> list[Document] | SparseDocuments:
  """Returns documents that are given in one of many forms.

  The forms are a list, tuple, generator, one-dimensional array or Series of
  texts or of Documents; a DataFrame, whose columns are the zones; and a sparse
  matrix or two-dimensional array of features, [N, D], which becomes
  SparseDocuments. The id of a text is its position. Of a DataFrame, only the
  columns `zones` are read, if any are given, and those of `facts` that it
  has. A DataError names the argument `name`, and the position of a faulty item.
  """
  if is_frame(texts):
    return _documents_of_frame(texts, name, zones, facts)
  is_matrix = isinstance(texts, np.ndarray) and texts.ndim == 2
  if sparse.issparse(texts) or (is_matrix and texts.dtype.kind in 'biuf'):
    return _rows_of(texts, name)
  items = items_of(texts, name, _TEXTS)
  if items and isinstance(items[0], Document):
    return _check_documents(items, name)
  return [
    Document(str(row), {'text': text_of(item, f'{name}[{row}]')}, None)
    for row, item in enumerate(items)
  ]


def items_of(values: Any, name: str, expected: str) -> list[Any]:
  """Returns the items of a list, array etc.; else a DataError."""
  if isinstance(values, np.ndarray) and values.ndim != 1:
    raise DataError(f'{name} is an array of shape {values.shape}; {expected}')
  wrong = str | bytes | Mapping | set | frozenset | Document
  if isinstance(values, wrong) or not isinstance(values, Iterable):
    raise DataError(f'{name} is {type_name(values)}; {expected}')
  return list(values)


def text_of(value: Any, where: str) -> str:
  """Returns a value as text; a DataError if it is not valid text."""
  if not isinstance(value, str):
    advice = "; use '' for a missing text" if is_missing(value) else ''
    raise DataError(f'{where} is {type_name(value)}, not text{advice}')
  try:
    value.encode('utf-8')
  except UnicodeEncodeError as error:
    raise DataError(
      f'{where} holds a broken Unicode character (half of a surrogate pair) at '
      f'position {error.start}'
    ) from error
  return str(value)


def is_frame(values: Any) -> bool:
  """Returns whether a value looks like a DataFrame (pandas or Polars)."""
  return hasattr(values, 'columns') and hasattr(values, 'to_numpy')


def type_name(value: Any) -> str:
  """Returns words for what a value is, such as `None` or `a dict`."""
  if value is None:
    return 'None'
  if isinstance(value, float | np.floating) and np.isnan(value):
    return 'NaN'
  if isinstance(value, bytes):
    return "bytes, which must be decoded first (such as x.decode('utf-8'))"
  if isinstance(value, str):
    return 'one text'
  return f'of type {type(value).__name__}'


def _documents_of_frame(
  frame: Any, name: str, wanted: Sequence[str], facts: Sequence[str]
) -> list[Document]:
  columns = [plain_name(x) if isinstance(x, str) else x for x in frame.columns]
  given = dict(zip(columns, frame.columns))
  wanted = [*map(plain_name, wanted)]
  known = {*wanted, *facts}
  zones = [zone for zone in columns if not wanted or zone in known]
  if missing := [zone for zone in wanted if zone not in zones]:
    raise DataError(
      f'{name} has no column {missing[0]!r}, which the model was trained on; '
      f'its columns are {columns}'
    )
  if others := [column for column in columns if column not in zones]:
    warnings.warn(
      f'{name}: the columns {others} are ignored: the model was trained on '
      f'{wanted}',
      stacklevel=5,
    )
  named = all(isinstance(zone, str) and zone for zone in zones)
  if not zones or not named or len(set(zones)) < len(zones):
    raise DataError(
      f'{name} has the columns {zones}; columns must have different names, '
      'because they are the zones of the documents'
    )
  texts = []
  for zone in zones:
    cells = list(frame[given[zone]])
    cells = map(as_fact, cells) if zone in facts else cells
    texts.append(
      [text_of(x, f'{name}[{zone!r}][{row}]') for row, x in enumerate(cells)]
    )
  return [
    Document(str(row), dict(zip(zones, texts)), None)
    for row, texts in enumerate(zip(*texts, strict=True))
  ]


def _check_documents(items: Sequence[Any], name: str) -> list[Document]:
  for row, item in enumerate(items):
    where = f'{name}[{row}]'
    if not isinstance(item, Document):
      raise DataError(
        f'{where} is {type_name(item)}, but {name}[0] is a Document; give only '
        'texts, or only Documents'
      )
    for zone, text in item.zones.items():
      text_of(text, f'{where}.zones[{zone!r}]')
  return list(items)


def _rows_of(values: Any, name: str) -> SparseDocuments:
  if values.ndim != 2 or values.dtype.kind not in 'biuf':
    raise DataError(
      f'{name} is a matrix of shape {values.shape} and type {values.dtype}; '
      'features must be real numbers, [documents, features]'
    )
  rows = sparse.csr_array(values)
  rows.sum_duplicates()  # ascending columns, as SparseDocuments needs
  with np.errstate(over='ignore'):
    entries = rows.data.astype(np.float32)
  if not np.isfinite(entries).all():
    at = rows.tocoo().coords
    row, column = (axis[np.argmin(np.isfinite(entries))] for axis in at)
    raise DataError(
      f'{name}[{row}, {column}] is {rows[row, column]}; features must be '
      'finite float32 numbers'
    )
  indptr = rows.indptr
  if indptr[-1] < 2**31:  # the trainers of linear models need int32
    indptr = indptr.astype(np.int32)
  parts = entries, rows.indices.astype(np.int32), indptr
  return SparseDocuments(name, sparse.csr_array(parts, shape=rows.shape))


_LABELS = (
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
  known_ids: Container[str] = (),
) -> MemoryLabels:
  """Returns labels that are given in one of many forms.

  `labels` is a list, tuple, generator, array or Series, whose items are lists,
  tuples, sets or arrays of ids, or each a document's only id; or an indicator
  matrix [N, L] of zeros and ones, also as lists: an array, a sparse matrix or a
  DataFrame. An integer id stands for its digits, and so does 3.0. Of single
  ids, a missing one is a document without labels. `label_names` are all labels,
  or those of the columns; by default, those that occur. Ids are names in their
  one form (plain_name), unless they are ids of Labels or in `known_ids`. `name`
  is for the DataError of a fault.
  """
  if is_frame(labels):
    if label_names is None:
      label_names = [str(column) for column in labels.columns]
    labels = labels.to_numpy()
  known = _known(label_names)
  if getattr(labels, 'ndim', 1) == 2 and (
    labels.dtype.kind in 'biufO' or (flags_of(labels) < 2).all()
  ):
    return _of_matrix(labels, known, name)
  items = items_of(labels, name, _LABELS)
  if _are_matrix(items):
    return _of_matrix(np.array(items, object), known, name)
  index = {label.id: i for i, label in enumerate(known or ())}
  lists = [
    dict.fromkeys(known_name(id_, index or known_ids) for id_ in ids)
    for ids in _id_lists(items, name)
  ]
  if known is None:
    warn_of_joined(items, name)
    return MemoryLabels([tuple(sorted(ids)) for ids in lists], None)
  for row, ids in enumerate(lists):
    for id_ in ids:
      if id_ not in index:
        raise DataError(f'{name}[{row}]: {id_!a} is not in label_names')
  rows = [tuple(sorted(ids, key=index.__getitem__)) for ids in lists]
  return MemoryLabels(rows, known)


def warn_of_joined(items: Sequence[Any], name: str) -> None:
  """Warns of single labels that look like several, as a table divides them."""
  texts = [item for item in items[:_SAMPLED] if isinstance(item, str)]
  if (separator := guess_separator(texts)) == NO_SEPARATOR:
    return
  text = next((x for x in texts if separator and separator in x), None)
  text = text or (divisible(texts) or texts)[0]
  warnings.warn(
    f'{name}: each text is one label, but texts such as {text!r} look like '
    "several; if so, give a list for each document, as text.split(';') or "
    'ast.literal_eval(text) makes it',
    stacklevel=6,
  )


def _known(
  label_names: Sequence[str | Label] | None,
) -> tuple[Label, ...] | None:
  if label_names is None:
    return None
  items = items_of(label_names, 'label_names', 'expected a list of labels')
  labels: dict[str, Label] = {}
  for row, item in enumerate(items):
    where = f'label_names[{row}]'
    is_label = isinstance(item, Label)
    id_ = _id_of(item.id if is_label else item, where)
    id_ = id_ if is_label else plain_name(id_)
    if id_ in labels:
      raise DataError(f'{where}: {id_!a} occurs twice')
    labels[id_] = item if is_label else Label(id_, id_)
  if not labels:
    raise DataError('label_names is empty')
  return tuple(labels.values())


def _id_lists(items: Sequence[Any], name: str) -> list[tuple[str, ...]]:
  first = next((item for item in items if not is_missing(item)), [])
  single = not is_list(first)
  lists = []
  for row, item in enumerate(items):
    where = f'{name}[{row}]'
    if is_missing(item) and single:
      lists.append(())
      continue
    if is_missing(item):
      raise DataError(
        f'{where} is {type_name(item)}; use [] for a document without labels'
      )
    if is_list(item) == single:
      raise DataError(
        f'{where} is {type_name(item)}, but {name}[0] is {type_name(first)}; '
        'give a list of labels for every document, or one label for every '
        'document'
      )
    values = [item] if single else list(item)
    ids = [_id_of(v, f'{where}[{i}]') for i, v in enumerate(values)]
    if twice := next(repeated(map(str, values)), ''):
      raise DataError(f'{where}: the label {twice!a} occurs twice')
    lists.append(tuple(ids))
  return lists


def _are_matrix(items: Sequence[Any]) -> bool:
  """Returns whether lists are rows of zeros and ones, and cannot be labels."""
  rows = all(isinstance(item, list | tuple | np.ndarray) for item in items)
  return rows and len({*map(len, items)}) == 1 and are_flags(items)


def flags_of(matrix: np.ndarray) -> np.ndarray:
  """Returns 0 or 1 for each value, in any spelling; 2 for other values."""
  if matrix.dtype.kind in 'biuf':
    return np.where(np.isin(matrix, (0, 1)), matrix, 2).astype(np.int8)
  numbers = {False: 0, True: 1, None: 2}
  read = np.frompyfunc(lambda value: numbers[as_flag(value)], 1, 1)
  return read(matrix).astype(np.int8)


def is_list(item: Any) -> bool:
  """Returns whether a value is a list, tuple, set or array of labels."""
  is_series = hasattr(item, 'to_list')
  return is_series or isinstance(
    item, list | tuple | set | frozenset | np.ndarray
  )


def _id_of(value: Any, where: str) -> str:
  """Returns a label id; an integer becomes its decimal digits."""
  if isinstance(value, float | np.floating) and value.is_integer():
    value = int(value)  # pandas has integers so if one is missing
  if isinstance(value, int | np.integer) and not isinstance(value, bool):
    return str(value)
  if not isinstance(value, str):
    raise DataError(
      f'{where} is {type_name(value)}; a label must be a text or an integer'
    )
  fields = Fields({})
  # Of a name of only invisible characters nothing is left.
  id_ = fields.as_id(plain_name(value) and value.strip(ODD_SPACES), where)
  if fields.faults:
    raise DataError(fields.faults[0])
  return id_


def _of_matrix(
  matrix: Any, known: tuple[Label, ...] | None, name: str
) -> MemoryLabels:
  flags = matrix if sparse.issparse(matrix) else flags_of(matrix)
  gold = sparse.csr_array(flags, copy=True)  # the caller's may be read-only
  gold.sum_duplicates()
  is_flag = np.isin(gold.data, (0, 1))
  if not is_flag.all():
    row, column = (axis[np.argmin(is_flag)] for axis in gold.tocoo().coords)
    value = (gold if flags is matrix else matrix)[row, column]
    raise DataError(
      f'{name} has other values than 0 and 1, such as {value} in row {row}; '
      + _LABELS
    )
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
