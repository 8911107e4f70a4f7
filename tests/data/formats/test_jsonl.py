"""Your own JSON lines: documents, labels, documents to be tagged."""

import bz2
import gzip
import io
import json
import lzma
import pathlib
import re
import sys
import types

import pytest

from tests.fixtures.error_text import error_text
from tests.fixtures.pipes import piped
from xjax.core.errors import DataError
from xjax.data.formats.jsonl import JsonlData
from xjax.data.load import read_input
from xjax.data.schema import Document, Label
from xjax.data.tokens_config import OnError

TRAIN = [
  {'id': 'd1', 'text': 'one', 'labels': ['b', 'a'], 'year': 1999},
  {'id': 'd2', 'zones': {'title': 'T', 'body': 'ü\n'}, 'labels': []},
]
DEV = [{'id': 'd1', 'text': 'x', 'labels': ['c']}]
LABELS = [{'id': 'c', 'name': 'C'}, {'id': 'b'}, {'id': 'a', 'parents': ['c']}]


def lines(rows) -> bytes:
  return b''.join(json.dumps(row).encode() + b'\n' for row in rows)


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'train.jsonl').write_bytes(lines(TRAIN))
  (tmp_path / 'dev.jsonl.gz').write_bytes(gzip.compress(lines(DEV)))
  (tmp_path / 'labels.jsonl').write_bytes(lines(LABELS))
  return tmp_path


def read(folder, splits=(), usual=False, on_error=OnError.RAISE):
  data = JsonlData(dir=str(folder), on_error=on_error)
  return data.read(splits, usual or not splits)


@pytest.mark.parametrize('name', ['labels.csv', 'labels.json', 'labels.xml'])
def test_foreign_files_beside_the_labels_are_not_read(folder, caplog, name):
  caplog.set_level('INFO', 'absl')
  (folder / name).write_text('of another program')
  test_a_folder(folder)
  assert f'not read: {name}. A folder has' in caplog.text


def test_a_folder(folder):
  raw = read(folder)
  assert list(raw.splits) == ['train', 'dev']
  assert [label.id for label in raw.labels] == ['c', 'b', 'a']
  assert raw.labels[2] == Label('a', 'a', parents=('c',))
  assert raw.label_ids == ('b', 'a', 'c')
  assert raw.zones == ('text', 'title', 'body')
  train = raw.splits['train']
  assert train.ids == ('d1', 'd2')
  assert [list(row) for row in train.gold] == [[0, 1], []]
  assert list(train.documents) == [
    Document('d1', {'text': 'one'}, ('b', 'a')),
    Document('d2', {'title': 'T', 'body': 'ü\n'}, ()),
  ]


def test_without_labels_any_label_goes(folder):
  (folder / 'labels.jsonl').unlink()
  raw = read(folder)
  assert raw.labels == () and raw.label_ids == ('b', 'a', 'c')


def test_usual_splits_come_first(folder):
  for name in ('extra', 'test', 'zeta'):
    (folder / f'{name}.jsonl').write_bytes(lines(DEV))
  assert list(read(folder).splits) == ['train', 'dev', 'test']
  assert list(read(folder, ['test', 'train']).splits) == ['train', 'test']
  assert list(read(folder, ['extra']).splits) == ['extra']
  splits = list(read(folder, ['extra'], usual=True).splits)
  assert splits == ['train', 'dev', 'test', 'extra']


def test_a_file_that_is_no_split_does_no_harm(folder):
  (folder / 'predictions.jsonl').write_bytes(b'{"id": "d1", "labels": [{}]}')
  (folder / 'predictions.jsonl.gz').write_bytes(b'broken')
  assert list(read(folder).splits) == ['train', 'dev']
  says = 'predictions.jsonl.gz: .* has predictions.js'
  with pytest.raises(DataError, match=says):
    read(folder, ['predictions'])


def test_digests_follow_the_content(folder):
  def digests():
    return {name: split.digest for name, split in read(folder).splits.items()}

  before = digests()
  assert digests() == before
  changed = [TRAIN[0], {**TRAIN[1], 'zones': {'title': 'T', 'body': 'u'}}]
  (folder / 'train.jsonl').write_bytes(lines(changed))
  after = digests()
  assert after['train'] != before['train'] and after['dev'] == before['dev']


def test_all_faults_of_all_files_in_one_pass(folder):
  rows = [{'id': 'x'}, TRAIN[0], {'id': 'd1', 'text': ' ', 'labels': ['q']}]
  (folder / 'train.jsonl').write_bytes(lines(rows) + b'{\n')
  (folder / 'labels.jsonl').write_bytes(lines([*LABELS, {'id': 'c'}]))
  (folder / 'dev.jsonl.gz').write_bytes(gzip.compress(lines([{'id': 7.5}])))
  *faults, last = error_text(read, folder, folder=folder).split('\n')
  assert faults == [
    "labels.jsonl:4: duplicate label 'c'",
    "train.jsonl:1: no field 'text'",
    "train.jsonl:1: no field 'labels'",
    'train.jsonl:3: the document has no text',
    "train.jsonl:3: duplicate id 'd1'",
    'train.jsonl:4: not JSON: Expecting property name enclosed in double '
    'quotes at column 2',
    'dev.jsonl.gz:1: id is a decimal number, not text or an integer',
    "dev.jsonl.gz:1: no field 'text'",
    "dev.jsonl.gz:1: no field 'labels'",
  ]
  assert last.startswith('9 faults in all')


def document(**fields) -> dict:
  """A sound third document, but for these fields; `...` leaves one out."""
  row = {'id': 'd3', 'text': 'three', 'labels': ['a'], **fields}
  return {name: value for name, value in row.items() if value is not ...}


@pytest.mark.parametrize(
  ('name', 'data', 'message'),
  [
    ('train', lines([document(id=' ')]), ':1: id is empty'),
    ('train', lines([document(zones={'t': 'x'})]), ':1: has both text and zon'),
    ('train', lines([document(zones=['x'], text=...)]), ':1: zones is not an'),
    (
      'train',
      lines([document(zones={'': 'x'}, text=...)]),
      ':1: the name of a zone is empty',
    ),
    ('labels', lines([{'name': 'C'}]), ":1: no field 'id'"),
    ('train', b'', ': no document in it'),
  ],
)
def test_a_broken_file_is_one_error(folder, name, data, message):
  (path,) = folder.glob(f'{name}.jsonl*')
  path.write_bytes(data)
  assert error_text(read, folder).startswith(f'{path}{message}')


def test_no_json_lines(tmp_path):
  (tmp_path / 'train.csv').write_text('text,labels\n')
  for path in (tmp_path, tmp_path / 'train.csv'):
    assert '--config=own_linear reads files' in error_text(read, path)
  (tmp_path / 'all.jsonl').write_bytes(lines(TRAIN))
  assert 'found: all' in error_text(read, tmp_path)


def test_skip_leaves_the_faulty_lines_out(folder):
  rows = [{'id': 'x'}, *TRAIN, {'id': 'y', 'text': 'y', 'labels': ['q']}]
  (folder / 'train.jsonl').write_bytes(lines(rows))
  faulty = lines([{'id': 'r', 'name': 3}]) + b'{\n'
  (folder / 'labels.jsonl').write_bytes(lines(LABELS) + faulty)
  raw = read(folder, on_error=OnError.SKIP)
  assert raw.splits['train'].ids == ('d1', 'd2', 'y')
  assert raw.label_ids == ('b', 'a', 'q', 'c')
  assert [d.id for d in raw.splits['train'].documents] == ['d1', 'd2', 'y']


INPUT = b'{"text": "one"}\n\n'
INPUT += b'{"id": "x", "zones": {"t": "two"}, "labels": ["q"]}\n'
DOCUMENTS = [
  Document('line-1', {'text': 'one'}, None),
  Document('x', {'t': 'two'}, ('q',)),
]


@pytest.mark.parametrize(
  ('value', 'known', 'labels'),
  [
    ('a;b', ('a;b',), ('a;b',)),
    ('null', None, ()),
    ('', None, ()),
    (7, ('7',), ('7',)),
    (['ü', 'a', 'ü', 3, 3], ('ü', 'a', '3'), ('ü', 'a', '3')),
    ([], (), ()),
  ],
)
def test_forms_of_labels(tmp_path, value, known, labels):
  row = {'id': 'x', 'text': 'y', 'labels': None if value == 'null' else value}
  path = tmp_path / 'train.jsonl'
  path.write_bytes(lines([row]))
  assert read(tmp_path).splits['train'].documents[0].labels == labels
  assert read_input(JsonlData(), str(path))[0].labels == known


@pytest.mark.parametrize('name', ['in.jsonl', 'in.jsonl.gz', '~/in.jsonl'])
def test_documents_to_be_tagged(tmp_path, monkeypatch, name):
  monkeypatch.setenv('HOME', str(tmp_path))
  path = tmp_path / name.removeprefix('~/')
  path.write_bytes(gzip.compress(INPUT) if name.endswith('.gz') else INPUT)
  source = name if name.startswith('~') else str(path)
  assert list(read_input(JsonlData(), source)) == DOCUMENTS


@pytest.mark.parametrize(
  'pack', [bytes, gzip.compress, bz2.compress, lzma.compress]
)
def test_documents_from_standard_input(monkeypatch, pack):
  buffer = io.BytesIO(pack(INPUT))
  monkeypatch.setattr(sys, 'stdin', types.SimpleNamespace(buffer=buffer))
  assert list(read_input(JsonlData(), '-')) == DOCUMENTS


@pytest.mark.parametrize(
  'pack', [bytes, gzip.compress, bz2.compress, lzma.compress]
)
@pytest.mark.parametrize('first', [1, 10_000])
def test_a_pipe_loses_no_document(tmp_path, pack, first):
  texts = [f'number {i} {i**9}' for i in range(2_000)]
  data = pack(lines({'text': text} for text in texts))
  with piped(tmp_path / 'pipe', data[:first], data[first:]) as path:
    documents = read_input(JsonlData(), str(path))
  assert [(document.id, document.text()) for document in documents] == [
    (f'line-{i}', text) for i, text in enumerate(texts, 1)
  ]


@pytest.mark.parametrize(
  ('data', 'what'),
  [
    (b'', ': no document in it'),
    (b'plain text\n', ':1: not JSON: .*jq -Rc .* makes JSON of lines of plai'),
    (b'text\nx\n', ':1: not JSON.*one column is read from a file X.csv'),
    (b'\x28\xb5\x2f\xfd..', ': is packed by zstd, 7z or rar: unpack it'),
    (b'{"id": "a", "text": "x"}\n' * 2, ":2: duplicate id 'a'"),
    (b'{"text": "x", "labels": {}}\n', ':1: labels is an object, not a list'),
  ],
)
def test_faults_of_documents_to_be_tagged(tmp_path, data, what):
  path = tmp_path / 'in.jsonl'
  path.write_bytes(data)
  found = error_text(read_input, JsonlData(), str(path), folder=tmp_path)
  assert re.match(f'in.jsonl{what}', found)


def test_documents_without_the_faulty_ones(tmp_path):
  path = tmp_path / 'in.jsonl'
  path.write_bytes(b'{\n' + INPUT)
  documents = read_input(JsonlData(), str(path), skip_bad_lines=True)
  assert [d.id for d in documents] == ['line-2', 'x']


def test_the_folder_of_prepared_data(monkeypatch, tmp_path):
  monkeypatch.setenv('XJAX_CACHE_DIR', 'there')
  assert JsonlData().cache_folder == pathlib.Path('there')
  config = JsonlData(cache_dir=str(tmp_path / 'here'))
  assert config.cache_folder == tmp_path / 'here'
  monkeypatch.delenv('XJAX_CACHE_DIR')
  home = pathlib.Path.home() / '.cache' / 'xjax'
  assert JsonlData().cache_folder == home
