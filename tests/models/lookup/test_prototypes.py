"""Prototypes of labels: scores, new labels, explanations, and their parts."""

import dataclasses

import numpy as np
import pytest

from tests.fixtures.kinds import small
from tests.fixtures.sparse_runs import config_of
from tests.models.lookup.conftest import TEXTS, dev_of, split_texts
from tests.run.tagging import write_rows
from xjax.core.errors import ConfigError, DataError
from xjax.core.types import ScoreKind
from xjax.data.formats.own import OwnData
from xjax.data.schema import Label
from xjax.data.tokens_config import TextVectorsConfig, TfidfConfig
from xjax.models.contract import Config
from xjax.models.lookup.prototypes import PrototypesModel
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.train_config import NoTrain

READS = {
  'tfidf': TfidfConfig(max_features=2000, max_ngram=1),
  'vectors': TextVectorsConfig(max_tokens=16),
}
PARTS = {
  'both': PrototypesModel(),
  'names': PrototypesModel(centroids=False),
  'centroids': PrototypesModel(names=False),
}


def config_with(reads, parts):
  config = config_of(PARTS[parts], NoTrain())
  data = dataclasses.replace(config.data, tokens=READS[reads])
  return small(dataclasses.replace(config, data=data))


@pytest.fixture
def fitted(fit_once):
  """(reads, parts) -> what fit returned; each run is made once."""
  return lambda *key: fit_once(f'prototypes {key}', config_with(*key))


def of_length_1(rows):
  norms = np.linalg.norm(rows, axis=1, keepdims=True)
  return rows / np.where(norms > 0, norms, 1)


def featurise_of(result):
  return open_run(result.workdir).scorer.featuriser.featurise


def parts_by_definition(result):
  """Returns the features of names, and centroids, float64 [L, D] each."""
  corpus, featurise = result.corpus, featurise_of(result)
  space = corpus.label_space
  names = [label.name for label in space.labels[: space.n_inside]]
  named = featurise(names).toarray().astype(np.float64)
  rows = featurise(split_texts(corpus, 'train')).toarray()
  centroids = np.zeros_like(named)
  for row, labels in zip(rows.astype(np.float64), corpus.trained_gold):
    centroids[labels] += row
  return of_length_1(named), of_length_1(centroids)


def scores_by_definition(result, model, texts):
  """Returns the scores of all labels by NumPy, float64 [N, L]."""
  space = result.corpus.label_space
  named, centroids = parts_by_definition(result)
  whole = of_length_1(model.names * named + model.centroids * centroids)
  rows = featurise_of(result)(texts).toarray()
  n_labels = space.n_inside if model.names else space.n_trained
  scores_NL = of_length_1(rows.astype(np.float64)) @ whole[:n_labels].T
  scores_NL[:, ~whole[:n_labels].any(axis=1)] = -2  # no prototype
  return scores_NL


def scores_of(lists):
  """Returns lists of all labels as scores [N, L]."""
  assert (np.sort(lists.ids, axis=1) == np.arange(lists.ids.shape[1])).all()
  return np.take_along_axis(lists.scores, np.argsort(lists.ids, axis=1), axis=1)


@pytest.mark.parametrize(
  ('reads', 'parts'),
  [*(('tfidf', parts) for parts in PARTS), ('vectors', 'both')],
)
def test_scores_are_cosines_of_documents_and_prototypes(fitted, reads, parts):
  result = fitted(reads, parts)
  texts = split_texts(result.corpus, 'dev')
  expected = scores_by_definition(result, PARTS[parts], texts)
  predictor, dev = open_run(result.workdir), dev_of(result)
  n_labels = expected.shape[1]
  values = scores_of(predictor.lists(texts, n_labels))
  np.testing.assert_allclose(values, expected, atol=1e-5)
  assert dev.n_scored == predictor.n_labels == n_labels
  assert dev.score_kind is ScoreKind.MARGIN and dev.assigned_above == 0.5
  assert dev.selected_by == 'exact'
  best = np.sort(-expected, axis=1)[:, :20]
  np.testing.assert_allclose(-dev.lists['all'].scores, best, atol=1e-5)


def test_a_new_label_is_scored_as_a_held_out_label_of_that_name(fitted):
  result = fitted('tfidf', 'both')
  predictor, space = open_run(result.workdir), result.corpus.label_space
  held, n_labels = space.held_out, space.n_inside
  new = [Label(f'new-{i}', space.labels[i].name) for i in held]
  more = predictor.with_labels(new)
  assert more.n_labels == n_labels + len(held)
  assert more.space.ids[n_labels : n_labels + 3] == tuple(x.id for x in new)
  assert more.calibration == predictor.calibration
  texts = split_texts(result.corpus, 'dev')
  before = scores_of(predictor.lists(texts, n_labels))
  after = scores_of(more.lists(texts, n_labels + len(held)))
  np.testing.assert_array_equal(after[:, :n_labels], before)
  np.testing.assert_array_equal(after[:, n_labels:], before[:, held])
  again = more.with_labels([Label('last', 'a name')])
  assert again.n_labels == more.n_labels + 1


@pytest.fixture
def described(tmp_path):
  """A folder of a corpus, a label of which has a description."""
  rows = [
    {'text': text, 'labels': [label]}
    for text, label in (
      ('salmon swim in rivers', 'a'),
      ('a crow is in the tree', 'b'),
      ('ships sail on rivers', 'c'),
    )
  ]
  write_rows(tmp_path / 'train.jsonl', rows * 2)
  write_rows(tmp_path / 'dev.jsonl', rows)
  labels = [
    {'id': 'a', 'name': 'fish', 'description': 'what has fins, as salmon'},
    {'id': 'b', 'name': 'birds'},
    {'id': 'c', 'name': 'ships'},
  ]
  write_rows(tmp_path / 'labels.jsonl', labels)
  return tmp_path


def test_descriptions_are_read_with_names(described):
  config = Config(
    data=OwnData(dir=str(described), tokens=TfidfConfig(min_count=1)),
    model=PrototypesModel(descriptions=True, centroids=False),
    train=NoTrain(),
  )
  run = open_run(fit(config, described / 'run').workdir)
  birds = Label('d', 'birds', description='a crow or a raven')
  run = run.with_labels([birds])
  lists = run.lists(['a salmon', 'ships', 'crow'], 1)
  assert [run.space.ids[id_] for id_ in lists.ids[:, 0]] == ['a', 'c', 'd']

  (described / 'labels.jsonl').unlink()
  with pytest.raises(DataError, match='no label has a description'):
    fit(config, described / 'other')
  config.model = PrototypesModel(names=False, descriptions=True)
  with pytest.raises(ConfigError, match='descriptions=True: needs .*names'):
    fit(config, described / 'other')


def test_words_explain_scores(fitted):
  result = fitted('tfidf', 'both')
  predictor = open_run(result.workdir)
  texts = split_texts(result.corpus, 'dev')[:4]
  lists = predictor.lists(texts, 3)
  for row, labels in enumerate(predictor.explain(texts, 3, 1000)):
    sums = [sum(word.weight for word in label.why) for label in labels]
    np.testing.assert_allclose(sums, lists.scores[row], atol=1e-5)
    assert all(word.word in texts[row] for word in labels[0].why)


# The first two texts have the labels 6 and 7, the others the label 6.
GOLD = ['7', '6'], ['7', '6'], ['6'], ['6']
LABELS = [
  {'id': '6', 'name': '1957'},
  {'id': '7'},
  {'id': '8', 'name': 'olive oil'},
  {'id': '9', 'name': '2003 !'},
]


def test_names_without_a_letter_are_no_part(own_corpus, tmp_path):
  config = own_corpus(PrototypesModel(), LABELS, GOLD)
  predictor = open_run(fit(config, tmp_path / 'run').workdir)
  rows = predictor.scorer.prototypes.toarray()
  featurise = predictor.scorer.featuriser.featurise
  named = featurise(['olive oil']).toarray()[0]
  row_of = dict(zip(predictor.space.ids, rows, strict=True))
  np.testing.assert_allclose(row_of['8'], named, atol=1e-6)
  assert not row_of['9'].any()
  for id_, n in (('6', 4), ('7', 2)):
    total = (
      predictor.scorer.featuriser.featurise(TEXTS[:n]).toarray().sum(axis=0)
    )
    centroid = total / np.linalg.norm(total)
    np.testing.assert_allclose(row_of[id_], centroid, atol=1e-6)
