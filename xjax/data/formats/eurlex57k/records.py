"""Reads single documents and concepts of EURLEX57K."""

from collections.abc import Mapping, Sequence
import json
import pathlib
from typing import Any

from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import Fields, parse_object
from xjax.data.formats.descriptors import Descriptors
from xjax.data.schema import Document, Label

# Zones in reading order. The full text has no title, as in Chalkidis et al.
# 2019, because the header repeats the title.
ZONES = ('title', 'header', 'recitals', 'main_body', 'attachments')
FULL_TEXT = ZONES[1:]


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
