"""Detects the format of a file from its content, whatever its name."""

import enum
import gzip
import os
import zipfile

from xjax.core.errors import DAMAGE, DataError
from xjax.data.files.cells import are_flags
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import (
  PARQUET_MAGIC,
  UTF16_MARKS,
  check_rereadable,
  numbered_lines,
  open_text,
  read_rows,
)
from xjax.data.files.tables import TableFormat, table_format
from xjax.data.formats.columns import usual_labels
from xjax.data.formats.xc_files import is_row, parse_header


class FileFormat(enum.Enum):
  """Defines the known formats of files with predictions or gold labels."""

  PREDICTIONS = 'predictions.npz'
  SPARSE = 'a sparse matrix saved by scipy (.npz: csr, csc or coo)'
  XC_SCORES = 'rows `label:score` under a header `N L`'
  XC_LABELS = (
    'rows `label,label feature:value`, with or without a header `N D L`'
  )
  LISTS = 'JSON lines with labels'
  EURLEX = 'JSON lines with concepts'
  XC_TEXT = 'JSON lines with target_ind'
  HTC = 'JSON lines with doc_label'
  TABLE = 'a table with labels (CSV, TSV, Parquet, JSON, fastText)'


_FIELDS = {
  'labels': FileFormat.LISTS,
  'concepts': FileFormat.EURLEX,
  'target_ind': FileFormat.XC_TEXT,
  'doc_label': FileFormat.HTC,
  'label': FileFormat.HTC,
}
_ZIP = b'PK\x03\x04'
_NPY = b'\x93NUMPY'


def file_format_of(path: str | os.PathLike) -> FileFormat | None:
  """Returns the format of a file; None if it is unknown."""
  # The file is opened again after its format is known, so it cannot be a pipe.
  check_rereadable(path)
  with open_text(path) as file:
    zipped = isinstance(file, gzip.GzipFile)
    try:
      start = file.peek(len(_ZIP))[: len(_ZIP)]
    except DAMAGE:
      start = b''  # _text_kind reads the file again and raises the error
  if start == PARQUET_MAGIC or start[:2] in UTF16_MARKS:
    return FileFormat.TABLE
  if start != _ZIP:
    with open_text(path) as file:
      return _text_kind(file, path)
  if zipped:
    raise DataError(f'{path}: is a gzipped .npz; unpack it with gunzip')
  return _npz_kind(path)


def _npz_kind(path: str | os.PathLike) -> FileFormat | None:
  try:
    with zipfile.ZipFile(path) as zipped:
      names = set(zipped.namelist())
  except DAMAGE as error:
    raise DataError(
      f'{path}: cannot be read ({error}); the file is damaged, or cut short; '
      'get it again'
    ) from error
  if 'format.npy' in names:
    return FileFormat.SPARSE
  return FileFormat.PREDICTIONS if 'schema.npy' in names else None


def _text_kind(file: object, path: str | os.PathLike) -> FileFormat | None:
  number = 0
  for number, line in numbered_lines(file, path):
    if line.lstrip().startswith((b'{', b'[')):
      return _json_kind(path)
    if line.strip() or number == 1:
      counts = parse_header(line)
      if counts:
        return (
          FileFormat.XC_SCORES if len(counts) == 2 else FileFormat.XC_LABELS
        )
      if line.strip():
        if is_row(line):
          return FileFormat.XC_LABELS
        return None if b'\0' in line else _table_kind(path)
  if not number:
    raise DataError(f'{path}: is empty')
  return None


def _table_kind(path: str | os.PathLike) -> FileFormat | None:
  with open_text(path) as file:
    kind = table_format(file, str(path))
  return None if kind is TableFormat.JSON_LINES else FileFormat.TABLE


def _json_kind(path: str | os.PathLike) -> FileFormat | None:
  faults = Faults(on_error=None)
  faults.at_once = True
  row = next((row for _, row in read_rows(path, faults)), {})
  labels = row.get('labels')
  is_flags = isinstance(labels, list) and are_flags([labels])
  if isinstance(labels, str) or is_flags or not _FIELDS.keys() & row:
    return FileFormat.TABLE if usual_labels([*row]) else None
  return next(kind for name, kind in _FIELDS.items() if name in row)


def unknown_format(
  path: str | os.PathLike, content: str, known: tuple[FileFormat, ...]
) -> DataError:
  """Returns the error for a file that has no known format of `content`."""
  listed = '; '.join(kind.value for kind in known)
  dense = (
    '; save a dense array of NumPy with scipy.sparse.save_npz(PATH, '
    'scipy.sparse.csr_array(ARRAY))'
  )
  return DataError(
    f'{path}: does not contain {content} in a known format; known formats are: '
    f'{listed}{dense if _is_dense(path) else ""}'
  )


def _is_dense(path: str | os.PathLike) -> bool:
  """Returns whether np.save, np.savez or np.savez_compressed wrote a file."""
  with open(path, 'rb') as file:
    start = file.read(len(_NPY))
  return start == _NPY or start.startswith(_ZIP)
