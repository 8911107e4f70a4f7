"""Measurements of a corpus: sizes, counts, repeated texts, similar labels."""

import pytest

from xjax.core.errors import DataError
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.formats.jsonl import JsonlData
from xjax.data.load import build_corpus
from xjax.data.quality import (
  check_train_labels,
  find_similar_names,
  measure_quality,
  similar_names_warning,
)
from xjax.data.schema import Document, Label


def corpus_of(labels=(), zones=(), **splits):
  """Makes a corpus of triples (id, zones, labels), by split."""
  documents = {
    name: [Document(*row) for row in rows] for name, rows in splits.items()
  }
  data = JsonlData(zones=zones)
  return build_corpus(SourceCorpus.of('it', labels, documents), data, 0)


def body(text):
  return {'body': text}


TRAIN = [
  ('t1', body('one two  three'), ('a', 'b')),
  ('t2', body('one\ntwo three'), ('a',)),
  ('t3', body('four'), ()),
]


def test_documents_and_labels_are_counted():
  test = [('e1', body('five six'), ('a', 'new')), ('e2', body('four'), ('b',))]
  quality = measure_quality(corpus_of(train=TRAIN, test=test))
  train, test = quality.splits
  assert train.labels.tolist() == [2, 1, 0] and test.labels.tolist() == [2, 1]
  assert train.sizes.tolist() == [3, 3, 1] and quality.unit == 'word'
  assert (train.repeats, train.repeat_examples) == (1, (('t2', 't1'),))
  assert (train.conflicts, test.conflicts) == (1, 0)
  assert (test.repeats, test.repeat_examples) == (0, ())
  assert quality.train_counts.tolist() == [2, 1, 0]
  assert quality.unseen.tolist() == [2]
  (overlap,) = quality.overlaps
  assert overlap.text_examples == (('e2', 't3'),)


def test_sizes_are_those_of_the_zones_that_models_read():
  rows = [
    ('t1', {'title': 'one two', 'body': 'three'}, ('a',)),
    ('t2', {'title': 'four'}, ('a',)),
  ]
  (train,) = measure_quality(corpus_of(zones=('body',), train=rows)).splits
  assert train.sizes.tolist() == [1, 0] and train.empty_example == 't2'
  (train,) = measure_quality(corpus_of(train=rows)).splits
  assert train.sizes.tolist() == [3, 1] and train.empty_example is None


def test_labels_that_differ_in_case_or_white_space_are_twins():
  ids = ('Tax', 'a  b', 'a b', 'c', 'tax', 'TAX')
  space = corpus_of(train=[('t', body('x'), ids)]).label_space
  groups = [
    [space.ids[i] for i in group] for group in find_similar_names(space)
  ]
  assert sorted(map(sorted, groups)) == [['TAX', 'Tax', 'tax'], ['a  b', 'a b']]


def test_labels_with_names_are_compared_by_their_names():
  names = {'1': 'law', '2': 'Law', 'x': 'y', 'X': 'z'}
  labels = tuple(Label(*named) for named in names.items())
  rows = [('t', body('x'), tuple(names))]
  space = corpus_of(labels, train=rows).label_space
  (group,) = find_similar_names(space)
  assert [space.ids[i] for i in group] == ['1', '2']


def test_a_corpus_that_no_model_can_learn_from():
  check_train_labels(corpus_of(train=TRAIN))
  with pytest.raises(DataError, match='nothing to learn'):
    check_train_labels(corpus_of(train=TRAIN[2:], dev=TRAIN[:2]))


def test_ids_that_look_alike_are_found():
  ids = 'santé', 'sante\u0301', 'x y', 'x\xa0y', 'X\u200b y', 'z'
  labels = [Label(id_, id_) for id_ in ids]
  space = corpus_of(labels, train=[('t', body('a'), ids)]).label_space
  groups = [
    {space.ids[row] for row in rows} for rows in find_similar_names(space)
  ]
  assert groups == [set(ids[:2]), set(ids[2:5])] or groups == [
    set(ids[2:5]),
    set(ids[:2]),
  ]
  assert similar_names_warning(space).startswith('2 groups of labels')


def test_words_are_counted_in_every_script():
  rows = [('t', body('हिन्दी में'), ('a',)), ('u', body('我们 go'), ('a',))]
  (train,) = measure_quality(corpus_of(train=rows)).splits
  assert train.sizes.tolist() == [2, 3]
