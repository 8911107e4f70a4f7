"""Broken corpora give one clear error; faults of fields are in tests/data."""

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


def lines(*rows: dict) -> bytes:
  return b''.join(json.dumps(row).encode() + b'\n' for row in rows)


def document(**fields) -> dict:
  """A sound third document, but for these fields; `...` leaves one out."""
  row = {'id': 'd3', 'text': 'three', 'labels': ['a'], **fields}
  return {name: value for name, value in row.items() if value is not ...}


# The third line of train.jsonl, and what is said of it.
LINES: dict[str, tuple[dict, str]] = {
  'no id': (document(id=...), "no field 'id'"),
  'an empty id': (document(id=' '), 'id is empty'),
  'text and zones': (
    document(zones={'title': 'x'}),
    'has both text and zones; give only one of them',
  ),
  'zones in a list': (
    document(zones=['x'], text=...),
    'zones is not an object {name: text}',
  ),
  'a zone without a name': (
    document(zones={'': 'x'}, text=...),
    'the name of a zone is empty',
  ),
}
BROKEN: dict[str, tuple[Break, str]] = {
  **{
    kind: (put('train.jsonl', lines(*SOUND, row)), f'train.jsonl:3: {said}')
    for kind, (row, said) in LINES.items()
  },
  'a label without an id': (
    put('labels.jsonl', lines(*LABELS, {'name': 'C'})),
    "labels.jsonl:3: no field 'id'",
  ),
  'half a line': (
    put('train.jsonl', lines(*SOUND)[:-9]),
    "train.jsonl:2: not JSON: Expecting ':' delimiter at column 37",
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
}


def law(**fields) -> Break:
  return put('train.jsonl', lines({**LAW, 'celex_id': 'c0'}, LAW | fields))


def archive(folder: pathlib.Path) -> None:
  os.remove(folder / 'train.jsonl')
  with zipfile.ZipFile(folder / 'datasets.zip', 'w') as made:
    made.writestr('dataset/train/c1.json', json.dumps(LAW)[:-1])


BROKEN_LAWS: dict[str, tuple[Break, str]] = {
  'a concept that is a number': (
    law(concepts=[7.5]),
    'train.jsonl:2: concepts[0] is a decimal number, not text or an integer',
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
