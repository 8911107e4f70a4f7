"""The synthetic corpus: its shape, and that it is always the same."""

from collections import Counter
import hashlib

import numpy as np
import pytest

from xjax.data.formats.synthetic import SyntheticData, make_synthetic
from xjax.data.text.words import split_words


@pytest.fixture(scope='module')
def corpus():
  return make_synthetic(SyntheticData())


def counted(labels, documents) -> np.ndarray:
  """Documents per label, int [L]."""
  counts = Counter(id_ for doc in documents for id_ in doc.labels)
  return np.array([counts[label.id] for label in labels])


def test_sizes_and_text(corpus):
  labels, splits = corpus
  assert len(labels) == 200
  sizes = {name: len(documents) for name, documents in splits.items()}
  assert sizes == {'train': 2000, 'dev': 400, 'test': 400}
  known = {label.id for label in labels}
  for documents in splits.values():
    assert len({doc.id for doc in documents}) == len(documents)
    for doc in documents:
      assert tuple(doc.zones) == ('title', 'body')
      assert 40 <= len(split_words(doc.text())) <= 120
      assert 3 <= len(doc.labels) <= 6
      assert len(set(doc.labels)) == len(doc.labels)
      assert set(doc.labels) <= known


def test_descriptors_form_a_hierarchy(corpus):
  labels, _ = corpus
  ids = [label.id for label in labels]
  assert ids == sorted(set(ids))
  assert len({label.name for label in labels}) == len(labels)
  depth = {}

  def height(id_: str, below: tuple[str, ...] = ()) -> int:
    assert id_ not in below, 'a label is its own ancestor'
    parents = labels[ids.index(id_)].parents
    depth[id_] = 1 + max((height(p, (*below, id_)) for p in parents), default=0)
    return depth[id_]

  for label in labels:
    height(label.id)
    assert set(label.alt).isdisjoint({label.name})
  assert Counter(depth.values()).keys() >= {1, 2, 3}
  assert any(len(label.parents) == 2 for label in labels)
  assert sum(bool(label.alt) for label in labels) > 100


def test_frequencies_fall_to_nothing(corpus):
  labels, splits = corpus
  counts = counted(labels, splits['train'])
  assert (counts >= 50).sum() >= 30
  assert ((counts > 0) & (counts < 50)).sum() >= 100
  assert ((counts == 1) | (counts == 2)).sum() >= 5
  zero = counts == 0
  assert 20 <= zero.sum() <= 40
  for split in ('dev', 'test'):
    assert (counted(labels, splits[split])[zero] > 0).sum() >= 20


def test_the_same_on_every_platform(corpus):
  small = make_synthetic(SyntheticData(n_train=20, n_dev=8, n_test=8))
  digest = hashlib.sha256(repr(small).encode()).hexdigest()
  assert digest[:16] == 'adaeed74bdd11ae7'
  # Sizes of the others do not touch the training split.
  assert small[1]['train'] == corpus[1]['train'][:20]
  other = make_synthetic(SyntheticData(corpus_seed=1, n_train=20))
  assert other[1]['train'] != small[1]['train'] and other[0] != small[0]


@pytest.mark.parametrize(
  ('n_train', 'n_labels'), [(64, 16), (1, 2), (20, 1000)]
)
def test_other_sizes(n_train, n_labels):
  config = SyntheticData(n_train=n_train, n_labels=n_labels, n_dev=9, n_test=0)
  labels, splits = make_synthetic(config)
  assert len(labels) == len({x.name for x in labels}) == n_labels
  assert [len(splits['train']), len(splits['dev'])] == [n_train, 9]
  assert 'test' not in splits
  assert all(doc.labels for of in splits.values() for doc in of)
  if n_labels >= 8:
    counts = counted(labels, splits['train'])
    assert (counted(labels, splits['dev'])[counts == 0] > 0).any()


def test_verbatim_decides_how_often_names_are_said():
  shares = []
  for verbatim in (0.3, 0.8, 1.0):
    labels, splits = make_synthetic(
      SyntheticData(n_train=60, n_dev=0, n_test=0, verbatim=verbatim)
    )
    names = {label.id: label.name for label in labels}
    found = [
      names[id_] in document.text().lower()
      for document in splits['train']
      for id_ in document.labels
    ]
    shares.append(np.mean(found))
  assert shares[0] < 0.4 < shares[1] < shares[2]
