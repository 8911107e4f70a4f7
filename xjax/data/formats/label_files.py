"""Reads files about labels: descriptors, names of columns, and taxonomies."""

from collections.abc import Collection, Iterable, Iterator, Sequence
import dataclasses
import functools
import graphlib
import os
import pathlib
import re
from typing import Any

from xjax.core.errors import ConfigError, DataError
from xjax.core.texts import plain_name
from xjax.data.files import skos
from xjax.data.files.csv_table import Quoting
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import (
  PACKED,
  find_files,
  open_text,
  parse_object,
  read_records,
  read_rows,
  reading,
  repeated,
  with_faults,
)
from xjax.data.files.label_tables import label_columns, label_rows, usual_fields
from xjax.data.files.tables import TableFormat, read_table, table_format
from xjax.data.schema import Label, Labels, read_label

JQ = 'id: ., name: .'  # makes a label of a line of plain text
ROOT = 'Root'  # the topmost parent of a taxonomy, which is not a label
LABELS = 'labels'  # the file of labels; no split can have this name
_TABLES = 'csv|tsv|tab|psv|parquet'
_LINES = 'jsonl|jsonlines|ndjson'
_ENDINGS = f'{_LINES}|json|{_TABLES}|{skos.ENDINGS}'


def find_labels(
  folder: pathlib.Path, chosen: str = ''
) -> Sequence[pathlib.Path]:
  """Returns the files that describe labels: labels.jsonl etc. of a folder.

  If one is `chosen` (data.label_file), it is anywhere, or in the folder.
  """
  if not chosen:
    files = find_files(folder, _ENDINGS).items()
    paths = [p for stem, found in files if is_labels(stem) for p in found]
    usual = [path for path in paths if _ends(path, 'jsonl')]  # wins
    return usual or paths
  path = pathlib.Path(chosen).expanduser()
  for place in (path, folder / path):
    if place.is_file():
      return [place]
  raise ConfigError(
    f'data.label_file={chosen!r}: there is no such file in the current folder '
    'or beside the documents'
  )


def is_labels(stem: str) -> bool:
  """Returns whether a file of this name, without its ending, has labels."""
  return stem.casefold() in (LABELS, 'label')


def is_table(path: str | os.PathLike) -> bool:
  """Returns whether a file has SKOS, or a table with usual columns of labels.

  Only the ending of its name and the header count.
  """
  if _ends(path, skos.ENDINGS):
    return True
  if not _ends(path, _TABLES):
    return False
  with open_text(path) as file:
    if table_format(file, str(path)) is TableFormat.JSON_LINES:
      return False
    try:
      table = read_table(file, str(path), Faults(on_error=None))
    except DataError:  # such as a header of numbers
      return False
    return bool(label_columns(table.columns, path))


def _ends(path: str | os.PathLike, endings: str) -> bool:
  return bool(re.search(rf'\.({endings}){PACKED}$', os.fspath(path), re.I))


class Descriptors(dict[str, Label]):
  """Holds labels by id, and finds those that a text means."""

  def __init__(self, labels: Iterable[Label] = ()):
    super().__init__((label.id, label) for label in labels)

  def meant(self, text: str) -> Sequence[str]:
    """Returns the ids of the labels that a text means: several, one or none.

    It is an id, an id in <>, the name of labels, the end of an IRI, or a name
    in another case.
    """
    if text in self:
      return (text,)
    name = plain_name(text)
    return self._ids.get(name) or self._folded.get(name.casefold(), ())

  @functools.cached_property
  def _folded(self) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for label in self.values():
      ids.setdefault(plain_name(label.name).casefold(), []).append(label.id)
    return ids

  @functools.cached_property
  def _ids(self) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {f'<{id_}>': [id_] for id_ in self}
    ends: dict[str, list[str]] = {}
    for label in self.values():
      ids.setdefault(plain_name(label.name), []).append(label.id)
      if '://' in label.id:
        ends.setdefault(re.split('[/#]', label.id)[-1], []).append(label.id)
    return ends | ids


def read_descriptors(
  path: str | os.PathLike, faults: Faults, language: str = '', **form: Any
) -> Descriptors:
  """Reads a file of labels, by id, and collects the faults of its lines."""
  return _described(label_records(path, faults, language, **form), path, faults)


def label_records(
  path: str | os.PathLike,
  faults: Faults,
  language: str = '',
  encoding: str = '',
  quoting: Quoting = Quoting.AUTO,
) -> Iterator[tuple[int | None, Fields]]:
  """Yields the labels of a file as records that read_label reads.

  The file has JSON lines (labels.jsonl), a table with usual names of columns,
  or SKOS. A vocabulary in several languages is read in `language` (read_skos).
  """
  if _ends(path, skos.ENDINGS):
    rows = ((None, row) for row in skos.read_skos(path, language))
    yield from with_faults(rows, faults, path)
    return
  with open_text(path) as file:
    is_lines = _ends(path, _LINES)
    if is_lines or table_format(file, str(path)) is TableFormat.JSON_LINES:
      with reading(path):
        start = file.read(1)
        file.seek(0)
      is_plain = _ends(path, 'te?xt') and start not in (b'{', b'[')
      plain = 'id' if is_plain else ''  # of labels that have no more
      rows = read_rows(file, faults, str(path), plain, encoding, JQ)
      rows = usual_fields(rows, path, language)
    else:
      table = read_table(file, str(path), faults, encoding, quoting)
      rows = label_rows(table.columns, table.rows, path, language)
    yield from with_faults(rows, faults, path)


def read_ids(
  path: str | os.PathLike,
  faults: Faults,
  what: str = 'label',
  described: Collection[str] = (),
  may_be_empty: bool = False,
) -> dict[str, int]:
  """Reads a file with one id per line, plain or gzipped; returns their lines.

  If there are descriptors (`described`), an id without one is a fault.
  """
  ids: dict[str, int] = {}
  before, name = faults.count, f'the {what} id'
  for line, fields in read_records(path, faults, plain=name):
    id_ = fields.identifier(name)
    if id_ in ids:
      fields.faults.append(f'duplicate {what} {id_!a}')
    if id_ and described and id_ not in described:
      fields.faults.append(f'unknown label {id_!a}: it has no descriptor')
    if not fields.faults:
      ids[id_] = line
  if not ids and not may_be_empty:
    faults.add_empty(path, what, before)
  return ids


def read_concepts(path: pathlib.Path, faults: Faults) -> dict[str, Label]:
  """Reads eurovoc_en.json: {id: {label, alt_labels, parents, ...}}."""
  try:
    rows = parse_object(path.read_bytes())
  except (Fault, OSError) as error:
    line = error.line if isinstance(error, Fault) else None
    faults.add(path, line, f'cannot be read: {error}', fatal=True)
    return {}
  # Not Descriptors: the documents of EUR-Lex have no other labels.
  return dict(_described(_concept_records(rows, path, faults), path, faults))


def _concept_records(
  rows: dict[str, Any], path: pathlib.Path, faults: Faults
) -> Iterator[tuple[None, Fields]]:
  names = {'label': 'name', 'alt_labels': 'alt', 'parents': 'parents'}
  for id_, row in rows.items():
    where = f'{path}: concept {id_!a}'
    if not isinstance(row, dict):
      faults.add(where, None, 'not an object {...}')
      continue
    known = {new: row[old] for old, new in names.items() if old in row}
    yield from with_faults([(None, {'id': id_, **known})], faults, where)


def _described(
  records: Iterable[tuple[int | None, Fields]],
  path: str | os.PathLike,
  faults: Faults,
) -> Descriptors:
  labels = Descriptors()
  lines: dict[str, int | None] = {}
  before = faults.count
  for line, fields in records:
    label = read_label(fields)
    if label.id in labels:
      fields.faults.append(f'duplicate label {label.id!a}')
    elif label.id:  # of a faulty descriptor, only the id is kept
      labels[label.id] = Label(label.id, label.id) if fields.faults else label
      lines[label.id] = line
  if not labels:
    faults.add_empty(path, 'label', before)
  if faults.count == before:  # otherwise, a parent may be on a faulty line
    for id_, label in labels.items():
      known: dict[str, None] = {}
      for parent in label.parents:
        ids = labels.meant(parent)
        if len(ids) != 1:
          what = 'parent, the name of several labels,' if ids else 'parent'
          message = f'label {id_!a} has the unknown {what} {parent!a}'
          faults.add(path, lines[id_], message)
        known |= dict.fromkeys(ids)
      labels[id_] = dataclasses.replace(label, parents=tuple(known))
  _check_cycles(labels, lines, path, faults)
  return labels


def _check_cycles(
  labels: dict[str, Label],
  lines: dict[str, int | None],
  path: str | os.PathLike,
  faults: Faults,
) -> None:
  """Adds a fatal fault if a label is its own ancestor."""
  above = {id_: label.parents for id_, label in labels.items()}
  try:
    graphlib.TopologicalSorter(above).prepare()
  except graphlib.CycleError as error:
    parent, id_ = error.args[1][:2]
    message = f'label {id_!a} is its own ancestor, through its parent'
    faults.add(path, lines[id_], f'{message} {parent!a}', fatal=True)


def read_taxonomy(path: pathlib.Path, faults: Faults) -> dict[str, Label]:
  """Reads the labels of a taxonomy: lines `parent<TAB>child<TAB>child...`.

  They are in the order in which they first occur as children, without Root.
  """
  before = faults.count
  heads: dict[str, int] = {}  # parent -> its line
  lines: dict[str, int] = {}  # label -> first line that has it as a child
  above: dict[str, list[str]] = {}
  for line, fields in read_records(path, faults, plain='names'):
    names = enumerate(fields.row['names'].split('\t'), 1)
    ids = (fields.as_id(n, f'name {i}') for i, n in names)
    parent, *children = map(plain_name, ids)
    if parent in heads:
      fields.faults.append(
        f'{parent!a} is the parent on line {heads[parent]} already; write all '
        'its children on that line'
      )
    for child in filter(None, repeated(children)):
      fields.faults.append(f'{child!a} occurs twice')
    if ROOT in children:
      fields.faults.append(f'{ROOT} is a child of {parent!a}')
    if fields.faults:
      continue
    heads[parent] = line
    for child in children:
      lines.setdefault(child, line)
      above.setdefault(child, []).extend([parent] if parent != ROOT else [])
  if not above:
    faults.add_empty(path, 'label', before)
  complete = faults.count == before
  if complete and ROOT not in heads:
    message = f'no line `{ROOT}<TAB>child...` with the labels of level 1'
    faults.add(path, None, message, fatal=True)
  for parent, line in heads.items():
    if parent not in above and parent != ROOT:
      above[parent], lines[parent] = [], line
      message = f'{parent!a} is never a child; put it below {ROOT} or below'
      if complete:
        faults.add(path, line, f'{message} another label')
  labels = {id_: Label(id_, id_, parents=tuple(p)) for id_, p in above.items()}
  _check_cycles(labels, lines, path, faults)
  return labels


def read_columns(
  path: pathlib.Path, faults: Faults, plain: bool = False
) -> Labels:
  """Reads the label of each column: JSON lines with a title, or plain names.

  The first line has column 0. A label without a line, or without a name, is
  named by its column.
  """
  before = faults.count

  def columns() -> Iterator[Label]:
    column = 0
    name = 'title' if plain else ''
    for line, fields in read_records(path, faults, plain=name):
      yield from (Label(str(i), str(i)) for i in range(column, line - 1))
      id_, title = str(line - 1), plain_name(fields.text('title', ''))
      yield Label(id_, title or id_, description=fields.text('content', ''))
      column = line
    if not column:
      faults.add_empty(path, 'label', before)

  return Labels.of(columns())
