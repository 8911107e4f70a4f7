"""Raw-text folders of the Extreme Classification Repository."""

import gzip
import json
import tracemalloc

import pytest

from tests.fixtures.error_text import error_text
from xjax.core.errors import ConfigError
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
  broken = ['{"title": "t"}'] * 11
  broken[4] = '{'
  (folder / 'lbl.json').write_text('\n'.join(broken))
  labels = read_xc_repo(data(folder, on_error=OnError.SKIP)).labels
  assert labels[4] == Label('4', '4') and labels[10].name == 't'


COLUMNS = 'target_ind must be a list of columns, from 0'
WEIGHTS = 'target_rel must be a list with one number per entry of target_ind'
BROKEN = [
  ({'target_ind': [11]}, "unknown label '11': it has no descriptor"),
  ({'target_ind': ['1']}, COLUMNS),
  ({'target_ind': [-1]}, COLUMNS),
  ({'target_ind': [1, 3, 3]}, '3 occurs twice in target_ind'),
  ({'target_ind': None}, "no field 'target_ind'"),
  ({'target_ind': [1], 'target_rel': []}, WEIGHTS),
  ({'title': ' '}, 'the document has neither title nor content'),
  ({'uid': '7'}, "duplicate id '7'"),
  ({'uid': None}, "no field 'uid'"),
]


@pytest.mark.parametrize(('changes', 'what'), BROKEN)
def test_faults(folder, changes, what):
  row = {'uid': 'x', 'title': 't', 'target_ind': [], **changes}
  row = {key: value for key, value in row.items() if value is not None}
  (folder / 'trn.json').write_bytes(lines(*TRN, row))
  message = error_text(load_corpus, data(folder), 0, folder=folder)
  assert message.split('\n')[0] == f'trn.json:3: {what}'
  skipped = load_corpus(data(folder, on_error=OnError.SKIP), 0)
  assert len(skipped.split('train')) == 2


def test_a_folder_that_lacks_something(folder, tmp_path):
  for text, says in (
    (b'\xe4\n', 'Y.txt:1: not UTF-8'),
    (b'\n', 'no label in it'),
  ):
    (folder / 'Y.txt').write_bytes(text)
    assert says in error_text(read_xc_repo, data(folder))
  (folder / 'Y.txt').unlink()
  assert 'neither lbl.json nor Y.txt' in error_text(read_xc_repo, data(folder))
  empty = tmp_path / 'empty'
  empty.mkdir()
  (empty / 'Y.txt').write_text('a\n')
  expected = 'expected a trn.json or trn.json.gz'
  assert expected in error_text(read_xc_repo, data(empty))
  (empty / 'x.json').write_text('{}\n')
  assert f'{expected}; found: x' in error_text(read_xc_repo, data(empty))
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
