"""Raw-text folders of the Extreme Classification Repository."""

import gzip
import json

import pytest

from tests.fixtures.error_text import error_text
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.load import load_corpus, read_input
from xjax.data.schema import Document, Label
from xjax.data.tokens_config import OnError

TRN = [
  {'uid': 'a', 'title': 'T', 'content': 'C', 'target_ind': [10, 2]},
  {'uid': 7, 'title': 'U', 'target_ind': [2, 3], 'target_rel': [1.0, 0.0]},
]
TST = [{'uid': 'a', 'title': '', 'content': 'D', 'target_ind': []}]


def lines(*rows) -> bytes:
  return b''.join(json.dumps(row).encode() + b'\n' for row in rows)


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'trn.json').write_bytes(lines(*TRN))
  (tmp_path / 'tst.json.gz').write_bytes(gzip.compress(lines(*TST)))
  (tmp_path / 'Y.txt').write_text(''.join(f'name {i}\n' for i in range(11)))
  return tmp_path


def data(folder, **fields) -> XcRepoData:
  return XcRepoData(dir=str(folder), **fields)


def test_what_is_in_a_folder(folder):
  raw = data(folder).read()
  assert list(raw.splits) == ['train', 'test']
  assert raw.zones == ('title', 'content')
  assert raw.splits['train'].ids == ('a', '7')
  assert list(raw.splits['train'].documents) == [
    Document('a', {'title': 'T', 'content': 'C'}, ('10', '2')),
    Document('7', {'title': 'U'}, ('2',)),
  ]
  assert raw.labels[10] == Label('10', 'name 10')


def test_labels_are_columns(folder):
  corpus = load_corpus(data(folder), 0)
  space = corpus.label_space
  assert space.ids == tuple(map(str, range(11)))
  assert space.train_counts.tolist() == [0, 0, 2, *[0] * 7, 1]
  assert corpus.split('train').gold[0].tolist() == [2, 10]
  used = load_corpus(data(folder, labels='corpus'), 0).label_space
  assert used.ids == ('2', '10')
  assert used.labels[1].name == 'name 10'
  zones = load_corpus(data(folder, zones=('title',)), 0)
  assert zones.split('train').documents[0].text() == 'T'


def test_further_splits(folder):
  (folder / 'dev.json').write_bytes(lines(*TRN))
  (folder / 'own.json').write_bytes(lines(TST[0]))
  assert list(load_corpus(data(folder), 0).splits) == ['train', 'dev', 'test']
  assert list(load_corpus(data(folder), 0, splits=['own']).splits) == ['own']


COLUMNS = 'target_ind must be a list of columns, from 0'
WEIGHTS = 'target_rel must be a list with one number per entry of target_ind'
BROKEN = [
  ({'target_ind': [11]}, "unknown label '11': it has no descriptor"),
  ({'target_ind': ['1']}, COLUMNS),
  ({'target_ind': [-1]}, COLUMNS),
  ({'target_ind': [1, 3, 3]}, '3 occurs twice in target_ind'),
  ({'target_ind': ...}, "no field 'target_ind'"),
  ({'target_ind': [1], 'target_rel': []}, WEIGHTS),
  ({'title': ' '}, 'the document has no text'),
  ({'uid': '7'}, "duplicate id '7'"),
  ({'uid': ...}, "no field 'uid'"),
]


def test_faults(folder):
  sound = {'uid': 'x', 'title': 't', 'target_ind': []}
  rows = [
    {key: value for key, value in (sound | changes).items() if value is not ...}
    for changes, _ in BROKEN
  ]
  (folder / 'trn.json').write_bytes(lines(*TRN, *rows))
  message = error_text(load_corpus, data(folder), 0, folder=folder)
  assert message.split('\n')[:-1] == [
    f'trn.json:{line}: {what}' for line, (_, what) in enumerate(BROKEN, 3)
  ]
  skipped = load_corpus(data(folder, on_error=OnError.SKIP), 0)
  assert len(skipped.split('train')) == 2


def test_a_folder_that_lacks_something(folder, tmp_path):
  (folder / 'lbl.json').write_bytes(b'{"title": "t", "content": "c"}\n' * 11)
  assert data(folder).read().labels[10] == Label('10', 't', description='c')
  (folder / 'lbl.json').unlink()
  (folder / 'Y.txt').unlink()
  assert 'neither lbl.json nor Y.txt' in error_text(data(folder).read)
  empty = tmp_path / 'empty'
  empty.mkdir()
  (empty / 'Y.txt').write_text('a\n')
  expected = 'no files of train, dev or test'
  assert expected in error_text(data(empty).read)
  (empty / 'x.json').write_text('{}\n')
  assert f'{expected}; found: x' in error_text(data(empty).read)


def test_documents_to_be_tagged(folder):
  path = folder / 'in.jsonl'
  path.write_bytes(lines({'title': 'x'}, {'text': 'y'}, TRN[0]))
  found = read_input(data(folder), str(path))
  assert [(d.id, d.text(), d.labels) for d in found] == [
    ('line-1', 'x', None),
    ('line-2', 'y', None),
    ('a', 'T\nC', ('10', '2')),
  ]
