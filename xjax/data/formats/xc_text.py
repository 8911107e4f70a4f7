"""Reads raw text of the Extreme Classification Repository (LF-* datasets).

A folder has trn.json, tst.json and perhaps dev.json. Each line is a document,
{"uid", "title", "content", "target_ind": [columns], "target_rel": [numbers]},
where content and target_rel may be missing. A column is the number of a label.

The names of labels are in lbl.json, with one line {"title"} per label, or in
Y.txt, with one name per line. The first line describes column 0. Each file may
be gzipped.
"""

from collections.abc import Sequence
import dataclasses
import itertools

from xjax.core.errors import DataError
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import (
  find_files,
  find_source,
  only_file,
  repeated,
)
from xjax.data.formats.corpus_builder import SourceCorpus, unknown_label
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.label_files import read_columns
from xjax.data.schema import Document

ZONES = ('title', 'content')
_SPLITS = {'trn': 'train', 'tst': 'test'}


@dataclasses.dataclass
class XcRepoData(DataConfig):
  """Configures raw text from the Extreme Classification Repository.

  A label's id is its column. By default, all columns are labels, even if no
  split uses them.
  """

  labels: str = 'all'

  label_field = 'target_ind'

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    folder = find_source(self.dir)
    builder = self.builder()
    files = find_files(folder, 'json')
    plain = 'lbl' not in files
    names = files.pop('lbl', None) or find_files(folder, 'txt').get('Y')
    if not names:
      raise DataError(
        f'{folder}: has neither lbl.json nor Y.txt; write the names of the '
        'labels to Y.txt, one per line'
      )
    path = only_file(names, builder.faults)
    columns = read_columns(path, builder.faults, plain)

    def read(
      fields: Fields, default_id: str | None, need_labels: bool
    ) -> Document:
      document = self.read_record(fields, default_id, need_labels)
      # The columns are not searched: there may be 100 million labels.
      unknown = [x for x in document.labels if int(x) >= len(columns) > 0]
      fields.faults += map(unknown_label, unknown)
      return document

    files = {_SPLITS.get(name, name): paths for name, paths in files.items()}
    builder.read_files(files, splits, usual, read)
    return builder.corpus(columns, ordered=True)

  def read_record(
    self, fields: Fields, default_id: str | None, need_labels: bool
  ) -> Document:
    """Reads a document; a label with target_rel 0 is left out."""
    id_ = fields.identifier('uid', default_id)
    zones = {name: fields.text(name, '') for name in ZONES if name in fields}
    fields.check_text(zones.values())
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
