"""Raw-text folders of the Extreme Classification Repository."""

import gzip
import json
import tracemalloc

import pytest

from xjax.core.errors import ConfigError, DataError
from xjax.data.config import OnError
from xjax.data.files.faults import Faults
from xjax.data.formats.xc_text import XcRepoData, read_label_names, read_xc_repo
from xjax.data.load import load_corpus, read_input
from xjax.data.schema import Document, Label

TRN = [
  {'uid': 'a', 'title': 'T', 'content': 'C', 'target_ind': [10, 2]},
  {'uid': 7, 'title': 'U', 'target_ind': [2, 3], 'target_rel': [1.0, 0.0]},
]
TST = [{'uid': 'a', 'title': '', 'content': 'D', 'target_ind': []}]


def lines(*rows) -> bytes:
  return b''.join(
    (r if isinstance(r, bytes) else json.dumps(r).encode()) + b'\n'
    for r in rows
  )


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'trn.json').write_bytes(lines(*TRN))
  (tmp_path / 'tst.json.gz').write_bytes(gzip.compress(lines(*TST)))
  (tmp_path / 'Y.txt').write_text(
    ''.join(f'name {i}\n' for i in range(11)), 'utf-8'
  )
  return tmp_path


def data(folder, **fields) -> XcRepoData:
  return XcRepoData(dir=str(folder), **fields)


def test_what_is_in_a_folder(folder):
  raw = read_xc_repo(data(folder))
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
  with pytest.raises(DataError, match="no split 'x'; found: train, dev"):
    load_corpus(data(folder), 0, splits=['x'])


def test_described_labels(folder):
  rows = [{'uid': 'x', 'title': f't{i}', 'content': 'c'} for i in range(11)]
  rows[1] = {'title': ' '}
  (folder / 'lbl.json').write_bytes(lines(*rows))
  labels = read_xc_repo(data(folder)).labels
  assert labels[0] == Label('0', 't0', description='c')
  assert labels[1] == Label('1', '1') and len(labels) == 11


def test_a_name_that_is_missing_keeps_its_column(folder):
  (folder / 'Y.txt').write_text('a\n\n' + 'b\n' * 9)
  labels = read_xc_repo(data(folder)).labels
  assert [label.name for label in labels[:3]] == ['a', '1', 'b']
  broken = [b'{"title": "t"}'] * 11
  broken[4] = b'{'
  (folder / 'lbl.json').write_bytes(lines(*broken))
  labels = read_xc_repo(data(folder, on_error=OnError.SKIP)).labels
  assert labels[4] == Label('4', '4') and labels[10].name == 't'


BROKEN = {
  'a column that is not there': (
    {'uid': 'x', 'title': 't', 'target_ind': [11]},
    "unknown label '11': it has no descriptor",
  ),
  'a column that is text': (
    {'uid': 'x', 'title': 't', 'target_ind': ['1']},
    'target_ind must be a list of columns, from 0',
  ),
  'a column below 0': (
    {'uid': 'x', 'title': 't', 'target_ind': [-1]},
    'target_ind must be a list of columns, from 0',
  ),
  'a column twice': (
    {'uid': 'x', 'title': 't', 'target_ind': [1, 3, 3]},
    '3 occurs twice in target_ind',
  ),
  'no columns': ({'uid': 'x', 'title': 't'}, "no field 'target_ind'"),
  'weights for other columns': (
    {'uid': 'x', 'title': 't', 'target_ind': [1], 'target_rel': []},
    'target_rel must be a list with one number per entry of target_ind',
  ),
  'no text': (
    {'uid': 'x', 'title': ' ', 'target_ind': []},
    'the document has neither title nor content',
  ),
  'a document twice': (
    {'uid': '7', 'title': 't', 'target_ind': []},
    "duplicate id '7'",
  ),
  'no id': ({'title': 't', 'target_ind': []}, "no field 'uid'"),
}


@pytest.mark.parametrize('kind', BROKEN)
def test_faults(folder, kind):
  row, what = BROKEN[kind]
  (folder / 'trn.json').write_bytes(lines(*TRN, row))
  with pytest.raises(DataError) as caught:
    load_corpus(data(folder), 0)
  assert str(caught.value).split('\n')[0] == f'{folder}/trn.json:3: {what}'
  skipped = load_corpus(data(folder, on_error=OnError.SKIP), 0)
  assert len(skipped.split('train')) == 2


def test_a_folder_that_lacks_something(folder, tmp_path):
  (folder / 'Y.txt').write_bytes(b'\xe4\n')
  with pytest.raises(DataError, match='Y.txt:1: not UTF-8'):
    read_xc_repo(data(folder))
  (folder / 'Y.txt').write_bytes(b'\n')
  with pytest.raises(DataError, match='Y.txt: no label in it'):
    read_xc_repo(data(folder))
  (folder / 'Y.txt').unlink()
  with pytest.raises(DataError, match='neither lbl.json nor Y.txt'):
    read_xc_repo(data(folder))
  empty = tmp_path / 'empty'
  empty.mkdir()
  (empty / 'Y.txt').write_text('a\n')
  with pytest.raises(DataError, match='expected a trn.json or trn.json.gz'):
    read_xc_repo(data(empty))
  (empty / 'x.json').write_text('{}\n')
  with pytest.raises(DataError, match='a trn.json or trn.json.gz; found: x'):
    read_xc_repo(data(empty))
  with pytest.raises(ConfigError, match='data.dir is not set'):
    read_xc_repo(XcRepoData())


def test_documents_to_be_tagged(folder):
  path = folder / 'in.jsonl'
  path.write_bytes(lines({'title': 'x'}, {'text': 'y'}, TRN[0]))
  found = read_input(data(folder), str(path))
  assert [(d.id, d.text(), d.labels) for d in found] == [
    ('line-1', 'x', None),
    ('line-2', 'y', None),
    ('a', 'T\nC', ('10', '2')),
  ]


def test_names_are_read_into_arrays(tmp_path):
  n, path = 20_000, tmp_path / 'Y.txt'
  path.write_text(''.join(f'name {i}\n' for i in range(n)))
  tracemalloc.start()
  labels = read_label_names(path, Faults(OnError.RAISE))
  _, most = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert len(labels) == n and labels[n - 1].name == f'name {n - 1}'
  assert most < 120 * n  # while they are read; a Label takes 242
