"""Reads files about labels: descriptors, names of columns, and taxonomies."""

from collections.abc import Collection, Iterable, Iterator
import dataclasses
import graphlib
import os
import pathlib
from typing import Any

from xjax.core.texts import plain_name
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  Fields,
  parse_object,
  read_records,
  repeated,
  with_faults,
)
from xjax.data.schema import Label, Labels, read_label

ROOT = 'Root'  # the topmost parent of a taxonomy, which is not a label


def read_descriptors(
  path: str | os.PathLike, faults: Faults
) -> dict[str, Label]:
  """Reads labels.jsonl[.gz], by id, and collects the faults of its lines."""
  return _described(read_records(path, faults), path, faults)


def read_ids(
  path: str | os.PathLike,
  faults: Faults,
  what: str = 'label',
  described: Collection[str] = (),
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
  if not ids:
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
  return _described(_concept_records(rows, path, faults), path, faults)


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
) -> dict[str, Label]:
  labels: dict[str, Label] = {}
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
      for parent in label.parents:
        if parent not in labels:
          message = f'label {id_!a} has the unknown parent {parent!a}'
          faults.add(path, lines[id_], message)
      parents = tuple(p for p in label.parents if p in labels)
      labels[id_] = dataclasses.replace(label, parents=parents)
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
