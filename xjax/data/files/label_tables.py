"""Finds the columns of tables of labels, and reads their rows."""

from collections.abc import Collection, Iterable, Iterator, Sequence
import itertools
import os
import re
from typing import Any

from absl import logging

from xjax.core.errors import DataError
from xjax.data.files import skos
from xjax.data.files.cells import is_empty, is_missing, parse_list

# What columns of a table of labels are called, without case, spaces, `_`, `-`
# and what stands before a colon. If there is no id, a label is its own id.
_COLUMNS = {
  'id': 'id uri iri labelid conceptid concepturi identifier code notation '
  'tagid classid categoryid topicid subjectid termid key index',
  'name': 'name preflabel preferredlabel labelname title term label',
  'alt': 'alt altlabel altlabels synonyms synonym aliases alias',
  'parents': ' '.join(
    name + what
    for name in ('parents', 'parent', 'broader', 'broaderconcept', 'superclass')
    for what in ('', *'id ids uri iri code codes notation label name'.split())
  ),
  'description': 'description definition scopenote',
}
_BRACKETED = re.compile(r'<[^<>\s]+://[^<>\s]+>')  # an IRI, as in Turtle
# A language in the name of a column: name_en, name@en-GB, label_de, en_name.
_TAGGED = re.compile(
  r'(.+?)[\W_]+(?!(?:id|ur[il]|iri|alt|key)\b)([a-z]{2,3}(?:[-_][a-z]{2})?)[\W_]*'
  r'|(?!id)([a-z]{2})[-._ ](.+)'
)
_SAMPLED = 1000  # lines of JSON that tell the fields
_SEPARATORS = '|;\n'  # of the values in a cell; of parents also a comma


def usual_fields(
  rows: Iterator[tuple[int, dict[str, Any]]],
  path: str | os.PathLike,
  language: str,
) -> Iterator[tuple[int, dict[str, Any]]]:
  """Yields lines of JSON, with the usual names of fields that stand in."""
  first = list(itertools.islice(rows, _SAMPLED))
  names = dict.fromkeys(name for _, row in first for name in row)
  columns = label_columns([*names], path, language)
  new = {field: name for field, name in columns.items() if field != name}
  if columns.get('id') == columns.get('name'):
    new = {}  # a line needs an id
  if new:
    logging.info('%s: fields of labels: %s', path, new)
  for line, row in itertools.chain(first, rows):
    cells = {field: row.get(name) for field, name in new.items()}
    more = {field: x for field, x in cells.items() if not is_empty(x)}
    if isinstance(more.get('alt'), str):
      more['alt'] = [more['alt']]
    yield line, row | more


def label_rows(
  names: Sequence[str],
  rows: Iterable[tuple[int, dict[str, Any]]],
  path: str | os.PathLike,
  language: str,
) -> Iterator[tuple[int, dict[str, Any]]]:
  """Yields the lines of a table of labels, as rows of labels.jsonl."""
  columns, rows = label_columns(names, path, language), list(rows)
  left = [name for name in names if name not in columns.values()]
  if not columns:
    raise DataError(
      f'{path}: cannot tell which column holds the labels; the columns are: '
      f'{", ".join(map(ascii, names))}. Name them id, name, alt, parents and '
      'description'
    )
  if 'name' not in columns and len(left) == 1:
    columns['name'] = left.pop()
  if _is_iri(columns['id']):  # the first line is a label
    rows.insert(0, (1, dict(zip(names, names))))
  shown = ', '.join(f'{field} is {name!a}' for field, name in columns.items())
  others = ', '.join(map(ascii, left)) or 'none'
  logging.info('%s: columns of labels: %s; not read: %s', path, shown, others)
  # Of id, code and parent_code, the last one has codes.
  kind = re.sub('^(parents?|broader)', '', _plain(columns.get('parents', '')))
  key = next((x for x in left if kind and _plain(x) == kind), columns['id'])
  ids = {_text(row[key]): _text(row[columns['id']]) for _, row in rows}
  # A cell that is an id or a name is not divided.
  usual = {key, columns['id'], columns.get('name', columns['id'])}
  known = {_text(row[column]) for _, row in rows for column in usual}
  separators = {
    field: _separator([row[columns[field]] for _, row in rows], field, known)
    for field in ('alt', 'parents')
    if field in columns
  }
  for line, cells in rows:
    row = {'name': ''}
    row |= {field: _text(cells[name]) for field, name in columns.items()}
    for field, separator in separators.items():
      values = _values(cells[columns[field]], separator, known)
      row[field] = [ids.get(x, x) if field == 'parents' else x for x in values]
    yield line, row


def label_columns(
  names: Sequence[str], path: str | os.PathLike, language: str = ''
) -> dict[str, str]:
  """Returns the columns of a table of labels by field; {} if none has ids.

  In a vocabulary of Annif, which has no header, the first two are id and name.
  A ConfigError says that there are no names in the language.
  """
  if names and _is_iri(names[0]) and not language:
    return dict(zip(('id', 'name'), names))
  found: dict[tuple[str, str], str] = {}  # by plain name and language
  for name in names:
    text = re.sub('(?<=[a-z])(?=[A-Z])', '_', name).lower()
    keys = [(text, '')]
    if tagged := _TAGGED.fullmatch(text):
      keys += [(tagged[1] or tagged[4], tagged[2] or tagged[3])]
    for base, tag in keys:
      found.setdefault((_plain(base), tag.replace('_', '-')), name)
  wanted = language.lower() or skos.LANGUAGE
  named = [tag for base, tag in found if base in _COLUMNS['name'].split()]
  if language and not any(skos.speaks(wanted, tag) for tag in named):
    shown = f'; the columns are {", ".join(map(ascii, names))}'
    raise skos.no_names(language, path, named, shown)
  tags = [tag for _, tag in found if skos.speaks(wanted, tag)]
  tags = [wanted, *tags, '', *(tag for _, tag in found)]
  columns: dict[str, str] = {}
  for field, usual in _COLUMNS.items():
    keys = ((base, tag) for tag in tags for base in usual.split())
    if name := next((found[key] for key in keys if key in found), ''):
      columns[field] = name
  if 'id' not in columns and 'name' in columns:
    columns = {'id': found.get(('label', ''), columns['name']), **columns}
  return columns if 'id' in columns else {}


def _plain(name: str) -> str:
  return re.sub(r'[\W_]', '', name.rpartition(':')[2].lower())


def _is_iri(text: str) -> bool:
  return '://' in text


def _text(value: Any) -> str:
  """Returns a cell as text; an IRI loses its <>."""
  if is_missing(value):
    return ''
  is_whole = isinstance(value, float) and value.is_integer()
  text = str(int(value) if is_whole else value).strip()
  return text[1:-1] if _BRACKETED.fullmatch(text) else text


def _separator(
  cells: Sequence[Any], field: str, known: Collection[str]
) -> str | None:
  """Returns what stands between the values of a cell; None for white space."""
  texts = [x for x in cells if isinstance(x, str) and _text(x) not in known]
  texts = [text for text in texts if parse_list(text) is None]
  usual = _SEPARATORS + ',' * (field == 'parents')
  counts = {x: sum(x in text for text in texts) for x in usual}
  return max(usual, key=counts.get) if any(counts.values()) else None


def _values(
  cell: Any, separator: str | None, known: Collection[str]
) -> list[str]:
  text, values = _text(cell), cell
  if not isinstance(cell, list):
    values = parse_list(text)
  if values is None:
    values = [text]
    if text not in known and (separator or _is_iri(text)):
      values = text.split(separator)
  return [*dict.fromkeys(filter(None, map(_text, values)))]
