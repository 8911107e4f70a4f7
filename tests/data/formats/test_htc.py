"""Corpora of hierarchical text classification."""

import json

import pytest

from tests.fixtures.error_text import error_text
from xjax.core.errors import ConfigError
from xjax.data.formats.htc import HtcData
from xjax.data.hierarchy import Hierarchy
from xjax.data.load import load_corpus, read_input
from xjax.data.schema import Document
from xjax.data.tokens_config import OnError

TAXONOMY = 'Root\tart\tlaw\nart\tmusic\tfilm\nmusic\tjazz\nlaw\tfilm\n'
TRAIN = [
  {'doc_token': ['so', 'it', 'goes'], 'doc_label': ['art', 'music', 'jazz']},
  {'doc_token': 'some text', 'doc_label': ['law'], 'doc_topic': []},
]
DEV = [{'doc_token': 'x', 'doc_label': ['film', 'music'], 'id': 'own'}]


def write(path, *rows):
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'my.taxonomy').write_text(TAXONOMY)
  write(tmp_path / 'my_train.json', *TRAIN)
  write(tmp_path / 'my_val.json', *DEV)
  write(tmp_path / 'label_map.json', {'art': 0})
  return tmp_path


def data(folder, **fields) -> HtcData:
  return HtcData(dir=str(folder), **fields)


def labels_of(split) -> list[tuple[str, ...]]:
  return [document.labels for document in split.documents]


def sizes(raw):
  return {name: len(split.ids) for name, split in raw.splits.items()}


def test_all_labels_and_what_they_imply(folder):
  raw = data(folder).read()
  assert list(raw.splits) == ['train', 'dev']
  train = raw.splits['train']
  assert train.documents[0] == Document(
    'line-1', {'text': 'so it goes'}, ('art', 'music', 'jazz')
  )
  assert train.documents[1].text() == 'some text'
  # Film lies below art and below law.
  assert labels_of(raw.splits['dev']) == [('film', 'music', 'art', 'law')]
  assert raw.splits['dev'].ids == ('own',)
  assert [label.id for label in raw.labels] == [
    *('art', 'law', 'music', 'film', 'jazz')
  ]
  assert Hierarchy.of(raw.labels).levels.tolist() == [1, 1, 2, 2, 3]


def test_faults(folder):
  bad = [
    {'doc_token': 'x', 'doc_label': ['nothing']},
    {'doc_token': 'x', 'doc_label': {}},
    {'doc_token': [' '], 'doc_label': []},
    {'doc_token': ['a', 1], 'doc_label': []},
    {'doc_token': 'x'},
    {'doc_token': 'x', 'doc_label': ['Root']},
  ]
  write(folder / 'my_train.json', *TRAIN, *bad)
  lines = error_text(data(folder).read, folder=folder).split('\n')
  assert lines[:6] == [
    "my_train.json:3: unknown label 'nothing': it has no descriptor",
    'my_train.json:4: doc_label is an object, not a list',
    'my_train.json:5: the document has no text',
    'my_train.json:6: doc_token[1] is a number, not text',
    "my_train.json:7: no field 'doc_label'",
    "my_train.json:8: unknown label 'Root': it has no descriptor",
  ]
  corpus = load_corpus(data(folder, on_error=OnError.SKIP), 0)
  assert len(corpus.split('train')) == 2
  write(folder / 'other_train.json', *TRAIN)
  twice = 'has my_train.json too; keep one of the two'
  assert twice in error_text(data(folder).read)


def test_where_the_taxonomy_is(folder):
  (folder / 'taxonomy.txt').write_text('Root\tart\n')
  with pytest.raises(ConfigError, match='not set.*my.taxonomy, taxonomy.txt'):
    data(folder).read()
  assert len(data(folder, taxonomy='my.taxonomy').read().labels) == 5
  with pytest.raises(ConfigError, match='there is no file .*none'):
    data(folder, taxonomy='none').read()


def test_documents_to_be_tagged(folder):
  path = folder / 'in.jsonl'
  write(path, {'doc_token': ['a', 'b']}, {'text': 'c'}, TRAIN[0])
  found = read_input(data(folder), str(path))
  assert [(d.id, d.text(), d.labels) for d in found] == [
    ('line-1', 'a b', None),
    ('line-2', 'c', None),
    ('line-3', 'so it goes', ('art', 'music', 'jazz')),
  ]


def test_names_of_files_in_the_wild(tmp_path):
  (tmp_path / 'nyt.taxnomy').write_text(TAXONOMY)
  (tmp_path / 'tax').mkdir()
  write(tmp_path / 'tax_notes.json', {})
  write(tmp_path / 'nyt_train_all.json', *TRAIN)
  write(tmp_path / 'nyt-val-all.json', *DEV)
  write(tmp_path / 'train_test_both.json', *TRAIN)
  raw = data(tmp_path).read()
  assert len(raw.labels) == 5
  assert sizes(raw) == {'train': 2, 'dev': 1}
  # A name that ends in the split is the better one.
  write(tmp_path / 'nyt_train.json', TRAIN[0])
  raw = data(tmp_path).read(['nyt_train_all', 'train_test_both'])
  usual = {'train': 1, 'dev': 1}
  assert sizes(raw) == {**usual, 'nyt_train_all': 2, 'train_test_both': 2}


def test_fields_without_doc_before_them(folder):
  write(
    folder / 'my_train.json',
    {'token': ['so', 'it', 'goes'], 'label': ['art'], 'id': 'a'},
    {'doc_token': 'x', 'doc_label': ['law'], 'token': 1, 'label': 2},
  )
  train = data(folder).read().splits['train']
  assert train.documents[0] == Document('a', {'text': 'so it goes'}, ('art',))
  assert train.documents[1].labels == ('law',)
  write(folder / 'my_train.json', {'token': 'x', 'label': {}}, {'label': []})
  lines = error_text(data(folder).read, folder=folder).split('\n')
  assert lines[:2] == [
    'my_train.json:1: label is an object, not a list',
    "my_train.json:2: no field 'doc_token'",
  ]


def test_names_of_labels_have_one_form(folder):
  (folder / 'my.taxonomy').write_text('Root\tsante\u0301\nsanté\ta\xa0b\n')
  write(folder / 'my_train.json', {'token': 'x', 'label': ['a  b', 'santé']})
  write(folder / 'my_val.json', {'token': 'x', 'label': ['a\u200b b']})
  raw = data(folder).read()
  assert raw.label_ids == ('a b', 'santé')
  assert labels_of(raw.splits['dev']) == [('a b', 'santé')]
