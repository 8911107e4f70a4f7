"""Checks loading the corpus of a config, and documents to be tagged like it."""

import json
import logging

import numpy as np
import pytest

from xjax.core.errors import ConfigError, DataError
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.eurlex57k import Eurlex57kData
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.load import load_corpus, read_input, read_zones
from xjax.data.schema import Document, LabelSpace

SYNTHETIC = SyntheticData(n_train=60, n_dev=20, n_test=0, n_labels=20)


def write(folder, name, rows):
  text = ''.join(json.dumps(row) + '\n' for row in rows)
  (folder / f'{name}.jsonl').write_text(text)


def row(id_, *labels):
  return {'id': id_, 'text': f'text of {id_}', 'labels': labels}


@pytest.fixture
def folder(tmp_path):
  write(tmp_path, 'train', [row(f'd{i}', 'a', f'l{i}') for i in range(4)])
  write(tmp_path, 'test', [row('t', 'new')])
  return tmp_path


def test_the_synthetic_corpus():
  corpus = load_corpus(SYNTHETIC, seed=0)
  assert len(corpus.split('train')) == 60 and len(corpus.split('dev')) == 20
  space = corpus.label_space
  assert list(space.ids) == sorted(space.ids) and space.n_train == 60
  again = load_corpus(SYNTHETIC, seed=1)
  assert again.fingerprint == corpus.fingerprint
  other = SyntheticData(**{**vars(SYNTHETIC), 'corpus_seed': 1})
  assert load_corpus(other, seed=0).fingerprint != corpus.fingerprint


def test_a_folder_is_logged(folder, caplog):
  with caplog.at_level(logging.INFO, logger='absl'):
    corpus = load_corpus(JsonlData(dir=str(folder)), seed=0)
  assert list(corpus.splits) == ['train', 'test']
  told = [record.getMessage() for record in caplog.records]
  assert told == [
    f'{folder} has no split dev; the split is left out',
    'train: 4 documents',
    'test: 1 document',
    '6 labels: 0 frequent, 5 few, 1 zero',
  ]


def test_the_label_space_is_the_same_whatever_splits_are_kept(folder):
  data = JsonlData(dir=str(folder))
  corpus = load_corpus(data, 0, splits=['test'])
  assert list(corpus.splits) == ['test']
  assert corpus.label_space.ids == load_corpus(data, 0).label_space.ids
  with pytest.raises(DataError, match="no split 'dev'; found: train, test"):
    load_corpus(data, 0, splits=['dev'])
  write(folder, 'own', [row('t', 'a', 'z')])
  corpus = load_corpus(data, 0, splits=['own'])
  assert list(corpus.splits) == ['own'] and corpus.label_space.n_train == 4


def test_another_corpus_in_a_given_space(folder, caplog):
  space = load_corpus(JsonlData(dir=str(folder)), 0).label_space
  (folder / 'train.jsonl').unlink()
  write(folder, 'test', [row('t', 'zz', 'a')])
  caplog.clear()  # another test may have left the logger at INFO
  with caplog.at_level(logging.INFO, logger='absl'):
    corpus = load_corpus(JsonlData(dir=str(folder)), 0, space, ['test'])
  assert corpus.label_space.ids == (*space.ids, 'zz')
  assert corpus.label_space.train_counts.tolist() == [4, 1, 1, 1, 1, 0, 0]
  assert corpus.split('test').gold[0].tolist() == [0, 6]
  assert '1 outside the label space' in caplog.text
  # Nobody asked for dev and train.
  assert 'has no split' not in caplog.text


def test_a_saved_space_judges_a_split_as_the_run_did(folder, tmp_path):
  """Gold outside the labels counts, whichever split it is in."""
  (folder / 'list.txt').write_text('l1\na\nl0\n')
  write(folder, 'dev', [row('v', 'other', 'a')])
  data = JsonlData(dir=str(folder), labels='list.txt', hold_out_labels=1)
  corpus = load_corpus(data, 0)
  space = corpus.label_space
  assert space.ids[3:] == ('l2', 'l3', 'new', 'other')
  space.save(tmp_path / 'saved.jsonl')
  loaded = LabelSpace.load(tmp_path / 'saved.jsonl', space.n_train)
  for name in ('dev', 'test'):
    again = load_corpus(data, 0, loaded, [name])
    assert again.label_space.labels == space.labels
    for kind, mask in space.masks().items():
      np.testing.assert_array_equal(again.label_space.masks()[kind], mask)
    split, before = again.split(name), corpus.split(name)
    assert split.gold.values.tolist() == before.gold.values.tolist()
  # A label that is new to the space comes after all of these.
  write(folder, 'test', [row('t', 'aa', 'new')])
  again = load_corpus(data, 0, loaded, ['test'])
  assert again.label_space.ids == (*space.ids, 'aa')
  assert again.label_space.n_outside == 5


def test_an_unknown_kind_of_corpus():
  with pytest.raises(ConfigError, match='DataConfig'):
    load_corpus(DataConfig(), 0)


def test_bare_text_is_read_whole():
  document = Document('d', {'text': 'x'})
  for data in (Eurlex57kData(), JsonlData(zones=('title',)), JsonlData()):
    assert read_zones(document, data) == document


def test_zones_of_an_input_are_cut():
  document = Document('d', {'body': 'b', 'title': 't', 'header': 'h'})
  data = JsonlData(zones=('title', 'body'))
  assert read_zones(document, data).text() == 't\nb'
  assert read_zones(document, JsonlData()).text() == 'b\nt\nh'
  assert read_zones(document, Eurlex57kData()).text() == 'h'


def test_inputs_in_the_format_of_the_corpus(tmp_path):
  rows = [
    {'celex_id': 'c', 'header': 'H', 'title': 'T', 'main_body': ['1', '2']},
    {'header': 'H', 'concepts': ['7']},
    {'text': 'plain'},
  ]
  write(tmp_path, 'in', rows)
  path = str(tmp_path / 'in.jsonl')
  documents = read_input(Eurlex57kData(), path)
  assert [(d.id, d.text(), d.labels) for d in documents] == [
    ('c', 'H\n1\n2', None),
    ('line-2', 'H', ('7',)),
    ('line-3', 'plain', None),
  ]
  with pytest.raises(DataError, match=":1: no field 'text'"):
    read_input(JsonlData(), path)
