"""The synthetic corpus: its shape, and that it can be learned."""

from collections import Counter
import hashlib

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from xjax.data.formats.synthetic import SyntheticData, make_synthetic
from xjax.data.text.words import split_words


@pytest.fixture(scope='module')
def corpus():
  return make_synthetic(SyntheticData())


def counted(labels, documents) -> np.ndarray:
  """Documents per label, int [L]."""
  counts = Counter(id_ for doc in documents for id_ in doc.labels)
  return np.array([counts[label.id] for label in labels])


def gold(labels, documents) -> np.ndarray:
  index = {label.id: i for i, label in enumerate(labels)}
  gold_NL = np.zeros((len(documents), len(labels)))
  for row, doc in enumerate(documents):
    gold_NL[row, [index[id_] for id_ in doc.labels]] = 1
  return gold_NL


def recall(scores_NL, gold_NL, k) -> float:
  """Mean of hits among the k best / min(k, gold), of documents with gold."""
  some = gold_NL.sum(1) > 0
  best = np.argsort(-scores_NL[some], axis=1, kind='stable')[:, :k]
  hits = np.take_along_axis(gold_NL[some], best, axis=1).sum(1)
  return float(np.mean(hits / np.minimum(k, gold_NL[some].sum(1))))


def overlap(labels, documents) -> np.ndarray:
  """Share of a name's words that the document has; best of all names."""
  names = [[set(n.split()) for n in (x.name, *x.alt)] for x in labels]
  words = [set(split_words(doc.text())) for doc in documents]
  return np.array(
    [[max(len(n & w) / len(n) for n in of) for of in names] for w in words]
  )


def nearest(train, gold_NL, documents) -> np.ndarray:
  """The gold labels of the nearest training documents, [N, L]."""
  vectorizer = TfidfVectorizer(sublinear_tf=True)
  train_ND = vectorizer.fit_transform([doc.text() for doc in train])
  near_NN = vectorizer.transform([doc.text() for doc in documents]) @ train_ND.T
  return near_NN.power(4) @ gold_NL


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


def test_a_learner_beats_the_prior_and_is_not_perfect(corpus):
  labels, splits = corpus
  train_NL, dev_NL = (gold(labels, splits[s]) for s in ('train', 'dev'))
  prior = np.tile(train_NL.sum(0), (len(dev_NL), 1))
  prior_recall = recall(prior, dev_NL, 5)
  scores_NL = nearest(splits['train'], train_NL, splits['dev'])
  learned = recall(scores_NL, dev_NL, 5)
  assert prior_recall < 0.3
  assert prior_recall + 0.3 < learned < 0.8


def test_zero_shot_labels_are_found_by_their_words(corpus):
  labels, splits = corpus
  zero = counted(labels, splits['train']) == 0
  dev_NZ = gold(labels, splits['dev'])[:, zero]
  scores_NZ = overlap(labels, splits['dev'])[:, zero]
  assert recall(scores_NZ, dev_NZ, 1) > 0.4  # by chance 0.04
  # And those words are ones that training shows.
  seen = {w for doc in splits['train'] for w in split_words(doc.text())}
  words = [w for i in np.flatnonzero(zero) for w in labels[i].name.split()]
  assert np.mean([word in seen for word in words]) > 0.9


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
