"""From raw documents to a corpus: zones, gold, hold-out, fingerprint."""

import numpy as np
import pytest

from xjax.core.errors import ConfigError, DataError
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.draft import RawCorpus
from xjax.data.load import build_corpus
from xjax.data.schema import Document, Label, LabelSpace

TRAIN = [('d1', 'ba'), ('d2', 'c'), ('d3', ''), ('d4', 'cab'), ('d5', 'a')]
DEV = [('e1', 'ca'), ('e2', 'dz')]


def documents(rows):
  return [
    Document(i, {'title': f't {i}', 'body': f'b {i}'}, tuple(labels))
    for i, labels in rows
  ]


def raw(train=TRAIN, dev=DEV, labels=()) -> RawCorpus:
  splits = {'train': documents(train), 'dev': documents(dev)}
  return RawCorpus.of('test', labels, splits)


def gold(corpus, split):
  ids = corpus.label_space.ids
  return [''.join(ids[i] for i in row) for row in corpus.split(split).gold]


def test_gold_is_in_model_order():
  corpus = build_corpus(raw(), DataConfig(), seed=0)
  assert corpus.label_space.ids == ('a', 'b', 'c', 'd', 'z')
  assert corpus.label_space.train_counts.tolist() == [3, 2, 2, 0, 0]
  assert gold(corpus, 'train') == ['ab', 'c', '', 'abc', 'a']
  assert gold(corpus, 'dev') == ['ac', 'dz']
  train = corpus.split('train')
  assert train.gold.values.dtype == np.int32
  assert train.gold.indptr.tolist() == [0, 2, 3, 3, 6, 7]
  assert train.ids == ('d1', 'd2', 'd3', 'd4', 'd5') and len(train) == 5
  assert train.documents[3].labels == ('c', 'a', 'b')


def test_held_out_labels_leave_train_alone():
  config = DataConfig(hold_out_labels=2)
  corpus = build_corpus(raw(), config, seed=1)
  space = corpus.label_space
  held = set(space.ids[space.n_trained :])
  assert space.n_held_out == 2 and len(held) == 2 and held < set('abc')
  plain = build_corpus(raw(), DataConfig(), seed=1)
  for before, after in zip(gold(plain, 'train'), gold(corpus, 'train')):
    assert set(after) == set(before) - held
  assert [set(row) for row in gold(corpus, 'dev')] == [{*'ac'}, {*'dz'}]
  assert len(corpus.split('train')) == 5 and space.n_train == 5
  counts = dict(zip(space.ids, space.train_counts.tolist()))
  for id_, count in zip('abcdz', [3, 2, 2, 0, 0]):
    assert counts[id_] == (0 if id_ in held else count)


def test_a_given_space_keeps_its_order_and_its_counts():
  labels = tuple(Label(i) for i in 'cxab')
  counts = np.array([9, 8, 7, 0], np.int32)
  space = LabelSpace(labels, counts, 20, n_trained=3, n_held_out=1)
  config = DataConfig(labels='absent.txt', hold_out_labels=99)
  corpus = build_corpus(raw(), config, 0, space)
  assert corpus.label_space.ids == (*'cxab', 'd', 'z')
  assert corpus.label_space.train_counts.tolist() == [9, 8, 7, 0, 0, 0]
  assert corpus.label_space.n_train == 20
  assert corpus.label_space.masks()['held_out'].tolist() == (
    [False] * 3 + [True] + [False] * 2
  )
  assert gold(corpus, 'train') == ['a', 'c', '', 'ca', 'a']
  assert gold(corpus, 'dev') == ['ca', 'dz']


def test_zones_are_cut_and_put_in_order():
  corpus = build_corpus(raw(), DataConfig(zones=('body', 'title')), seed=0)
  assert corpus.split('dev').documents[0].text() == 'b e1\nt e1'
  corpus = build_corpus(raw(), DataConfig(zones=('title',)), seed=0)
  assert corpus.split('dev').documents[0].zones == {'title': 't e1'}


@pytest.mark.parametrize(
  ('zones', 'what'),
  [
    (('head',), "there is no zone 'head'; the zones of test are: title, body$"),
    (('title', 'x,y'), "there is no zone 'x,y'"),
  ],
)
def test_zones_that_cannot_be_met(zones, what):
  with pytest.raises(ConfigError, match=what):
    build_corpus(raw(), DataConfig(zones=zones), seed=0)


def test_splits_that_are_wanted():
  corpus = build_corpus(raw(), DataConfig(), seed=0, splits=['dev'])
  assert list(corpus.splits) == ['dev']
  assert corpus.label_space.train_counts.tolist() == [3, 2, 2, 0, 0]


def test_the_fingerprint_follows_the_content():
  def print_of(data=None, seed=0, **kwargs):
    return build_corpus(raw(**kwargs), data or DataConfig(), seed).fingerprint

  same = print_of()
  assert same == print_of() == print_of(seed=1) and len(same) == 64
  others = [
    print_of(train=[*TRAIN[:-1], ('d6', 'a')]),
    print_of(train=[*TRAIN[:-1], ('d5', 'b')]),
    print_of(dev=DEV[::-1]),
    print_of(data=DataConfig(zones=('title',))),
    print_of(data=DataConfig(hold_out_labels=2)),
    print_of(data=DataConfig(labels='all'), labels=[Label(i) for i in 'abcdz']),
    print_of(data=DataConfig(labels='all'), labels=[Label(i) for i in 'zabcd']),
  ]
  assert others[-2] == same
  assert len({same, *others}) == 7


def test_a_splits_digest_is_of_its_own_documents_and_zones_alone():
  def digest_of(data=None, **kwargs):
    corpus = build_corpus(raw(**kwargs), data or DataConfig(), seed=0)
    return corpus.split('dev').digest

  same = digest_of()
  assert same == digest_of(train=TRAIN[:2]) == digest_of(labels=[Label('a')])
  assert same == digest_of(data=DataConfig(hold_out_labels=2))
  others = [
    digest_of(dev=DEV[::-1]),
    digest_of(dev=[DEV[0], ('e3', 'dz')]),
    digest_of(data=DataConfig(zones=('title', 'body'))),
    digest_of(data=DataConfig(zones=('body', 'title'))),
  ]
  assert len({same, *others}) == 5


@pytest.mark.parametrize(
  ('documents', 'says'),
  [
    ([('a', ['x']), ('a', [])], "dev: duplicate id 'a'"),
    ([('a', ['x', 'y', 'x'])], "dev: document 'a' has a label twice"),
  ],
)
def test_what_no_corpus_can_have(documents, says):
  split = [Document(id_, {}, tuple(labels)) for id_, labels in documents]
  with pytest.raises(DataError, match=says):
    RawCorpus.of('test', [], {'dev': split})
