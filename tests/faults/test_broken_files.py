"""Broken files of every kind give the one clear error, and no traceback."""

from collections.abc import Callable
import gzip
import json
import os
import pathlib
import zipfile

import pytest

from xjax.core.errors import DataError
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.data.formats.jsonl import JsonlData
from xjax.data.load import load_corpus

SOUND = [
  {'id': 'd1', 'text': 'one', 'labels': ['a']},
  {'id': 'd2', 'text': 'two', 'labels': ['b']},
]
LABELS = [{'id': 'a', 'name': 'A'}, {'id': 'b', 'name': 'B', 'parents': ['a']}]
LAW = {
  'celex_id': 'c1',
  'concepts': ['a'],
  'title': 't',
  'header': 'h',
  'recitals': '',
  'main_body': ['m'],
  'attachments': '',
}
CONCEPTS = {
  'a': {'label': 'A', 'alt_labels': [], 'concept_id': 'a', 'parents': []}
}

Break = Callable[[pathlib.Path], None]


def put(name: str, data: bytes) -> Break:
  return lambda folder: (folder / name).write_bytes(data)


def lines(*rows) -> bytes:
  return b''.join(
    (row if isinstance(row, bytes) else json.dumps(row).encode()) + b'\n'
    for row in rows
  )


def third(row) -> Break:
  """A third line in train.jsonl."""
  return put('train.jsonl', lines(*SOUND, row))


def third_label(row) -> Break:
  return put('labels.jsonl', lines(*LABELS, row))


def document(**fields) -> dict:
  return {'id': 'd3', 'text': 'three', 'labels': ['a'], **fields}


def without(row: dict, field: str) -> dict:
  return {name: value for name, value in row.items() if name != field}


BROKEN: dict[str, tuple[Break, str]] = {
  'bad JSON': (
    third(b'{"id": "d3", "text": "x" "labels": []}'),
    "train.jsonl:3: not JSON: Expecting ',' delimiter at column 26",
  ),
  'half a line': (
    put('train.jsonl', lines(*SOUND)[:-9]),
    "train.jsonl:2: not JSON: Expecting ':' delimiter at column 37",
  ),
  'not an object': (
    third(b'["d3"]'),
    'train.jsonl:3: a list, not a JSON object {...}',
  ),
  'NaN': (
    third(b'{"id": "d3", "w": NaN}'),
    'train.jsonl:3: not JSON: NaN; write a finite number',
  ),
  'nested without end': (
    third(b'{"id": ' + b'[' * 50_000),
    'train.jsonl:3: not JSON: nested too deeply',
  ),
  'a field twice': (
    third(b'{"id": "d3", "text": "x", "labels": [], "id": "d4"}'),
    "train.jsonl:3: field 'id' occurs twice in one object",
  ),
  'no id': (
    third(without(document(), 'id')),
    "train.jsonl:3: no field 'id'",
  ),
  'no text': (
    third(without(document(), 'text')),
    "train.jsonl:3: no field 'text'",
  ),
  'no labels': (
    third(without(document(), 'labels')),
    "train.jsonl:3: no field 'labels'",
  ),
  'an id that is a number': (
    third(document(id=3.5)),
    'train.jsonl:3: id is a decimal number, not text or an integer',
  ),
  'an empty id': (third(document(id=' ')), 'train.jsonl:3: id is empty'),
  'a duplicate id': (
    third(document(id='d1')),
    "train.jsonl:3: duplicate id 'd1'",
  ),
  'labels that are text': (
    third(document(labels='a')),
    'train.jsonl:3: labels is text, not a list',
  ),
  'a label that is null': (
    third(document(labels=['a', None])),
    'train.jsonl:3: labels[1] is null, not text or an integer',
  ),
  'a duplicate label': (
    third(document(labels=['b', 'a', 'b'])),
    "train.jsonl:3: 'b' occurs twice in labels",
  ),
  'an unknown label': (
    third(document(labels=['q'])),
    "train.jsonl:3: unknown label 'q': it has no descriptor",
  ),
  'an empty document': (
    third(document(text=' \n')),
    'train.jsonl:3: the document has no text',
  ),
  'text and zones': (
    third(document(zones={'title': 'x'})),
    'train.jsonl:3: has both text and zones; give only one of them',
  ),
  'zones in a list': (
    third(without(document(zones=['x']), 'text')),
    'train.jsonl:3: zones is not an object {name: text}',
  ),
  'a zone without a name': (
    third(without(document(zones={'': 'x'}), 'text')),
    'train.jsonl:3: the name of a zone is empty',
  ),
  'half a surrogate pair': (
    third(b'{"id": "d3", "text": "\\ud83d", "labels": []}'),
    'train.jsonl:3: text holds a broken Unicode character (half of a surrogate '
    'pair)',
  ),
  'Latin-1': (
    third('{"id": "d3", "text": "\xe4h", "labels": []}'.encode('latin-1')),
    'train.jsonl:3: not UTF-8: invalid continuation byte at byte 23',
  ),
  'UTF-16': (
    put('train.jsonl', lines(*SOUND).decode().encode('utf-16')),
    'train.jsonl:1: UTF-16 text: save the file as UTF-8',
  ),
  'gzip cut short': (
    put('dev.jsonl.gz', gzip.compress(lines(*SOUND))[:-10]),
    'dev.jsonl.gz:2: the gzip file is cut short: get it again',
  ),
  'gzip in name only': (
    put('dev.jsonl.gz', lines(*SOUND)),
    'dev.jsonl.gz: the name ends in .gz, but the file is not gzipped',
  ),
  'gzip in all but name': (
    put('dev.jsonl', gzip.compress(lines(*SOUND))),
    'dev.jsonl: the file is gzipped, so its name must end in .gz',
  ),
  'an empty file': (put('dev.jsonl', b''), 'dev.jsonl: no document in it'),
  'a split twice': (
    put('train.jsonl.gz', gzip.compress(lines(*SOUND))),
    'train.jsonl.gz: the folder has train.jsonl too; keep one of the two',
  ),
  'no split at all': (
    lambda folder: os.remove(folder / 'train.jsonl'),
    ': no split to read; expected a train.jsonl or train.jsonl.gz',
  ),
  'a label described twice': (
    third_label({'id': 'a'}),
    "labels.jsonl:3: duplicate label 'a'",
  ),
  'a label without an id': (
    third_label({'name': 'C'}),
    "labels.jsonl:3: no field 'id'",
  ),
  'an alternative name that is text': (
    third_label({'id': 'c', 'alt': 'C'}),
    'labels.jsonl:3: alt is text, not a list',
  ),
  'an unknown parent': (
    third_label({'id': 'c', 'parents': ['q']}),
    "labels.jsonl:3: label 'c' has the unknown parent 'q'",
  ),
  'a cycle of parents': (
    put(
      'labels.jsonl',
      lines({'id': 'a', 'parents': ['b']}, {'id': 'b', 'parents': ['a']}),
    ),
    "labels.jsonl:2: label 'b' is its own ancestor, through its parent 'a'",
  ),
  'no labels in labels.jsonl': (
    put('labels.jsonl', b'\n'),
    'labels.jsonl: no label in it',
  ),
}


def law(**fields) -> Break:
  row = {name: v for name, v in {**LAW, **fields}.items() if v is not ...}
  return put('train.jsonl', lines({**LAW, 'celex_id': 'c0'}, row))


def archive(folder: pathlib.Path) -> None:
  os.remove(folder / 'train.jsonl')
  with zipfile.ZipFile(folder / 'datasets.zip', 'w') as made:
    made.writestr('dataset/train/c1.json', json.dumps(LAW)[:-1])


def damaged_archive(folder: pathlib.Path) -> None:
  archive(folder)
  data = bytearray((folder / 'datasets.zip').read_bytes())
  data[60] ^= 255
  (folder / 'datasets.zip').write_bytes(data)


BROKEN_LAWS: dict[str, tuple[Break, str]] = {
  'no header': (law(header=...), "train.jsonl:2: no field 'header'"),
  'a main body that is text': (
    law(main_body='m'),
    'train.jsonl:2: main_body is text, not a list',
  ),
  'a concept that is a number': (
    law(concepts=[7.5]),
    'train.jsonl:2: concepts[0] is a decimal number, not text or an integer',
  ),
  'an unknown concept': (
    law(concepts=['7']),
    "train.jsonl:2: unknown label '7': it has no descriptor",
  ),
  'no text at all': (
    law(title='', header=' ', main_body=[]),
    'train.jsonl:2: the document has no text',
  ),
  'a duplicate law': (
    law(celex_id='c0'),
    "train.jsonl:2: duplicate id 'c0'",
  ),
  'a concept without a label': (
    put('eurovoc_en.json', b'{\n"a": {"parents": []}}'),
    "eurovoc_en.json:2: concept 'a': no field 'label'",
  ),
  'a concept under another id': (
    put('eurovoc_en.json', b'{"a": {"label": "A", "concept_id": "b"}}'),
    "eurovoc_en.json:1: concept 'a': its concept_id is 'b'",
  ),
  'half of the concepts': (
    put('eurovoc_en.json', json.dumps(CONCEPTS, indent=1).encode()[:40]),
    "eurovoc_en.json:4: not JSON: Expecting ':' delimiter at column 15",
  ),
  'bad JSON in the archive': (
    archive,
    "datasets.zip/dataset/train/c1.json:1: not JSON: Expecting ',' delimiter "
    'at column 121',
  ),
  'a damaged archive': (
    damaged_archive,
    'datasets.zip/dataset/train/c1.json: cannot be read: Bad CRC-32 for file '
    "'dataset/train/c1.json'",
  ),
}


def told(folder: pathlib.Path, caught: pytest.ExceptionInfo) -> list[str]:
  """The message's lines, without the folder and the closing advice."""
  text = str(caught.value).replace(f'{folder}/', '').replace(str(folder), '')
  return [t for t in text.split('\n') if not t.startswith('1 fault in all')]


@pytest.mark.parametrize('kind', BROKEN)
def test_a_broken_folder_of_json_lines(tmp_path, kind):
  (tmp_path / 'train.jsonl').write_bytes(lines(*SOUND))
  (tmp_path / 'labels.jsonl').write_bytes(lines(*LABELS))
  data = JsonlData(dir=str(tmp_path))
  load_corpus(data, 0)
  breaks, message = BROKEN[kind]
  breaks(tmp_path)
  with pytest.raises(DataError) as caught:
    load_corpus(data, 0)
  assert told(tmp_path, caught) == [message]


@pytest.mark.parametrize('kind', BROKEN_LAWS)
def test_a_broken_eurlex57k(tmp_path, kind):
  folder = tmp_path / 'source'
  folder.mkdir()
  (folder / 'train.jsonl').write_bytes(lines(LAW))
  (folder / 'eurovoc_en.json').write_text(json.dumps(CONCEPTS))
  breaks, message = BROKEN_LAWS[kind]
  breaks(folder)
  data = Eurlex57kData(dir=str(folder), cache_dir=str(tmp_path / 'cache'))
  with pytest.raises(DataError) as caught:
    load_corpus(data, 0)
  assert told(folder, caught) == [message]
