"""Tests whole runs that are averaged, partly frozen, or have other losses."""

import numpy as np
import pytest

from tests.run.small_runs import assert_resumes, records, with_head
from xjax.core.errors import ConfigError
from xjax.core.types import ScoreKind
from xjax.judge.calibration import Method
from xjax.judge.predictions import Predictions
from xjax.losses.focal import FocalConfig
from xjax.losses.label_weights import PropensityWeights
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import read_params
from xjax.train.optimizer_config import EMAConfig
from xjax.train.parameters import by_path

RECIPE = {
  'clip_outliers': 1.0,
  'rates': ('head/*=0.5',),
  'freeze': ('embedding/*',),
  'loss': FocalConfig(gamma=1.0),
  'label_weights': PropensityWeights(),
  'average': EMAConfig(decay=0.5, start=3),
}


def by_recipe(config, **fields):
  return with_head(config, OneVsAllConfig(chunk=8), **fields)


@pytest.fixture(scope='module')
def averaged(config, tmp_path_factory):
  """Returns the result of fit; tests copy its workdir before they change it."""
  workdir = tmp_path_factory.mktemp('averaged') / 'run'
  return fit(by_recipe(config, **RECIPE), workdir)


def test_what_is_loaded_is_the_mean(averaged):
  rows = records(averaged.workdir)
  judged = {r['step']: r for r in rows if r['kind'] == 'judge'}
  assert 'raw_metrics' not in judged[3]
  assert judged[6]['metrics'] != judged[6]['raw_metrics']
  chosen = judged[averaged.best_step]['metrics']['all']
  assert averaged.metrics['dev']['xjax']['all']['nDCG@5'] == chosen['nDCG@5']
  saved = read_params(averaged.workdir / 'checkpoints', averaged.best_step)
  predictor = open_run(averaged.workdir)
  found = by_path(predictor.scorer.params)
  for name, param in saved.items():
    np.testing.assert_array_equal(found[name], param)


def test_resuming_is_bitwise(config, averaged, tmp_path):
  assert_resumes(by_recipe(config, **RECIPE), averaged, tmp_path, 4)


def test_margins_are_no_probabilities(config, tmp_path):
  run = fit(by_recipe(config, loss=SquaredHingeConfig()), tmp_path / 'run')
  saved = Predictions.load(run.paths['dev'] / 'predictions.npz')
  assert saved.score_kind is ScoreKind.MARGIN
  assert saved.assigned_above == 0.0
  assert run.metrics['dev']['xjax']['all']['micro-F1'] is not None
  assert run.calibration.score_kind is ScoreKind.MARGIN
  assert run.calibration.method in (Method.PLATT, Method.NONE)
  predictor = open_run(run.workdir)
  assert predictor.score_kind is ScoreKind.MARGIN


def test_a_group_that_is_empty_leaves_nothing_behind(config, tmp_path):
  for fields in ({'freeze': ('encodr/*',)}, {'rates': ('encodr/*=0.1',)}):
    with pytest.raises(ConfigError, match="'encodr/.* matches no parameter"):
      fit(by_recipe(config, **fields), tmp_path / 'run')
  assert list(tmp_path.iterdir()) == []
