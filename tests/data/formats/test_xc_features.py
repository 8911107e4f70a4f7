"""Folders of feature files: rows, labels, norms, and what does not fit."""

import gzip
import json
import logging

import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.error_text import error_text
from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.documents import SparseDocuments
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.formats.xc_files import read_xc
from xjax.data.load import load_corpus, read_input
from xjax.data.schema import Document, Label
from xjax.data.tokens_config import GivenFeaturesConfig, Norm

TRAIN = '4 6 5\n0,3 0:3 2:4\n 5:2\n3 1:1\n\n'
TEST = '2 6 5\n1 0:1 5:1\n3,4 2:0.5\n'


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'train.txt').write_text(TRAIN)
  (tmp_path / 'test.txt.gz').write_bytes(gzip.compress(TEST.encode()))
  return tmp_path


def data(folder, norm=Norm.NONE, **fields) -> XcFeaturesData:
  tokens = GivenFeaturesConfig(norm)
  return XcFeaturesData(dir=str(folder), tokens=tokens, **fields)


def load(folder, **fields):
  return load_corpus(data(folder, **fields), 0)


def test_rows_and_labels(folder):
  corpus = load(folder)
  assert list(corpus.splits) == ['train', 'test']
  train, test = corpus.splits.values()
  assert train.ids == ('0', '1', '2', '3') and len(train.documents) == 4
  assert train.documents[0] == Document('0', {}, ('0', '3'))
  assert train.documents[-1] == Document('3', {}, ())
  assert [document.text() for document in test.documents] == ['', '']
  rows = train.documents.rows
  assert rows.dtype == np.float32 and rows.indices.dtype == np.int32
  entries = [[3, 0, 4, 0, 0, 0], [0, 0, 0, 0, 0, 2], [0, 1, 0, 0, 0, 0]]
  assert rows.toarray().tolist() == [*entries, [0] * 6]
  assert test.documents.rows.toarray()[1].tolist() == [0, 0, 0.5, 0, 0, 0]
  assert corpus.label_space.ids == ('0', '1', '2', '3', '4')
  assert corpus.label_space.train_counts.tolist() == [1, 0, 0, 2, 0]
  assert [gold.tolist() for gold in test.gold] == [[1], [3, 4]]


def test_rows_are_made_of_length_1(folder):
  rows = load(folder, norm=Norm.L2).split('train').documents.rows
  some = rows.toarray()[:, [0, 1, 2, 5]]
  wanted = [[0.6, 0, 0.8, 0], [0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]]
  np.testing.assert_allclose(some, wanted, rtol=1e-7)
  assert rows.dtype == np.float32


def test_raw_rows_are_told(folder, caplog):
  with caplog.at_level(logging.WARNING, logger='absl'):
    load(folder, norm=Norm.L2)
    load_corpus(data(folder), 0, load(folder).label_space, ['test'])
  assert len(caplog.records) == 1
  told = caplog.records[0].getMessage()
  assert told.startswith(f'{folder}/train.txt: 2 of 4 rows are not of length 1')
  assert '--config.data.tokens.norm=l2' in told


def test_labels_that_are_used_or_listed_or_held_out(folder):
  used = load(folder, labels='corpus')
  assert used.label_space.ids == ('0', '1', '3', '4')
  assert [gold.tolist() for gold in used.split('test').gold] == [[1], [2, 3]]
  (folder / 'mine.list').write_text('3\n2\n')
  listed = load(folder, labels='mine.list').label_space
  assert listed.ids[: listed.n_trained] == ('3', '2')
  assert listed.n_outside == 3
  held = load(folder, hold_out_labels=1)
  (hidden,) = held.label_space.held_out
  assert hidden not in held.split('train').gold.values


@pytest.mark.parametrize('name', ['Y.txt', 'labels.txt'])
def test_names(folder, name):
  (folder / name).write_text('cat\ndog\n\nfish\nfowl\n')
  labels = load(folder).label_space.labels
  assert [label.name for label in labels] == ['cat', 'dog', '2', 'fish', 'fowl']
  # A file without a header does not say how many labels there are.
  (folder / 'test.txt.gz').unlink()
  (folder / 'test.txt').write_text('1 0:1\n')
  assert len(load(folder).label_space) == 5
  assert len(load_corpus(data(folder), 0, None, ['test']).label_space) == 5


def write_labels(folder, *rows):
  lines = ''.join(json.dumps(row) + '\n' for row in rows)
  (folder / 'labels.jsonl').write_text(lines)


def test_labels_can_have_descriptors(folder, caplog):
  rows = [{'id': id_} for id_ in 'cbad']
  rows.append({'id': 'e', 'name': 'E', 'alt': ['ee'], 'parents': ['c']})
  write_labels(folder, *rows)
  corpus = load(folder, named_ids=True)
  assert list(corpus.label_space.ids) == ['c', 'b', 'a', 'd', 'e']
  assert corpus.label_space.labels[4] == Label('e', 'E', ('ee',), ('c',))
  assert corpus.split('test').gold[1].tolist() == [3, 4]
  # A file does not say which of its columns is which label.
  caplog.set_level(logging.INFO)
  source = str(folder / 'test.txt.gz')
  documents = read_input(data(folder, named_ids=True), source)
  assert documents[0].labels is None
  assert 'the labels are left out' in caplog.text


def test_descriptors_are_one_for_each_column(folder):
  named = {'named_ids': True}
  assert 'named_ids=True needs labels.jsonl' in error_text(
    load, folder, **named
  )
  write_labels(folder, *({'id': id_} for id_ in 'abade'))
  assert "jsonl:3: duplicate label 'a'" in error_text(load, folder, **named)
  write_labels(folder, *({'id': id_} for id_ in 'abc'))
  with pytest.raises(DataError, match='jsonl: has 3 labels, but .* has 5'):
    load(folder, **named)


def test_files_without_headers(folder):
  (folder / 'test.txt.gz').unlink()
  for name, text in (('train', TRAIN), ('test', TEST)):
    (folder / f'{name}.txt').write_text(text.split('\n', 1)[1])
  corpus = load(folder)
  assert len(corpus.label_space) == 5
  assert corpus.split('train').documents.rows.shape == (4, 6)
  assert corpus.split('test').documents.rows.shape == (2, 6)


@pytest.mark.parametrize(
  ('name', 'text', 'says'),
  [
    ('dev', '1 7 5\n0 6:1\n', r'dev.txt: feature 6 is not in 0..5'),
    ('dev', '1 6 4\n0 5:1\n', r'dev.txt: has 4 labels, but .*train.txt has 5'),
    ('dev', '5 0:1\n', r'dev.txt: has 6 labels, but .*train.txt has 5'),
    ('dev', '1 5\n0:1\n', r'dev.txt:1: `N L` is the header of a label file'),
    ('dev', '0 6 5\n', r'dev.txt: no document in it'),
    ('test', TEST, r'test.txt.gz: the folder has test.txt too'),
    ('Y', 'a\nb\n', r'Y.txt: has 2 labels, but .*train.txt has 5'),
  ],
)
def test_faults(folder, name, text, says):
  (folder / f'{name}.txt').write_text(text)
  with pytest.raises(DataError, match=says):
    load(folder)


def test_the_digest_tells_rows_and_gold(folder):
  before = load(folder)
  assert load(folder).fingerprint == before.fingerprint
  for changed in (TRAIN.replace('0:3', '0:2'), TRAIN.replace('0,3', '0,2')):
    (folder / 'train.txt').write_text(changed)
    after = load(folder)
    assert after.fingerprint != before.fingerprint
    assert after.split('train').digest != before.split('train').digest
    assert after.split('test').digest == before.split('test').digest


def test_a_file_to_be_tagged(folder):
  path = folder / 'new.txt'
  path.write_text('2 9 7\n6 0:3 8:4\n 1:1\n')
  found = read_input(data(folder, norm=Norm.L2), str(path))
  assert isinstance(found, SparseDocuments) and len(found) == 2
  assert [document.labels for document in found] == [('6',), ()]
  assert found.rows.toarray()[0, 8] == np.float32(0.8)
  path.write_text('2 9 7\n 0:3\n 1:1\n')
  found = read_input(data(folder), str(path))
  assert [document.labels for document in found] == [None, None]
  with pytest.raises(DataError, match='standard input'):
    read_input(data(folder), '-')


def test_rows_as_wide_as_a_model_reads():
  rows = matrix([[0, 2], []], 3)
  documents = SparseDocuments('new.txt', rows, Ragged.of([(), ()]))
  assert documents.with_width(3) is documents
  wide = documents.with_width(5)
  assert wide.rows.shape == (2, 5) and len(wide) == 2
  assert wide.with_width(3).rows.shape == (2, 3)
  with pytest.raises(DataError, match=r'new.txt: feature 2 is not in 0..1'):
    documents.with_width(2)


def matrix(rows, width):
  ids = Ragged.of(rows)
  ones = np.ones(len(ids.values), np.float32)
  return sparse.csr_array((ones, ids.values, ids.indptr), (len(rows), width))


@pytest.mark.real_data
def test_bibtex(data_dir):
  folder = data_dir / 'bibtex'
  corpus = load(folder, norm=Norm.L2)
  sizes = [split.documents.rows.shape for split in corpus.splits.values()]
  assert sizes == [(4880, 1836), (2515, 1836)]
  assert len(corpus.label_space) == 159
  rows = corpus.split('train').documents.rows
  raw = read_xc(folder / 'train.txt').matrix()
  assert np.array_equal(rows.indices, raw.indices)
  lengths = sparse.linalg.norm(rows, axis=1)
  np.testing.assert_allclose(lengths[lengths > 0], 1, rtol=1e-6)


@pytest.mark.parametrize(
  ('text', 'says'),
  [
    ('1 5000000 3\n0 0:1\n', '5000000 features, but only 2 entries'),
    ('1 3 5000000\n0 0:1\n', '5000000 labels, but only 2 entries'),
    ('2147483646 0:1\n', '2147483647 labels, but only 2 entries'),
    ('0 2147483646:1\n', '2147483647 features, but only 2 entries'),
  ],
)
def test_widths_that_few_entries_cannot_support(tmp_path, text, says):
  (tmp_path / 'train.txt').write_text(text)
  with pytest.raises(DataError, match=f'train.txt: has {says}; at most'):
    load(tmp_path)


def many_rows(folder, n=50):
  lines = [f'{i % 5} {i % 7}:1 {7 + i // 2}:2' for i in range(n)]
  (folder / 'train.txt').write_text('\n'.join([f'{n} 40 5', *lines]) + '\n')


def test_a_share_of_train_is_drawn_as_dev(folder):
  many_rows(folder)
  whole = load(folder).splits['train']
  drawn = load(folder, dev_share=0.2)
  assert list(drawn.splits) == ['train', 'dev', 'test']
  train, dev = drawn.splits['train'], drawn.splits['dev']
  assert (len(train), len(dev)) == (40, 10)
  assert sorted(train.ids + dev.ids, key=int) == list(whole.ids)
  for split in (train, dev):
    rows = np.array([int(id_) for id_ in split.ids])
    difference = split.documents.rows - whole.documents.rows[rows]
    assert not difference.nnz
    assert [document.id for document in split.documents] == list(split.ids)
    for row, gold in zip(rows.tolist(), split.gold, strict=True):
      np.testing.assert_array_equal(gold, whole.gold[row])
  assert drawn.label_space.train_counts.sum() == 40
  # The same documents again, also if only dev is read.
  assert load(folder, dev_share=0.2).splits['dev'].ids == dev.ids
  alone = load_corpus(
    data(folder, dev_share=0.2), 0, drawn.label_space, ['dev']
  )
  assert alone.splits['dev'].digest == dev.digest
  assert alone.splits['dev'].ids == dev.ids
  other = load(folder, dev_share=0.2, split_seed=1).splits['dev']
  assert len(other) == 10 and other.ids != dev.ids


def test_equal_rows_are_drawn_together(folder):
  lines = [f'{i % 5} {i // 4}:1' for i in range(80)]
  (folder / 'train.txt').write_text('\n'.join(['80 20 5', *lines]) + '\n')
  (folder / 'test.txt.gz').unlink()
  dev = load(folder, dev_share=0.2).splits['dev']
  assert len(dev) == 16
  assert len({int(id_) // 4 for id_ in dev.ids}) == 4


def test_a_dev_file_is_not_replaced(folder):
  many_rows(folder)
  (folder / 'dev.txt').write_text('1 40 5\n1 0:1\n')
  corpus = load(folder, dev_share=0.2)
  assert [len(split) for split in corpus.splits.values()] == [50, 1, 2]
