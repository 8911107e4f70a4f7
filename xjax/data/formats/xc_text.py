"""Reads raw text of the Extreme Classification Repository (LF-* datasets).

A folder has trn.json, tst.json and perhaps dev.json. Each line is a document,
{"uid", "title", "content", "target_ind": [columns], "target_rel": [numbers]},
where content and target_rel may be missing. A column is the number of a label.

The names of labels are in lbl.json, with one line {"title"} per label, or in
Y.txt, with one name per line. The first line describes column 0. Each file may
be gzipped.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import itertools
import pathlib

from xjax.core.errors import DataError
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import (
  Fields,
  find_files,
  find_folder,
  only_file,
  read_lines,
  read_rows,
  repeated,
)
from xjax.data.formats.corpus_builder import (
  CorpusBuilder,
  SourceCorpus,
  choose_splits,
)
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.descriptors import Descriptors
from xjax.data.formats.jsonl import read_split
from xjax.data.schema import Document, Label, Labels
from xjax.data.text.token_cache import default_cache_dir


@dataclasses.dataclass
class XcRepoData(DataConfig):
  """Configures raw text from the Extreme Classification Repository.

  The files are trn.json, tst.json and dev.json, plain or gzipped, and lbl.json
  or Y.txt with the names of labels. A label's id is its column. By default,
  all columns are labels, even if no split uses them; see the field `labels`.
  """

  labels: str = 'all'

  label_field = 'target_ind'

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    return read_xc_repo(self, splits, usual)

  def read_record(
    self, fields: Fields, default_id: str | None, need_labels: bool
  ) -> Document:
    return text_document(fields, default_id, need_labels)


ZONES = ('title', 'content')
_SPLITS = {'trn': 'train', 'tst': 'test'}
_LABELS = 'lbl'
_NAMES = 'Y'
_EXAMPLE = 'a trn.json or trn.json.gz'


def text_document(
  fields: Fields, default_id: str | None = None, need_labels: bool = True
) -> Document:
  """Reads a document and its faults; a label with target_rel 0 is left out."""
  before = len(fields.faults)
  id_ = fields.identifier('uid', default_id)
  zones = {name: fields.text(name, '') for name in ZONES if name in fields}
  if len(fields.faults) == before and not any(map(str.strip, zones.values())):
    fields.faults.append('the document has neither title nor content')
  return Document(id_, zones, target_columns(fields, need_labels))


def target_columns(fields: Fields, required: bool = True) -> tuple[str, ...]:
  """Reads target_ind as label ids, and adds faults to fields.faults."""
  if 'target_ind' not in fields:
    if required:
      fields.faults.append("no field 'target_ind'")
    return ()
  columns = fields.row['target_ind']
  if not isinstance(columns, list) or not all(map(_is_column, columns)):
    fields.faults.append('target_ind must be a list of columns, from 0')
    return ()
  for twice in itertools.islice(repeated(columns), 1):
    fields.faults.append(f'{twice} occurs twice in target_ind')
  weights = fields.row.get('target_rel', [1] * len(columns))
  fits = isinstance(weights, list) and len(weights) == len(columns)
  if not fits or not all(type(w) in (int, float) for w in weights):
    fields.faults.append(
      'target_rel must be a list with one number per entry of target_ind'
    )
    return ()
  return tuple(str(c) for c, weight in zip(columns, weights) if weight)


def _is_column(value: object) -> bool:
  return type(value) is int and 0 <= value < 2**31 - 1


def read_xc_repo(
  data: XcRepoData, splits: tuple[str, ...] = (), usual: bool = True
) -> SourceCorpus:
  """Reads a folder of raw text; trn becomes train, and tst becomes test."""
  folder = find_folder(data.dir)
  builder = CorpusBuilder(default_cache_dir(data), Faults(data.on_error))
  files = find_files(folder, 'json')
  columns = _read_labels(folder, files.pop(_LABELS, []), builder.faults)
  builder.described = _Columns(columns)
  files = {_SPLITS.get(name, name): paths for name, paths in files.items()}
  if not files:
    raise DataError(f'{data.dir}: no split to read; expected {_EXAMPLE}')
  for name in choose_splits(data.dir, files, splits, usual, _EXAMPLE):
    read_split(builder, name, files[name], text_document)
  left_out = builder.faults.settle()
  return builder.corpus(data.dir, left_out, columns, ordered=True)


class _Columns(Descriptors):
  """Holds descriptors in arrays, because there may be 100 million labels."""

  def __init__(self, columns: Labels):
    super().__init__(complete=len(columns) > 0)
    self.columns = columns

  def is_unknown(self, label_id: str) -> bool:
    return self.complete and int(label_id) >= len(self.columns)


def _read_labels(
  folder: pathlib.Path, paths: list[pathlib.Path], faults: Faults
) -> Labels:
  """Reads the label of each column from lbl.json, or else from Y.txt."""
  if paths:
    return _by_column(_titles, only_file(paths, faults), faults)
  names = find_files(folder, 'txt').get(_NAMES)
  if not names:
    raise DataError(
      f'{folder}: has neither lbl.json nor Y.txt; write the names of the '
      'labels to Y.txt, one per line'
    )
  return read_label_names(only_file(names, faults), faults)


def read_label_names(path: pathlib.Path, faults: Faults) -> Labels:
  """Reads the label of each column from a Y.txt and collects faults."""
  return _by_column(_names, path, faults)


def _by_column(
  read: Callable[[pathlib.Path, Faults], Iterator[tuple[int, Label]]],
  path: pathlib.Path,
  faults: Faults,
) -> Labels:
  """Packs labels by ascending lines; a missing label is named by its column."""
  before = faults.count

  def columns() -> Iterator[Label]:
    column = 0
    for line, label in read(path, faults):
      yield from (Label(str(i), str(i)) for i in range(column, line - 1))
      yield label
      column = line
    if not column:
      faults.add_empty(path, 'label', before)

  return Labels.of(columns())


def _titles(path: pathlib.Path, faults: Faults) -> Iterator[tuple[int, Label]]:
  for number, row in read_rows(path, faults):
    fields = Fields(row)
    id_ = str(number - 1)
    name, text = fields.text('title', ''), fields.text('content', '')
    yield number, Label(id_, name.strip() or id_, description=text)
    faults.extend(path, number, fields.faults)


def _names(path: pathlib.Path, faults: Faults) -> Iterator[tuple[int, Label]]:
  for number, line in read_lines(path, faults):
    id_, name = str(number - 1), line.decode('utf-8', 'replace')
    if '\ufffd' in name:
      faults.add(path, number, 'not UTF-8')
    yield number, Label(id_, name)
