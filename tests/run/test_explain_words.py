"""Why linear models predict labels: contributions of words to scores."""

import dataclasses

import numpy as np
import pytest

from tests.fixtures.sparse_runs import RUNS, config_of
from xjax.data.schema import Document
from xjax.data.text.words import split_terms
from xjax.run.open_run import open_run

K = 4
EXACT = 'svm'  # one classifier per label: contributions add up to the score
TREES = 'trees'  # three trees
TFIDF = {
  EXACT: {'max_ngram': 3},
  'lr': {'min_ngram': 2, 'max_ngram': 2, 'sublinear': False, 'min_count': 1},
  TREES: {'max_ngram': 1, 'max_share': 0.5},
}
ODD = 'İl "Nipa" <MANI> cafe\u0301, gipu! x 2003/87 mani, Mani'


@pytest.fixture
def finished(fit_once):
  """Name -> what fit returned; each run is made once."""

  def run(name):
    config = config_of(*RUNS[name])
    data = dataclasses.replace(config.data, n_train=150, n_labels=30)
    tokens = dataclasses.replace(data.tokens, **TFIDF[name])
    config.data = dataclasses.replace(data, tokens=tokens)
    return fit_once(f'explained {name}', config)

  return run


def documents_of(result):
  split = result.corpus.split('dev')
  return [split.documents[row] for row in range(12)]


def biases(predictor, ids_NK):
  """Returns the bias of each label, summed over its path in the tree."""
  (search,) = predictor.scorer._searches
  labels, nodes = search.tree.positive()
  bias_L = np.bincount(labels, search.weights.bias[nodes - 1])
  return bias_L[ids_NK]


@pytest.mark.parametrize('name', [EXACT, 'lr'])
def test_the_contributions_of_all_words_and_the_bias_are_the_score(
  finished, name
):
  result = finished(name)
  predictor = open_run(result.workdir)
  documents = [*documents_of(result), ODD, '', '?']
  lists = predictor.lists(documents, K)
  explained = predictor.explanations(documents, lists.ids, 5, 99)
  sums_NK = np.array([first_KT.sum(axis=1) for first_KT in explained.first])
  scores_NK = sums_NK + biases(predictor, lists.ids)
  np.testing.assert_allclose(scores_NK, lists.scores, atol=1e-5)
  assert np.abs(sums_NK[:12]).max(axis=1).all()  # not of the biases alone
  # Lists of all words have all that is above 0.
  whole = predictor.explanations(documents[:1], lists.ids[:1], 10**12)
  terms = split_terms(documents[0].text(), TFIDF[name].get('first_words', 0))
  for weights_T, listed_W in zip(explained.first[0], whole.weights_NKW[0]):
    totals = {}
    for term, weight in zip(terms, weights_T, strict=True):
      totals[term] = totals.get(term, 0) + weight
    positive = sum(weight for weight in totals.values() if weight > 0)
    assert listed_W.sum() == pytest.approx(positive, abs=1e-5)
    assert whole.words == 10**12
    assert whole.at_NKW.shape[2] <= len(set(terms))


def test_words_are_those_of_the_text(finished):
  result = finished(EXACT)
  predictor = open_run(result.workdir)
  assert not predictor.scorer.attends  # pages show contributions
  body = 'mani gipu x'
  zoned = Document('d', {'title': 'NIPA', 'empty': '', 'body': body})
  for text in (*documents_of(result), ODD, zoned):
    zones = {'text': text} if isinstance(text, str) else text.zones
    (labels,) = predictor.explain([text], K, 3)
    assert [x[:3] for x in labels] == predictor.predict([text], K)[0]
    for label in labels:
      weights = [word.weight for word in label.why]
      assert weights == sorted(weights, reverse=True) and len(weights) <= 3
      assert all(weight > 0 for weight in weights)
      for word in label.why:
        start, end = word.at
        assert zones[word.zone][start:end] == word.word
      # A word that the text repeats is listed once, where it is first.
      lower = [word.word.lower() for word in label.why]
      assert len(lower) == len(set(lower))
  assert predictor.explain(['', '?'], 1)[0][0].why == ()
  assert predictor.explain([], K) == []


def test_a_repeated_word_has_the_sum_of_its_places(finished):
  predictor = open_run(finished(EXACT).workdir)
  terms = predictor.scorer.featuriser.featurise.terms
  term = next(x for x in terms if ' ' not in x)
  text = f'{term} ? {term.upper()}'
  ids = predictor.lists([text], 1).ids
  explained = predictor.explanations([text], ids, 5, 1)
  (weights_T,) = explained.first[0]
  assert len(weights_T) == 2
  (one,) = explained.why(0)
  if weights_T.sum() > 0:
    assert one[0].word == term and one[0].at == (0, len(term))
    assert one[0].weight == pytest.approx(weights_T.sum(), abs=1e-6)


def test_a_tree_explains_by_all_nodes_of_a_path(finished):
  result = finished(TREES)
  predictor = open_run(result.workdir)
  documents = documents_of(result)
  lists = predictor.lists(documents, K)
  explained = predictor.explanations(documents, lists.ids, 5, 99)
  for row, document in enumerate(documents):
    features = predictor.scorer.featuriser.featurise([document.text()])
    margins_K = np.zeros(K)
    for search in predictor.scorer._searches:
      labels, nodes = search.tree.positive()
      every_D = np.arange(features.shape[1])
      weights_DV = search.weights.lookup(every_D, nodes - 1)
      margins_V = (features @ weights_DV)[0]
      margins_L = np.bincount(labels, margins_V, predictor.n_labels)
      margins_K += margins_L[lists.ids[row]] / 3
    np.testing.assert_allclose(
      explained.first[row].sum(axis=1), margins_K, atol=1e-5
    )
