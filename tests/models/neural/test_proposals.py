"""Runs that rank the labels of another run, or of clusters."""

import shutil

import jax
import numpy as np
import pytest

from tests.fixtures import shortlist_runs
from tests.fixtures.kills import assert_about_the_same_dev
from tests.fixtures.kinds import KINDS, small
from tests.fixtures.shortlist_runs import TEXTS, recalls
from tests.fixtures.shrink import changed
from xjax.core.errors import ConfigError
from xjax.core.mesh_config import MeshConfig
from xjax.judge.predictions import Predictions
from xjax.models.config_check import check_config
from xjax.models.neural.level_stages import level_config
from xjax.models.neural.shortlists import AllLabels
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.rows.update import FusedAdam
from xjax.run.fit import fit
from xjax.run.open_run import open_run


def reranker(**more):
  return small(shortlist_runs.reranker(**more))


def by_levels(*sizes, **more):
  return small(shortlist_runs.by_levels(*sizes, **more))


@pytest.fixture(scope='module')
def reranked(fitted):
  return fitted('reranked')


def proposer_of(result):
  return result.workdir / 'stages' / 'proposer'


def test_only_labels_of_the_tree_are_ranked(reranked):
  model = open_run(reranked.workdir)
  tree = open_run(proposer_of(reranked))
  assert model.scorer.selected_by == 'shortlist=20'
  for ours, theirs in zip(model.predict(TEXTS, 20), tree.predict(TEXTS, 20)):
    assert {x.id for x in ours} == {x.id for x in theirs}
    assert ours != theirs


def test_the_evaluation_says_how_many_gold_labels_are_on_shortlists(reranked):
  lists = Predictions.load(reranked.paths['dev'] / 'predictions.npz')
  for name, found in recalls(reranked).items():
    mask_L = lists.masks[name]
    golds = [gold[mask_L[gold]] for gold in lists.gold]
    shares = [
      np.isin(gold, ids).mean()
      for gold, ids in zip(golds, lists.lists[name].ids)
      if len(gold)
    ]
    assert found == {'shortlist recall@20': pytest.approx(np.mean(shares))}
  assert {'all', 'few'} <= recalls(reranked).keys()


def test_other_heads_and_rules_are_trained_on_shortlists(tmp_path):
  config = reranker(head=LabelAttentionConfig(), rows=FusedAdam())
  result = fit(config, tmp_path)
  assert result.metrics['dev']['xjax']['all']['RP@5'] > 0.2


@pytest.mark.thorough
def test_training_can_score_all_labels(tmp_path):
  """The parameters are those of a run without shortlists."""
  config = reranker()
  config.model.shortlist.in_training = False
  config.model.shortlist.size = 2  # too few for the gold labels of training
  result = fit(config, tmp_path / 'run')
  config.model.shortlist = AllLabels()
  fit(config, tmp_path / 'all')
  ours, theirs = (
    open_run(tmp_path / name, 4).scorer.params for name in ('run', 'all')
  )
  jax.tree.map(np.testing.assert_array_equal, ours, theirs)
  assert open_run(tmp_path / 'run').scorer.selected_by == 'shortlist=2'
  assert recalls(result)['all'].keys() == {'shortlist recall@2'}


def test_a_proposer_does_not_change_after_the_run_has_used_it(
  reranked, tmp_path
):
  shutil.copytree(reranked.workdir, tmp_path / 'run')
  config = reranker()
  config.model.shortlist.stage.model.beam = 40
  message = r'config\.model\.shortlist\.stage\.model\.beam: '
  with pytest.raises(ConfigError, match=message):
    fit(config, tmp_path / 'run')
  config = reranker()
  config.model.shortlist.stage.train.workers = 1
  assert fit(config, tmp_path / 'run').metrics == reranked.metrics


@pytest.mark.thorough
@pytest.mark.parametrize('kind', ['reranked', 'levelled'])
def test_a_mesh_trains_the_same_model(kind, fitted, devices, tmp_path):
  whole, config = fitted(kind), KINDS[kind]([])
  config.mesh = MeshConfig(data=2, label=2)
  with devices(4):
    result = fit(config, tmp_path / 'run')
  assert_about_the_same_dev(result, whole)


def test_levels_of_clusters_have_no_slices():
  above = level_config(changed(by_levels(), 'train.best_metric', 'few/RP@5'))
  assert above.train.best_metric == 'all/RP@5'
  check_config(above)
