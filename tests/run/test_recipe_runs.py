"""Runs that are averaged, partly frozen, or have other losses and heads."""

import dataclasses
import logging

import jax
import numpy as np
import pytest

from tests.run.small_runs import (
  assert_predicts_what_was_judged,
  assert_resumes,
  records,
  with_head,
)
from xjax.core.errors import ConfigError
from xjax.core.mesh import make_mesh
from xjax.core.types import ScoreKind
from xjax.data.label_trees.simple_trees import by_frequency
from xjax.judge.calibration import Method
from xjax.judge.predictions import Predictions
from xjax.losses.focal import FocalConfig
from xjax.losses.label_weights import PropensityWeights
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.models.neural.neural_plan import plan_neural
from xjax.networks.heads.adaptive import AdaptiveConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import read_params
from xjax.train.initial.warm_start import warm_start
from xjax.train.optimizer_config import EMAConfig
from xjax.train.parameters import by_path
from xjax.train.workdir import Workdir

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


@pytest.fixture(scope='module')
def adaptive(config):
  return with_head(config, AdaptiveConfig(chunk=8, cutoffs=(4, 9)))


@pytest.fixture(scope='module')
def adaptive_run(adaptive, tmp_path_factory):
  return fit(adaptive, tmp_path_factory.mktemp('adaptive') / 'run')


def test_places_are_saved_and_stay(adaptive_run):
  workdir = Workdir.at(adaptive_run.workdir)
  params = read_params(workdir.checkpoints, adaptive_run.best_step)
  space = workdir.label_space()
  n = space.n_trained
  wanted = np.argsort(by_frequency(space.train_counts[:n]))
  np.testing.assert_array_equal(params['head/place'][:n], wanted)
  for i, size in enumerate((5, n - 9)):
    assert params[f'head/tails/{i}/rows'].shape[0] == size


def test_a_loaded_adaptive_run_predicts_what_was_judged(adaptive_run):
  assert_predicts_what_was_judged(adaptive_run)


def started(config, workdir, space):
  """Returns the first parameters of a run that starts from another run."""
  vocab = workdir.vocabulary()
  mesh = make_mesh(config.mesh)
  with jax.set_mesh(mesh):
    plan = plan_neural(config, space, len(vocab), mesh)
    state = plan.init(jax.random.key(9))
  state, _ = warm_start(state, str(workdir.path), space, vocab)
  return jax.tree.map(np.array, by_path(state.params))


def test_rows_are_taken_only_of_labels_in_the_same_order(
  adaptive, adaptive_run, caplog
):
  caplog.set_level(logging.INFO)
  workdir = Workdir.at(adaptive_run.workdir)
  space = workdir.label_space()
  saved = read_params(workdir.checkpoints, adaptive_run.best_step)
  after = started(adaptive, workdir, space)
  parts = 'frequent', 'roots', 'tails/1/rows', 'tails/0/reduce'
  names = [f'head/{part}' for part in parts]
  for name in names:
    np.testing.assert_array_equal(after[name], saved[name], err_msg=name)
  # The same labels, of which others are frequent now.
  other = dataclasses.replace(space, train_counts=space.train_counts[::-1])
  after = started(adaptive, workdir, other)
  for name in names:
    assert (after[name] != saved[name]).any(), name
  table = 'embedding/table'
  np.testing.assert_array_equal(after[table], saved[table])
  why = 'skipped head/frequent: belongs to labels in another order by frequency'
  assert why in caplog.text
