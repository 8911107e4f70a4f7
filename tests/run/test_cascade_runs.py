"""Runs of cascades: resumed, saved, loaded, and refused."""

import logging
import shutil

import jax
import numpy as np
import pytest

from tests.fixtures.kills import assert_about_the_same_dev
from tests.fixtures.sparse_runs import RUNS, config_of
from xjax.core.errors import ConfigError, DataError
from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.core.ranking import Query
from xjax.core.types import PAD
from xjax.data.config import WordsConfig
from xjax.data.documents import Documents
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels import LabelLevels, load_levels
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.data.load import load_corpus
from xjax.judge.files.judged import JudgeFiles
from xjax.judge.metrics.slices import cut_gold
from xjax.judge.predictions import Predictions
from xjax.judge.request import JudgeRequest
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.neural_plan import plan_neural
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.cascade import CascadeConfig
from xjax.networks.pooling import SelfAttentionConfig
from xjax.run.evaluate import evaluate_files, evaluate_split
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import Checkpoints, complete_steps, read_params
from xjax.train.initial.warm_start import warm_start
from xjax.train.neural_train import NeuralTrain
from xjax.train.parameters import by_path
from xjax.train.workdir import Workdir

TEXTS = ['Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002']


def config_with(kept=8, steps=6, seed=0, init_from=''):
  config = config_of(*RUNS['xr'])
  config.seed = seed
  config.data.tokens = WordsConfig(max_tokens=16, buckets=(8, 16), min_count=1)
  config.model = NeuralModel(
    EmbeddingConfig(dim=8),
    BiGRUConfig(units=4),
    SelfAttentionConfig(),
    CascadeConfig(
      levels=LevelsConfig((16,), ClusterTree(arity=16, max_leaf=7)),
      kept=(kept,),
      dropout=(0.5,),
      hidden=(0, 5),
    ),
  )
  config.train = NeuralTrain(
    batch_size=50,
    steps=steps,
    checkpoint_every=2,
    judge_every=2,
    best_metric='all/RP@5',
    init_from=init_from,
  )
  return config


@pytest.fixture(scope='module')
def finished(devices, tmp_path_factory):
  """The result of a run; copy its workdir before you change it."""
  with devices(1):
    return fit(config_with(), tmp_path_factory.mktemp('cascade') / 'run')


def test_a_run_that_is_continued_ends_where_an_uninterrupted_run_does(
  finished, tmp_path
):
  fit(config_with(steps=4), tmp_path)
  result = fit(config_with(), tmp_path)
  assert result.metrics == finished.metrics
  ours, theirs = (
    open_run(x).scorer.params for x in (tmp_path, finished.workdir)
  )
  jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.thorough
def test_a_mesh_trains_the_same_model(finished, devices, tmp_path):
  config = config_with()
  config.mesh = MeshConfig(data=2, label=2)
  with devices(4):
    result = fit(config, tmp_path)
  assert_about_the_same_dev(result, finished)


class Killed(Exception):
  """Stands for the end of the process."""


@pytest.mark.thorough
def test_a_killed_run_ends_where_an_uninterrupted_run_does(
  finished, tmp_path, monkeypatch
):
  save, steps = Checkpoints.save, []

  def kill(*_):
    raise Killed

  def kill_at_step_4(self, state, step, *others):
    steps.append(step)
    if step == 4:
      raise Killed
    save(self, state, step, *others)

  with monkeypatch.context() as patch, pytest.raises(Killed):
    # The levels are saved, but nothing is trained.
    patch.setattr('xjax.models.neural.neural_model.new_proposals', kill)
    fit(config_with(), tmp_path)
  assert Workdir.at(tmp_path).levels.exists()
  with monkeypatch.context() as patch, pytest.raises(Killed):
    patch.setattr(Checkpoints, 'save', kill_at_step_4)
    fit(config_with(), tmp_path)
  assert steps == [2, 4]
  assert complete_steps(Workdir.at(tmp_path).checkpoints) == [2]
  result = fit(config_with(), tmp_path)
  assert result.metrics == finished.metrics
  ours, theirs = (
    open_run(x).scorer.params for x in (tmp_path, finished.workdir)
  )
  jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_a_loaded_model_says_what_it_selects(finished, tmp_path):
  from xjax import load as load_model

  model = open_run(finished.workdir)
  size = 8 * model.scorer.params['head']['clusters'][0]['children'].shape[1]
  assert model.selected_by == f'shortlist={size}'
  saved = load_model(finished.workdir)
  saved.save(tmp_path / 'saved')
  again = load_model(tmp_path / 'saved')
  assert again.predict(TEXTS, k=3) == saved.predict(TEXTS, k=3)


def test_the_evaluation_has_the_recall_of_levels_and_labels(finished):
  size = open_run(finished.workdir).selected_by.replace('=', ' recall@')
  recalls = finished.metrics['dev']['recalls']
  assert {'all', 'few'} <= recalls.keys()
  predictions = Predictions.load(finished.paths['dev'] / 'predictions.npz')
  for name, steps in recalls.items():
    assert list(steps) == [size, 'level 0 recall@8']
    labels, clusters = steps.values()
    assert (name == 'held_out') == (labels == 0)
    assert labels == clusters <= 1
    # A list cannot have more gold labels than its shortlist.
    gold = cut_gold(predictions.gold, predictions.masks[name])
    lists = predictions.lists[name]
    hits = lists.hits(gold, len(predictions.labels)).sum(axis=1)
    assert (hits / np.maximum(gold.lengths, 1))[
      gold.lengths > 0
    ].mean() <= labels


def test_a_requested_slice_has_a_shortlist_of_its_own(finished, tmp_path):
  workdir = shutil.copytree(finished.workdir, tmp_path / 'run')
  path = tmp_path / 'odd.txt'
  odd = open_run(workdir).space.ids[1::2]
  path.write_text(''.join(f'{label}\n' for label in odd))
  request = JudgeRequest(ks=(5,), slices=(str(path),))
  found = evaluate_split(workdir, 'dev', request=request)
  predictor = open_run(workdir)
  corpus = load_corpus(
    predictor.config.data, predictor.config.seed, predictor.space, ['dev']
  )
  split, space = corpus.split('dev'), corpus.label_space
  mask_L = np.isin(np.asarray(space.ids), np.asarray(odd))
  shares = []
  documents = Documents.of_split(split)
  lists = predictor.scorer.rank(documents, Query(5, slices=(mask_L,)))
  for row, ids_K in enumerate(lists.ids_GNK[1]):
    gold = split.gold[row]
    gold = gold[mask_L[gold]]
    if len(gold):
      shares.append(np.isin(ids_K, gold).sum() / min(5, len(gold)))
  values = found.metrics['xjax']['odd']
  assert values['RP@5'] == pytest.approx(np.mean(shares))
  assert found.metrics['recalls'] == finished.metrics['dev']['recalls']
  # The saved lists are cut from a shortlist of other labels.
  files = JudgeFiles(found.folder / 'predictions.npz')
  cut = evaluate_files(files, request).metrics
  assert cut['xjax']['odd']['RP@5'] is None
  for name in ('all', 'few'):
    for metric in ('RP@5', 'micro-F1', 'macro-F1'):
      value = cut['xjax'][name][metric]
      assert value is not None
      assert value == found.metrics['xjax'][name][metric]


@pytest.mark.parametrize('same', [True, False])
def test_a_head_starts_only_from_one_with_the_same_clusters(
  finished, caplog, same
):
  caplog.set_level(logging.INFO)
  config, workdir = config_with(), Workdir.at(finished.workdir)
  space, vocab = workdir.label_space(), workdir.vocabulary()
  levels = load_levels(workdir.levels)
  if not same:
    # The sizes are equal, and only a few labels are in other clusters.
    parent = levels.parents[1].copy()
    parent[:9] = np.roll(parent[:9], 1)
    levels = LabelLevels.of(
      (levels.parents[0], parent), np.ones(len(parent), bool)
    )
  mesh = make_mesh(config.mesh)
  plan = plan_neural(config, space, len(vocab), mesh, levels=levels)
  with jax.set_mesh(mesh):
    state = plan.init(jax.random.key(9))
  before = jax.tree.map(np.array, by_path(state.params))
  state, _ = warm_start(state, str(workdir.path), space, vocab, levels)
  after = jax.tree.map(np.asarray, by_path(state.params))
  saved = read_params(workdir.checkpoints, finished.best_step)
  parent, children = after['head/parent'], after['head/clusters/0/children']
  clusters, places = np.nonzero(children != PAD)
  np.testing.assert_array_equal(parent[children[clusters, places]], clusters)
  np.testing.assert_array_equal(parent[: space.n_trained], levels.parents[1])
  for name in ('head/clusters/0/kernel', 'head/clusters/0/bias', 'head/bias'):
    expected = saved if same else before
    np.testing.assert_array_equal(after[name], expected[name])
  assert (after['embedding/table'] == saved['embedding/table']).all()
  fault = 'skipped head/kernel: belongs to other clusters of labels'
  assert (fault in caplog.text) is not same


@pytest.mark.thorough
def test_a_run_starts_from_a_run_with_other_clusters(finished, tmp_path):
  run = fit(
    config_with(steps=1, seed=5, init_from=str(finished.workdir)), tmp_path
  )
  ours, theirs = (
    load_levels(Workdir.at(x.workdir).levels) for x in (run, finished)
  )
  assert not np.array_equal(ours.parents[1], theirs.parents[1])
  params = read_params(Workdir.at(run.workdir).checkpoints, 1)
  parent, children = params['head/parent'], params['head/clusters/0/children']
  np.testing.assert_array_equal(parent[: len(ours.parents[1])], ours.parents[1])
  np.testing.assert_array_equal(children, ours.children[1])


def test_a_damaged_file_of_levels_is_an_error(finished, tmp_path):
  shutil.copytree(finished.workdir, tmp_path / 'run')
  path = tmp_path / 'run' / 'model' / 'levels.npz'
  path.write_bytes(path.read_bytes()[:-100])
  with pytest.raises(DataError, match='levels.npz'):
    open_run(tmp_path / 'run')


def test_too_few_kept_clusters_are_an_error(tmp_path):
  with pytest.raises(ConfigError, match='head.kept=.1,.: document .* clusters'):
    fit(config_with(kept=1), tmp_path)
