"""Runs of nearest documents: votes, judging, files of features."""

import dataclasses
import re
import shutil

import numpy as np
import pytest

from tests.fixtures.kinds import small
from tests.fixtures.sparse_runs import config_of
from tests.models.lookup.conftest import dev_of, split_texts
from xjax.core.errors import ConfigError
from xjax.core.ranking import Query
from xjax.core.types import PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.data.text.dates import days_of
from xjax.data.text.tfidf import Tfidf
from xjax.data.tokens_config import Norm
from xjax.judge.predictions import Predictions
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.models.lookup.neighbours_model import NeighboursModel
from xjax.run.evaluate_split import evaluate_split
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.train_config import NoTrain

MODEL = NeighboursModel(neighbours=7, power=2.0)


@pytest.fixture(scope='module')
def fitted(fit_once):
  return fit_once('votes', small(config_of(MODEL, NoTrain())))


@pytest.fixture(scope='module')
def dev(fitted):
  return dev_of(fitted)


def votes_by_definition(features, rows, gold, n_labels):
  """Returns the votes for labels by NumPy, from all similarities."""
  cosines = (rows @ features.T).toarray().astype(np.float64)
  votes = np.zeros((len(cosines), n_labels))
  for i, row in enumerate(cosines):
    near = np.argsort(-row, kind='stable')[: MODEL.neighbours]
    weights = np.maximum(row[near], 0) ** MODEL.power
    for document, weight in zip(near, weights):
      votes[i, gold[document]] += weight / weights.sum()
  return votes


def test_scores_are_the_votes_of_the_nearest_documents(fitted, dev):
  corpus = fitted.corpus
  tfidf = Tfidf.load(fitted.workdir / 'features/tfidf.npz')
  features, rows = (tfidf(split_texts(corpus, x)) for x in ('train', 'dev'))
  n_labels = corpus.label_space.n_trained
  votes = votes_by_definition(features, rows, corpus.trained_gold, n_labels)
  lists = dev.lists['all']
  for row in range(len(lists.ids)):
    real = lists.ids[row] >= 0
    ids, scores = lists.ids[row][real], lists.scores[row][real]
    np.testing.assert_allclose(scores, votes[row, ids], rtol=1e-4)
    assert len(ids) == min(20, (votes[row] > 0).sum())
  assert dev.score_kind is ScoreKind.MARGIN and dev.n_scored == n_labels
  assert dev.assigned_above == 0.5
  assert open_run(fitted.workdir).predict(['', '?'], 3) == [[], []]


def test_no_document_votes_for_itself(fitted, tmp_path):
  """Without its own vote, a document has what the other documents vote."""
  folder = shutil.copytree(fitted.workdir, tmp_path / 'run')
  found = evaluate_split(folder, 'train').predictions
  corpus = fitted.corpus
  tfidf = Tfidf.load(fitted.workdir / 'features/tfidf.npz')
  rows = tfidf(split_texts(corpus, 'train'))
  n_labels, gold = corpus.label_space.n_trained, corpus.trained_gold
  for row in range(0, len(gold), 29):
    others = np.arange(len(gold)) != row
    others_gold = [gold[i] for i in np.flatnonzero(others)]
    (votes,) = votes_by_definition(
      rows[others], rows[[row]], others_gold, n_labels
    )
    real = found.lists['all'].ids[row] >= 0
    ids = found.lists['all'].ids[row][real]
    scores = found.lists['all'].scores[row][real]
    np.testing.assert_allclose(scores, votes[ids], rtol=1e-4)


def test_files_of_features(feature_files, tmp_path):
  data = feature_files(Norm.NONE)
  config = Config(data=data, model=NeighboursModel(), train=NoTrain())
  result = fit(config, tmp_path / 'run')
  assert result.metrics['test']['xjax']['all']['P@1'] > 0.9
  assert not (tmp_path / 'run' / 'features').exists()
  predictor = open_run(tmp_path / 'run')
  predictor.warmup()
  with pytest.raises(ConfigError, match='reads sparse features, not text'):
    predictor.predict(['text'])
  with pytest.raises(ConfigError, match='reads features, not words'):
    predictor.explain(['text'])
  dev = Predictions.load(result.paths['test'] / 'predictions.npz')
  lists = predictor.predict(result.corpus.split('test').documents, 3)
  assert [[int(found.id) for found in row] for row in lists] == [
    [int(dev.labels[i]) for i in row if i >= 0]
    for row in dev.lists['all'].ids[:, :3]
  ]


def test_details_by_definition(fitted, tmp_path):
  """Checks what a stack sees of labels, also votes that fade with time."""
  model = dataclasses.replace(MODEL, dated=True)
  result = fit(small(config_of(model, NoTrain())), tmp_path / 'run')
  scorer, corpus = open_run(result.workdir).scorer, result.corpus
  texts = list(split_texts(corpus, 'dev'))
  texts[::2] = (re.sub('[0-9]', '', text) for text in texts[::2])
  query = Query(20, details=len(model.detail_names))
  lists = scorer.rank(Documents(texts), query)
  tfidf = Tfidf.load(result.workdir / 'features/tfidf.npz')
  features, rows = tfidf(split_texts(corpus, 'train')), tfidf(texts)
  cosines = (rows @ features.T).toarray()
  days, own = days_of(split_texts(corpus, 'train')), days_of(texts)
  assert np.isfinite(days).all() and np.isnan(own).any()
  for row in range(0, len(texts), 7):
    near = np.argsort(-cosines[row], kind='stable')[: MODEL.neighbours]
    near = near[cosines[row, near] > 0]
    gold = [set(corpus.trained_gold[x].tolist()) for x in near]
    weights = cosines[row, near].astype(float) ** MODEL.power
    apart = np.nan_to_num(np.abs(days[near] - own[row])) / 365.25
    for place, label in enumerate(lists.ids_GNK[0, row]):
      details = lists.details_GNKD[0, row, place]
      if label == PAD:
        assert np.isnan(details).all()
        continue
      has = np.array([label in labels for labels in gold])
      twins = cosines[row, near] >= 0.9
      first = int(np.argmax(has))
      expected = [
        cosines[row, near[first]],
        -first,
        has.sum(),
        has[:5].sum(),
        (has & twins).sum() / max(1, twins.sum()),
      ]
      for years in (1, 4):
        faded = weights * np.exp(-apart / years)
        expected.append(faded[has].sum() / faded.sum())
      np.testing.assert_allclose(details, expected, rtol=1e-3, atol=1e-6)
  plain = scorer.rank(Documents(texts), Query(20))
  assert plain.details_GNKD is None
  np.testing.assert_array_equal(plain.ids_GNK, lists.ids_GNK)


def test_features_have_no_dates(feature_files):
  model = NeighboursModel(dated=True)
  config = Config(data=feature_files(Norm.NONE), model=model, train=NoTrain())
  with pytest.raises(ConfigError, match='dated=True: features have no text'):
    check_config(config)
