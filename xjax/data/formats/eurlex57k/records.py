"""Reads the files of EURLEX57K: an archive, its folder, or JSON lines."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import functools
import json
import pathlib
from typing import Any
import zipfile

from xjax.core.errors import DAMAGE, DataError
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  Fields,
  find_files,
  only_file,
  parse_object,
  read_rows,
)
from xjax.data.formats.corpus_builder import USUAL
from xjax.data.formats.descriptors import Descriptors
from xjax.data.schema import Document, Label

# Zones in reading order. The full text has no title, as in Chalkidis et al.
# 2019, because the header repeats the title.
ZONES = ('title', 'header', 'recitals', 'main_body', 'attachments')
FULL_TEXT = ZONES[1:]
CONCEPTS = 'eurovoc_en.json'
EXPECTED = (
  'expected the official archive datasets.zip, its files '
  'dataset/{train,dev,test}/*.json, or {train,dev,test}.jsonl[.gz]'
)

# Yields the file name, line number and object of each record of a split. The
# argument collects what is wrong with the records.
ReadRows = Callable[[Faults], Iterator[tuple[str, int, dict[str, Any]]]]


@dataclasses.dataclass(frozen=True)
class Source:
  """Holds the files of one copy of EURLEX57K, and readers of its splits."""

  splits: Mapping[str, ReadRows]
  files: tuple[pathlib.Path, ...]  # of documents
  concepts: pathlib.Path | None

  def stamp(self) -> list[tuple[str, int, int]]:
    """Returns each file's name, size and time of the last change."""
    paths = (*self.files, *([self.concepts] if self.concepts else []))
    stats = [(str(path), path.stat()) for path in paths]
    return [(name, s.st_size, s.st_mtime_ns) for name, s in stats]


def find_source(path: pathlib.Path, faults: Faults) -> Source:
  """Finds the copy of EURLEX57K at a path.

  The path is the archive, or a folder that contains the archive, the files of
  the archive, or JSON lines. A split with two files is a fault.
  """
  if path.is_file():
    return _archive(path, path.parent)
  found = find_files(path)
  if files := {n: only_file(found[n], faults) for n in USUAL if n in found}:
    splits = {n: functools.partial(_read_lines, files[n]) for n in files}
    return Source(splits, tuple(files.values()), _concepts(path))
  for folder in (path / 'dataset', path):
    if any((folder / name).is_dir() for name in USUAL):
      return _folder(folder, path)
  archives = sorted(path.glob('*.zip'))
  if len(archives) == 1:
    return _archive(archives[0], path)
  raise DataError(f'{path}: no EURLEX57K here; {EXPECTED}')


def _concepts(*folders: pathlib.Path) -> pathlib.Path | None:
  paths = (folder / CONCEPTS for folder in folders)
  return next((path for path in paths if path.is_file()), None)


def _read_lines(
  path: pathlib.Path, faults: Faults
) -> Iterator[tuple[str, int, dict[str, Any]]]:
  for line, row in read_rows(path, faults):
    yield str(path), line, row


def _folder(folder: pathlib.Path, top: pathlib.Path) -> Source:
  """Makes the source of the unpacked archive; the user gave `top`."""
  splits = {
    name: [
      path
      for path in sorted((folder / name).glob('*.json'))
      if not path.name.startswith('.')
    ]
    for name in USUAL
    if (folder / name).is_dir()
  }

  def read(
    paths: Sequence[pathlib.Path], faults: Faults
  ) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for path in paths:
      yield from _read_file(str(path), path.read_bytes, faults)

  return Source(
    {name: functools.partial(read, paths) for name, paths in splits.items()},
    tuple(path for paths in splits.values() for path in paths),
    _concepts(folder, top, top.parent),
  )


def _archive(path: pathlib.Path, folder: pathlib.Path) -> Source:
  """Makes the source of a zip archive; `folder` may contain the concepts."""
  try:
    with zipfile.ZipFile(path) as archive:
      members = [pathlib.PurePosixPath(name) for name in archive.namelist()]
  except DAMAGE as error:
    message = f'not a zip archive: {str(error)[:80]}'
    raise DataError(f'{path}: {message}') from error
  splits: dict[str, list[str]] = {}
  for member in sorted(members):
    # macOS adds files __MACOSX/.../._name, which are not documents.
    hidden = any(part.startswith(('.', '__MACOSX')) for part in member.parts)
    if member.suffix == '.json' and not hidden and len(member.parts) >= 2:
      splits.setdefault(member.parts[-2], []).append(str(member))
  splits = {name: splits[name] for name in USUAL if name in splits}
  if not splits:
    raise DataError(f'{path}: no documents of EURLEX57K in it; {EXPECTED}')

  def read(
    names: Sequence[str], faults: Faults
  ) -> Iterator[tuple[str, int, dict[str, Any]]]:
    with zipfile.ZipFile(path) as archive:
      for name in names:
        member = functools.partial(archive.read, name)
        yield from _read_file(f'{path}/{name}', member, faults)

  return Source(
    {name: functools.partial(read, names) for name, names in splits.items()},
    (path,),
    _concepts(folder),
  )


def _read_file(
  name: str, read: Callable[[], bytes], faults: Faults
) -> Iterator[tuple[str, int, dict[str, Any]]]:
  """Yields the name, the line number 1 and the JSON object of a file."""
  try:
    row = parse_object(read())
  except Fault as fault:
    faults.add(name, fault.line, str(fault))
  except DAMAGE as error:
    # The fault is fatal, because the file may be one of many that are lost.
    # The message is cut, since zipfile quotes the damaged bytes.
    message = f'cannot be read: {str(error)[:80]}'
    faults.add(name, None, message, fatal=True)
  else:
    yield name, 1, row


def read_eurlex_record(fields: Fields) -> dict[str, Any]:
  """Reads the fields of a document, in a record's order, and adds faults."""
  before = len(fields.faults)
  record = {
    'celex_id': fields.identifier('celex_id'),
    'uri': fields.text('uri', ''),
    'type': fields.text('type', ''),
    'concepts': list(fields.identifiers('concepts')),
    'title': fields.text('title'),
    'header': fields.text('header'),
    'recitals': fields.text('recitals'),
    'main_body': list(fields.texts('main_body')),
    'attachments': fields.text('attachments'),
  }
  if (
    len(fields.faults) == before and not record_document(record).text().strip()
  ):
    fields.faults.append('the document has no text')
  return record


def record_document(record: Mapping[str, Any]) -> Document:
  """Makes a document from a record; the main body becomes one text."""
  zones = {name: record[name] for name in ZONES}
  zones['main_body'] = '\n'.join(record['main_body'])
  return Document(record['celex_id'], zones, tuple(record['concepts']))


def input_document(
  fields: Fields, default_id: str | None, need_labels: bool
) -> Document:
  """Reads a document to be tagged, which may lack concepts and zones."""
  names = (*ZONES, 'uri', 'type')
  defaults: dict[str, Any] = {name: '' for name in names if name not in fields}
  defaults |= {'main_body': []} if 'main_body' in defaults else {}
  if not need_labels and 'concepts' not in fields:
    defaults['concepts'] = []
  if default_id is not None and 'celex_id' not in fields:
    defaults['celex_id'] = default_id
  complete = Fields(defaults | fields.row)
  record = read_eurlex_record(complete)
  fields.faults.extend(complete.faults)
  return record_document(record)


def read_concepts(path: pathlib.Path, faults: Faults) -> Descriptors:
  """Reads eurovoc_en.json: {id: {label, alt_labels, parents, ...}}."""
  described = Descriptors()
  try:
    text = path.read_bytes()
    rows = parse_object(text)
  except Fault as fault:
    faults.add(path, fault.line, str(fault), fatal=True)
    return described
  except OSError as error:
    faults.add(path, None, f'cannot be read: {error.strerror}', fatal=True)
    return described
  before = faults.count
  lines = _key_lines(text, list(rows))
  for id_, row in rows.items():
    label, messages = _read_concept(id_, row)
    if label:
      described.add(label, lines[id_])
    prefixed = [f'concept {id_!a}: {message}' for message in messages]
    faults.extend(path, lines[id_], prefixed)
  described.complete = 0 < len(described.labels) == len(rows)
  if not described.labels:
    faults.add_empty(path, 'concept', before)
  described.check_parents(path, faults)
  return described


def _read_concept(id_: str, row: Any) -> tuple[Label | None, list[str]]:
  """Returns the label of a concept, and messages about its faults.

  If the id is faulty, the label is None. If another field is, it has only its
  id.
  """
  fields = Fields(row if isinstance(row, dict) else {})
  if not fields.as_id(id_, 'its id'):
    return None, fields.faults
  if not isinstance(row, dict):
    return Label(id_, id_), ['not an object {...}']
  label = Label(
    id=id_,
    name=fields.text('label') or id_,
    alt=fields.texts('alt_labels', ()),
    parents=fields.identifiers('parents', ()),
  )
  if fields.identifier('concept_id', id_) not in (id_, ''):
    fields.faults.append(f'its concept_id is {row["concept_id"]!a}')
  return (Label(id_, id_) if fields.faults else label), fields.faults


def _key_lines(text: bytes, keys: Sequence[str]) -> dict[str, int]:
  """Returns the line number of each key.

  If the text spells a key differently from json.dumps, the key is not found.
  Such a key gets the line of the last key that was found before it.
  """
  lines, line, at = {}, 1, 0
  for key in keys:
    quoted = json.dumps(key, ensure_ascii=False).encode('utf-8', 'replace')
    position = text.find(quoted + b':', at)
    if position >= 0:
      line += text.count(b'\n', at, position)
      at = position
    lines[key] = line
  return lines
