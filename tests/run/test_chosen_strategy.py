"""Tests strategies on finished runs: lists, messages, metrics and files."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from tests.fixtures.shrink import shrink
from tests.run import tagging
from xjax.core.errors import ConfigError
from xjax.core.ranking import Query
from xjax.core.types import PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.data.schema import propensity_weights
from xjax.judge.calibration import Method
from xjax.judge.metrics.calibration_error import sigmoid
from xjax.judge.predictions import Predictions
from xjax.judge.request import JudgeRequest
from xjax.models.contract import Config
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.run.evaluate_split import evaluate_split
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.run.strategies.strategy_request import StrategyKind, StrategyRequest
from xjax.train.train_config import NoTrain
from xjax.train.workdir import Workdir

K = 3


@pytest.fixture(scope='module')
def home(finished, tmp_path_factory):
  """A copy of the run, where evaluations are written."""
  folder = tmp_path_factory.mktemp('strategies') / 'run'
  return Workdir(shutil.copytree(finished.workdir, folder))


@pytest.fixture(scope='module')
def whole(finished):
  """Returns float64 probabilities [N, L] of dev; unlisted labels have 0."""
  predictor = open_run(finished.workdir)
  split = finished.corpus.split('dev')
  found = np.zeros((len(split), len(predictor.space.labels)))
  lists = predictor.rank(Documents.of_split(split), Query(predictor.n_labels))
  parts = zip(lists.ids_GNK[0], lists.scores_GNK[0], strict=True)
  for row, (ids, scores) in enumerate(parts):
    found[row, ids] = sigmoid(scores)
  return found


def by_gain(gains, k=K):
  return np.argsort(-gains, axis=-1, kind='stable')[..., :k]


def test_labels_by_propensity(home, whole, finished):
  space = finished.corpus.label_space
  weights = propensity_weights(space.train_counts, space.n_train)
  asked = StrategyRequest(StrategyKind.PROPENSITY, K)
  found = evaluate_split(home.path, 'dev', strategy=asked)
  lists = found.predictions.lists['all']
  np.testing.assert_array_equal(lists.ids, by_gain(weights * whole))
  gains = np.log(np.take_along_axis(weights * whole, lists.ids, 1))
  np.testing.assert_allclose(lists.scores, gains, rtol=1e-4, atol=1e-5)


def test_labels_by_coverage_and_what_is_written(home, whole, finished):
  asked = StrategyRequest(StrategyKind.COVERAGE, K, beta=0.25, seed=4)
  before = finished.metrics['dev']
  found = evaluate_split(home.path, 'dev', strategy=asked)
  values, folder = found.metrics['xjax'], home.evaluation('dev.coverage')
  assert values['all']['coverage@3'] > before['xjax']['all']['coverage@3']
  assert values['all']['PSP@3'] is not None
  # Cut-offs beyond the labels chosen are not judged.
  assert 'P@5' in before['xjax']['all'] and 'P@5' not in values['all']
  # The metrics of slices do not change.
  assert values['few']['RP@3'] == before['xjax']['few']['RP@3']
  assert values['all']['micro-F1'] is None
  assert found.prior['xjax']['all'].keys() >= {'P@1', 'P@3'}
  assert {path.name for path in folder.iterdir()} == {
    *('predictions.npz', 'metrics.json', 'metrics.csv', 'judged.json')
  }
  assert json.loads((folder / 'metrics.json').read_text()) == found.metrics
  saved = Predictions.load(folder / 'predictions.npz')
  assert saved.strategy == 'coverage(k=3, beta=0.25, seed=4)'
  assert saved.score_kind is ScoreKind.MARGIN
  assert saved.lists['few'].ids.shape[1] > K == saved.lists['all'].ids.shape[1]
  # The run's own evaluation has not changed.
  assert evaluate_split(home.path, 'dev').metrics == before


def test_what_is_asked_to_be_judged(home):
  asked = StrategyRequest(StrategyKind.COVERAGE, K)
  request = JudgeRequest(ks=(1,), slices=('bin:1-9',))
  found = evaluate_split(home.path, 'dev', request=request, strategy=asked)
  values = found.metrics['xjax']
  assert values['all']['coverage@1'] > 0 and 'P@3' not in values['all']
  usual = evaluate_split(home.path, 'dev', request=request)
  # Bins are cut from the lists of slices, which are sorted by score.
  assert values['bin:1-9']['P@1'] == usual.metrics['xjax']['bin:1-9']['P@1']
  deep = JudgeRequest(ks=(1, 5))
  says = '--ks=5: must be at most --strategy_k=3'
  with pytest.raises(ConfigError, match=says):
    evaluate_split(home.path, 'dev', request=deep, strategy=asked)


@pytest.fixture
def tag(home, finished, tmp_path):
  """Tags the documents of dev; returns the lines and the path of X.npz."""

  def run(strategy, labelled=True):
    split = finished.corpus.split('dev')
    rows = tagging.rows_of(split.documents[row] for row in range(len(split)))
    for row in rows:
      if not labelled:
        del row['labels']
    out = tagging.tag(home.path, tmp_path, rows, 4, strategy=strategy)
    return tagging.read_rows(out), out.with_suffix('.npz')

  return run


def test_a_file_is_tagged_as_a_split_is_judged(tag, home):
  asked = StrategyRequest(StrategyKind.COVERAGE, K, seed=2)
  lines, path = tag(asked)
  judged = evaluate_split(home.path, 'dev', strategy=asked)
  chosen = judged.predictions.lists['all']
  saved = Predictions.load(path)
  np.testing.assert_array_equal(saved.lists['all'].ids, chosen.ids)
  assert saved.strategy == judged.predictions.strategy
  labels = judged.predictions.labels
  for line, ids in zip(lines, chosen.ids, strict=True):
    assert [x['id'] for x in line['labels']] == [labels[i] for i in ids]
  values = json.loads(path.with_name('out.metrics.json').read_text())
  assert values['xjax']['all']['P@3'] == judged.metrics['xjax']['all']['P@3']
  assert 'P@5' not in values['xjax']['all']


def test_scores_told_are_the_models_probabilities(tag, finished, whole):
  lines, path = tag(StrategyRequest(StrategyKind.COVERAGE, K), labelled=False)
  assert Predictions.load(path).gold is None
  assert not path.with_name('out.metrics.json').exists()
  index = finished.corpus.label_space.index
  with np.errstate(divide='ignore'):
    logits = np.log(whole) - np.log1p(-whole)
  calibration = finished.calibration
  calibrated = sigmoid(calibration.a * logits + calibration.b)
  told = [[x['score'] for x in line['labels']] for line in lines]
  ids = [[index[x['id']] for x in line['labels']] for line in lines]
  wanted = np.take_along_axis(calibrated, np.array(ids), 1)
  np.testing.assert_allclose(told, wanted, atol=1e-5)
  assert any(row != sorted(row, reverse=True) for row in told)


@pytest.fixture(scope='module')
def matched(tmp_path_factory):
  """Returns a run of exact match, whose scores are margins."""
  small = shrink(Config(model=ExactMatchModel(), train=NoTrain()))
  data = dataclasses.replace(small.data, n_train=60, n_dev=30)
  config = dataclasses.replace(small, data=data)
  return fit(config, tmp_path_factory.mktemp('margins') / 'run')


@pytest.fixture
def calibrated(matched, tmp_path):
  """Copies the run and changes its calibration."""

  def change(**parts):
    folder = shutil.copytree(matched.workdir, tmp_path / 'run')
    changed = dataclasses.replace(matched.calibration, **parts)
    home = Workdir.at(folder)
    with home.recording(home.calibration):
      changed.save(home.calibration)
    return folder

  return change


def test_margins_count_as_calibrated(matched, calibrated):
  a, b = 0.5, -2.0
  folder = calibrated(method=Method.PLATT, a=a, b=b, reason=None)
  asked = StrategyRequest(StrategyKind.PROPENSITY, 2)
  chosen = evaluate_split(folder, 'dev', strategy=asked).predictions
  lists = Predictions.load(matched.paths['dev'] / 'predictions.npz').lists
  ids, scores = lists['all'].ids, lists['all'].scores
  space = matched.corpus.label_space
  weights = propensity_weights(space.train_counts, space.n_train)
  best = []
  for given in ((a, b), (1, 0)):
    gains = weights[ids] * sigmoid(given[0] * scores + given[1])
    gains[ids == PAD] = -1
    order = np.lexsort((ids, -gains))[:, :2]
    best.append(np.take_along_axis(ids, order, 1))
  np.testing.assert_array_equal(chosen.lists['all'].ids, best[0])
  assert (best[0] != best[1]).any()
  assert chosen.assigned_above is None


def test_margins_without_a_calibration(calibrated):
  folder = calibrated(method=Method.NONE, a=1.0, b=0.0, reason='none fits')
  asked = StrategyRequest(StrategyKind.COVERAGE, 2)
  says = r'could not be calibrated on dev \(none fits\)'
  with pytest.raises(ConfigError, match=says):
    evaluate_split(folder, 'dev', strategy=asked)
  (folder / 'calibration.json').unlink()
  with pytest.raises(ConfigError, match='xjax evaluate --split=dev'):
    evaluate_split(folder, 'dev', strategy=asked)
  assert not (folder / 'eval' / 'dev.coverage').exists()
