"""Models that a run uses: trained as its stages, or copied from other runs."""

import os
import shutil

import jax
import numpy as np
import pytest

from tests.fixtures import shortlist_runs
from tests.fixtures.kills import assert_same_dev, kill, kill_training
from tests.fixtures.kinds import KINDS, MEMBERS, small
from tests.fixtures.shortlist_runs import TEXTS, assert_warm_compiles_nothing
from tests.fixtures.shrink import changed
from tests.fixtures.sparse_runs import contents
from xjax.core.errors import ConfigError, Preempted
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels import LevelsConfig
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.models.neural import proposals
from xjax.models.neural.shortlists import LevelShortlist, RunShortlist
from xjax.models.run_copies import TemporaryFolder
from xjax.models.stage import StageConfig
from xjax.models.trees import sparse_model
from xjax.models.trees.joined_vectors import RunVectors
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.batches.candidates import Candidates
from xjax.train.neural_train import NeuralTrain


def copying(kind, *folders):
  """The config of a run that uses copies of other runs, not stages."""
  whole, (first, *_) = KINDS[kind](list(map(str, folders))), folders
  if kind == 'reranked':
    shortlist = RunShortlist(20, 2.0, workdir=str(first))
    return changed(whole, 'model.shortlist', shortlist)
  if kind == 'joined':
    vectors = RunVectors(weight=2.0, workdir=str(first))
    return changed(whole, 'model.vectors', vectors)
  return whole


def by_levels(*sizes, **more):
  return small(shortlist_runs.by_levels(*sizes, **more))


def joined_by_levels(labels, kept):
  """The encoder learns one level and the labels, or two levels of clusters."""
  whole = KINDS['joined']([])
  sizes, steps = ((16,), (4,)) if labels else ((4, 16), (3, 4))
  levels = LevelsConfig(sizes, ClusterTree(arity=4, max_leaf=7))
  vectors = whole.model.vectors
  vectors.labels, vectors.stage.train.loss = labels, SquaredHingeConfig()
  vectors.stage.model.shortlist = LevelShortlist(
    levels, steps, kept=kept, counted=True, bootstrap=True
  )
  return whole


@pytest.mark.parametrize('kind', ['ensemble', 'reranked', 'joined'])
def test_another_run_is_copied_and_then_not_needed(kind, fitted, tmp_path):
  whole = fitted(kind)
  folders = [fitted(x).workdir for x in MEMBERS]
  if kind != 'ensemble':
    folders = whole.workdir.glob('stages/*')
  copies = [shutil.copytree(x, tmp_path / x.name) for x in folders]
  config = copying(kind, *copies)
  assert fit(config, tmp_path / 'run').metrics == whole.metrics
  for copy in copies:
    shutil.rmtree(copy)
  expected = open_run(whole.workdir).predict(TEXTS, 3)
  assert open_run(tmp_path / 'run').predict(TEXTS, 3) == expected
  assert fit(config, tmp_path / 'run').metrics == whole.metrics


RATES = StageConfig(train=NeuralTrain(rates=('no/*=0.5',)))
VECTORS = 'model.vectors.stage'


@pytest.mark.parametrize(
  ('kind', 'path', 'value', 'says'),
  [
    ('reranked', 'model.shortlist.size', 2, 'size=2: document .* has'),
    ('reranked', 'model.shortlist.stage', RATES, 'shortlist.stage.train.rates'),
    ('levelled', 'model.shortlist.kept', 1, 'kept=1: document .* has'),
    ('run', 'data.corpus_seed', 5, 'use a run with the same labels'),
    ('run', 'model.shortlist.workdir', 'no', 'there is no run of xjax'),
    ('matched', 'model.matcher.train.init_from', 'no', 'er.train.init_from=no'),
    ('matched', 'model.levels.sizes', (1,), r'=\(1,\): a tree cannot be cut'),
    (True, 'seed', 1, f'config.{VECTORS}.model.shortlist.kept=1'),
    (False, 'seed', 1, f'config.{VECTORS}.model.shortlist.kept=1'),
    (False, f'{VECTORS}.zones', ('no',), f'{VECTORS}.zones=.*no train'),
  ],
)
def test_faults_are_found_before_the_first_write(
  kind, path, value, says, fitted, tmp_path
):
  if kind == 'run':
    proposer = fitted('reranked').workdir / 'stages' / 'proposer'
    whole = copying('reranked', proposer)
  elif isinstance(kind, bool):
    whole = joined_by_levels(kind, kept=1)
  else:
    whole = KINDS[kind]([])
  with pytest.raises(ConfigError, match=says):
    fit(changed(whole, path, value), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


KILLED = {
  'bootstrapped': (lambda: by_levels(bootstrap=True), 'rows'),
  'random': (
    lambda: by_levels((16,), candidates=Candidates.GOLD_FIRST_RANDOM),
    'loop',
  ),
  'labels': (lambda: joined_by_levels(True, kept=6), 'tree'),
  'clusters': (lambda: joined_by_levels(False, kept=6), 'loop'),
}


@pytest.mark.thorough
@pytest.mark.parametrize('name', KILLED)
def test_a_killed_run_ends_where_an_uninterrupted_run_does(
  name, fit_once, tmp_path, monkeypatch
):
  config, place = KILLED[name]
  whole = fit_once(f'killed_{name}', config())
  with monkeypatch.context() as patch, pytest.raises(Preempted):
    if place == 'loop':
      kill_training(patch, 1)
    elif place == 'rows':
      kill(patch, proposals, 'fitted_rows')
    else:
      kill(patch, sparse_model, 'fit_tree')
    fit(config(), tmp_path / 'run')
  result = fit(config(), tmp_path / 'run')
  assert result.metrics == whole.metrics
  assert_same_dev(result, whole)
  assert contents(result.workdir / 'model') == contents(whole.workdir / 'model')
  ours, theirs = (open_run(x.workdir).scorer for x in (result, whole))
  if 'encoder' in ours.stages:
    ours, theirs = (x.stages['encoder'] for x in (ours, theirs))
    trained = whole.corpus.label_space.n_trained
    assert ours.n_labels == (trained if name == 'labels' else 6)
  jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)


@pytest.mark.thorough
@pytest.mark.parametrize('kind', ['levelled', 'matched'])
def test_a_warm_model_compiles_nothing_more(kind, fitted, compiled):
  assert_warm_compiles_nothing(open_run(fitted(kind).workdir), compiled)


def test_a_forked_process_leaves_the_folder_of_its_parent(monkeypatch):
  holder = TemporaryFolder()
  path = holder.path
  with monkeypatch.context() as patch:  # as in a forked process
    patch.setattr(os, 'getpid', lambda: -1)
    del holder
  assert path.is_dir()
  path.rmdir()
