"""From raw documents to a corpus: zones, gold, hold-out, fingerprint."""

import numpy as np
import pytest

from xjax.core.errors import ConfigError, DataError
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.formats.data_config import DataConfig
from xjax.data.load import build_corpus
from xjax.data.schema import Document, Label, LabelSpace

TRAIN = [('d1', 'ba'), ('d2', 'c'), ('d3', ''), ('d4', 'cab'), ('d5', 'a')]
DEV = [('e1', 'ca'), ('e2', 'dz')]


def documents(rows):
  return [
    Document(i, {'title': f't {i}', 'body': f'b {i}'}, tuple(labels))
    for i, labels in rows
  ]


def raw(train=TRAIN, dev=DEV, labels=()) -> SourceCorpus:
  splits = {'train': documents(train), 'dev': documents(dev)}
  return SourceCorpus.of('test', labels, splits)


def built(data=None, seed=0, splits=None, **kwargs):
  return build_corpus(raw(**kwargs), data or DataConfig(), seed, splits=splits)


def gold(corpus, split):
  ids = corpus.label_space.ids
  return [''.join(ids[i] for i in row) for row in corpus.split(split).gold]


def test_gold_is_in_model_order():
  corpus = built()
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
  corpus = built(DataConfig(hold_out_labels=2), seed=1)
  space = corpus.label_space
  held = set(space.ids[space.n_trained :])
  assert space.n_held_out == 2 and len(held) == 2 and held < set('abc')
  plain = gold(built(), 'train')
  for before, after in zip(plain, gold(corpus, 'train'), strict=True):
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
  space = corpus.label_space
  assert space.ids == (*'cxab', 'd', 'z') and space.n_train == 20
  assert space.train_counts.tolist() == [9, 8, 7, 0, 0, 0]
  assert space.masks()['held_out'].nonzero()[0].tolist() == [3]
  assert gold(corpus, 'train') == ['a', 'c', '', 'ca', 'a']
  assert gold(corpus, 'dev') == ['ca', 'dz']


@pytest.mark.parametrize(
  ('zones', 'text'), [(('body', 'title'), 'b e1\nt e1'), (('title',), 't e1')]
)
def test_zones_are_cut_and_put_in_order(zones, text):
  document = built(DataConfig(zones=zones)).split('dev').documents[0]
  assert document.text() == text and tuple(document.zones) == zones


@pytest.mark.parametrize(
  ('zones', 'what'),
  [
    (('head',), "there is no zone 'head'; the zones of test are: title, body$"),
    (('title', 'x,y'), "there is no zone 'x,y'"),
  ],
)
def test_zones_that_cannot_be_met(zones, what):
  with pytest.raises(ConfigError, match=what):
    built(DataConfig(zones=zones))


def test_splits_that_are_wanted():
  corpus = built(splits=['dev'])
  assert list(corpus.splits) == ['dev']
  assert corpus.label_space.train_counts.tolist() == [3, 2, 2, 0, 0]


def test_the_fingerprint_follows_the_content():
  def print_of(data=None, **changes):
    return built(data, **changes).fingerprint

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
  def digest_of(data=None, **changes):
    return built(data, **changes).split('dev').digest

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
    SourceCorpus.of('test', [], {'dev': split})
