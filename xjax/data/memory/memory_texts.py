"""Turns the texts or features that a caller has in memory into documents."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from xjax.core.errors import DataError
from xjax.data.documents import SparseDocuments
from xjax.data.schema import Document

_EXPECTED = (
  'expected a list, an array or a Series of texts, a DataFrame of texts, a '
  'list of xjax.Document, or a matrix of features'
)


def documents_of(
  texts: Any, name: str = 'texts'
) -> list[Document] | SparseDocuments:
  """Returns documents that are given in one of many forms.

  The forms are a list, tuple, generator, one-dimensional array or Series of
  texts or of Documents; a DataFrame, whose columns are the zones; and a sparse
  matrix or two-dimensional array of features, [N, D], which becomes
  SparseDocuments. The id of a text is its position. A DataError names the
  argument `name`, and the position of a faulty item.
  """
  if sparse.issparse(texts) or _is_numeric(texts):
    return _rows_of(texts, name)
  if is_frame(texts):
    return _documents_of_frame(texts, name)
  items = items_of(texts, name, _EXPECTED)
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
    raise DataError(f'{name} is {kind_of(values)}; {expected}')
  return list(values)


def text_of(value: Any, where: str) -> str:
  """Returns a value as text; a DataError if it is not valid text."""
  if not isinstance(value, str):
    advice = "; use '' for a missing text" if is_missing(value) else ''
    raise DataError(f'{where} is {kind_of(value)}, not text{advice}')
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


def is_missing(value: Any) -> bool:
  """Returns whether a value is None, NaN or the missing value of pandas."""
  if value is None or type(value).__name__ in ('NAType', 'NaTType'):
    return True
  return isinstance(value, float | np.floating) and bool(np.isnan(value))


def kind_of(value: Any) -> str:
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


def _is_numeric(values: Any) -> bool:
  two_axes = isinstance(values, np.ndarray) and values.ndim == 2
  return two_axes and values.dtype.kind in 'biuf'


def _documents_of_frame(frame: Any, name: str) -> list[Document]:
  zones = list(frame.columns)
  named = all(isinstance(zone, str) and zone.strip() for zone in zones)
  if not zones or not named or len(set(zones)) < len(zones):
    raise DataError(
      f'{name} has the columns {zones}; columns must have different names, '
      'because they are the zones of the documents'
    )
  columns = [
    [text_of(value, f'{name}[{zone!r}][{row}]') for row, value in enumerate(x)]
    for zone, x in ((zone, list(frame[zone])) for zone in zones)
  ]
  return [
    Document(str(row), dict(zip(zones, texts)), None)
    for row, texts in enumerate(zip(*columns, strict=True))
  ]


def _check_documents(items: Sequence[Any], name: str) -> list[Document]:
  for row, item in enumerate(items):
    where = f'{name}[{row}]'
    if not isinstance(item, Document):
      raise DataError(
        f'{where} is {kind_of(item)}, but {name}[0] is a Document; give only '
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
