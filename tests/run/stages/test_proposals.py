"""Runs that rank the labels of another run, and runs trained by levels."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest

from tests.fixtures.sparse_runs import RUNS, config_of
from xjax.config.check import check_config
from xjax.config.json import from_json, to_json
from xjax.config.neural_train import NeuralTrain
from xjax.config.run import shrink
from xjax.config.stages import StageConfig, StageShortlist
from xjax.core.errors import ConfigError, DataError, Preempted
from xjax.core.types import PAD, Ragged
from xjax.data.config import TfidfConfig, WordsConfig
from xjax.judge.predictions import Predictions
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.run.fit import fit
from xjax.run.load import load
from xjax.score.encoders.bigru import BiGRUConfig
from xjax.score.encoders.layers import EmbeddingConfig
from xjax.score.heads.label_attention import LabelAttentionConfig
from xjax.score.heads.ova import OneVsAllConfig
from xjax.score.heads.rows.update import FusedAdam
from xjax.score.pooling import SelfAttentionConfig
from xjax.score.shortlists import AllLabels, LevelShortlist, RunShortlist
from xjax.score.text_model import NeuralModel
from xjax.score.trees.clusters import ClusterTree
from xjax.score.trees.levels_config import LevelsConfig
from xjax.train.loop import Loop

KINDS = ['reranked', pytest.param('levelled', marks=pytest.mark.thorough)]
TEXTS = ['Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002']


def neural_config(shortlist, head=None, loss=None, **train):
  """Returns the config of a small neural model with a kind of shortlist."""
  config = config_of(*RUNS['xr'])
  tokens = WordsConfig(max_tokens=16, buckets=(8, 16), min_count=1)
  pooling = SelfAttentionConfig(), OneVsAllConfig()
  model = NeuralModel(
    EmbeddingConfig(dim=8), BiGRUConfig(units=4), *pooling, shortlist
  )
  if head is not None:
    model = NeuralModel(
      model.embedding, model.encoder, head=head, shortlist=shortlist
    )
  trained = NeuralTrain(
    batch_size=50, steps=4, checkpoint_every=2, judge_every=2, **train
  )
  if loss is not None:
    trained.loss = loss
  data = dataclasses.replace(config.data, tokens=tokens)
  judging = dataclasses.replace(config.eval, batch_size=32)
  return dataclasses.replace(
    config, data=data, model=model, train=trained, eval=judging
  )


def reranker(**more):
  model, train = RUNS['xr']
  stage = StageConfig(TfidfConfig(max_features=2000), (), model, train)
  return neural_config(StageShortlist(20, 2.0, stage=stage), **more)


def by_levels(sizes=(4, 16), **more):
  """Returns the config of a model that is trained level by level."""
  levels = LevelsConfig(sizes, ClusterTree(arity=4, max_leaf=7))
  steps = (3, 4)[: len(sizes)]
  shortlist = LevelShortlist(levels, steps, kept=6, counted=True)
  loss = SquaredHingeConfig()
  return neural_config(dataclasses.replace(shortlist, **more), loss=loss)


@pytest.fixture(scope='module')
def reranked(devices, tmp_path_factory):
  """The result of a run that ranks a tree's labels; copy it to change it."""
  with devices(1):
    return fit(reranker(), tmp_path_factory.mktemp('reranked') / 'run')


@pytest.fixture(scope='module')
def levelled(devices, tmp_path_factory):
  """The result of a run with two levels of clusters; copy it to change it."""
  with devices(1):
    return fit(by_levels(), tmp_path_factory.mktemp('levelled') / 'run')


def test_only_labels_of_the_tree_are_ranked(reranked):
  model = load(reranked.workdir)
  tree = load(reranked.workdir / 'stages' / 'proposer')
  assert model.selected_by == 'shortlist=20'
  for ours, theirs in zip(model.predict(TEXTS, 20), tree.predict(TEXTS, 20)):
    assert {x.id for x in ours} == {x.id for x in theirs}
    assert ours != theirs


def test_with_a_large_prior_the_order_is_that_of_the_tree(reranked, tmp_path):
  shutil.copytree(reranked.workdir, tmp_path / 'run')
  config = reranker()
  config.model.shortlist.prior = 1e6
  result = fit(config, tmp_path / 'run')
  assert result.metrics != reranked.metrics  # the run is judged again
  ours, theirs = (
    load(path).predict(TEXTS, 20)
    for path in (tmp_path / 'run', reranked.workdir / 'stages' / 'proposer')
  )
  for one, other in zip(ours, theirs):
    assert [x.id for x in one] == [x.id for x in other]


def test_a_finished_run_is_copied(reranked, tmp_path):
  source = tmp_path / 'source'
  shutil.copytree(reranked.workdir / 'stages' / 'proposer', source)
  config = reranker()
  config.model.shortlist = RunShortlist(20, 2.0, workdir=str(source))
  result = fit(config, tmp_path / 'run')
  assert result.metrics == reranked.metrics
  shutil.rmtree(source)
  again = load(tmp_path / 'run').predict(TEXTS, 3)
  assert again == load(reranked.workdir).predict(TEXTS, 3)


@pytest.mark.parametrize('kind', KINDS)
def test_a_saved_model_has_its_stages(kind, request, tmp_path):
  from xjax import load as load_model

  workdir = request.getfixturevalue(kind).workdir
  model = load_model(workdir)
  model.save(tmp_path / 'saved')
  saved = load_model(tmp_path / 'saved')
  assert saved.predict(TEXTS, k=3) == model.predict(TEXTS, k=3)


@pytest.mark.parametrize('kind', KINDS)
def test_a_damaged_stage_is_an_error(kind, request, tmp_path):
  workdir = request.getfixturevalue(kind).workdir
  shutil.copytree(workdir, tmp_path / 'run')
  stage = 'proposer' if kind == 'reranked' else 'level'
  digests = tmp_path / 'run' / 'stages' / stage / 'digests.json'
  digests.write_text(digests.read_text() + ' ')
  with pytest.raises(DataError, match='digests.json'):
    load(tmp_path / 'run')


def test_levels_go_from_clusters_to_labels(levelled):
  model = load(levelled.workdir)
  middle = load(levelled.workdir / 'stages' / 'level')
  top = load(levelled.workdir / 'stages' / 'level' / 'stages' / 'level')
  sizes = [run.space.n_trained for run in (top, middle, model)]
  assert sizes[:2] == [4, 16] and sizes[2] > 80
  assert top.selected_by == 'exact'
  assert middle.selected_by == 'shortlist=16'  # 6 of 4 clusters of 4
  assert model.selected_by.startswith('shortlist=')
  (first,) = middle.predict(TEXTS[:1], 1)
  assert first[0].id.startswith('level 1, cluster ')
  assert len(model.predict(TEXTS, 5)[0]) == 5


@pytest.mark.thorough
def test_first_rows_are_those_of_linear_classifiers(levelled, tmp_path):
  from sklearn.svm import LinearSVC

  from xjax.data.batches.shortlists import TrainShortlists
  from xjax.run.stages.bootstrap import fitted_rows

  rng = np.random.default_rng(0)
  vectors = rng.normal(size=(80, 5)).astype(np.float32)
  label = (vectors[:, 0] > 0) * 2 + (vectors[:, 1] > 0.3)
  gold = Ragged.of(label[:, None])
  children = np.int32([[0, 1], [2, 3], [4, PAD]])
  parents = np.int32([0, 0, 1, 1, 2])
  nodes = np.tile(np.int32([0, 1]), (80, 1))
  lists = TrainShortlists(nodes, 2, children, parents)
  kernel, bias = fitted_rows(vectors, gold, lists, seed=0, workers=1)
  assert not kernel[4].any() and bias[4] == -1
  for i in range(4):
    svm = LinearSVC(C=1, tol=1e-6, max_iter=100_000)
    svm.fit(vectors, label == i)
    ours = vectors @ kernel[i] + bias[i]
    theirs = svm.decision_function(vectors)
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99
  config = by_levels(sizes=(16,), bootstrap=True)
  result = fit(config, tmp_path)
  plain = fit(by_levels(sizes=(16,)), tmp_path / 'plain')
  ours, theirs = (x.metrics['dev']['xjax']['all'] for x in (result, plain))
  assert ours['RP@5'] != theirs['RP@5']


def test_clusters_are_gold_where_their_labels_are(levelled):
  from xjax.data.load import read_corpus
  from xjax.run.stages.level_corpus import level_corpus
  from xjax.run.stages.levels import saved_levels
  from xjax.train.workdir import Workdir

  config = by_levels()
  corpus = read_corpus(config.data, config.seed)
  levels = saved_levels(Workdir.at(levelled.workdir))
  middle, costs = level_corpus(corpus, levels)
  gold = corpus.splits['train'].gold
  for row in range(len(gold)):
    expected, counts = np.unique(
      levels.parents[-1][gold[row]], return_counts=True
    )
    np.testing.assert_array_equal(middle.splits['train'].gold[row], expected)
    np.testing.assert_array_equal(costs[row], counts)
  labels = load(levelled.workdir / 'stages' / 'level').workdir.levels
  assert labels.exists()
  from xjax.score.trees.levels import load_levels

  top, sums = level_corpus(middle, load_levels(labels), costs)
  total = np.add.reduceat(sums.values, sums.indptr[:-1][sums.lengths > 0])
  assert total.tolist() == gold.lengths[gold.lengths > 0].tolist()
  assert len(top.label_space) == 4


def recalls(result, split='dev'):
  path = result.paths[split] / 'predictions.npz'
  predictions = Predictions.load(path)
  assert result.metrics[split]['recalls'] == predictions.recalls
  return predictions.recalls


def test_the_evaluation_says_how_many_gold_labels_are_on_shortlists(
  reranked,
):
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


@pytest.mark.thorough
def test_the_evaluation_has_the_recall_of_each_level(levelled):
  size = load(levelled.workdir).selected_by.replace('=', ' recall@')
  found = recalls(levelled)
  assert {'all', 'few'} <= found.keys()
  for name, levels in found.items():
    assert list(levels) == [size, 'level 1 recall@6', 'level 0 recall@4']
    labels, middle, top = levels.values()
    assert labels == middle <= top <= 1
    assert (name == 'held_out') == (labels == 0)


class Killed:
  """Kills a run after step 2 of its n-th training loop."""

  def __init__(self, monkeypatch, which):
    self.monkeypatch, self.left = monkeypatch, which

  def __enter__(self):
    run = Loop.run

    def killed(loop, state, iterator, position):
      if self.left:
        self.left -= 1
        return run(loop, state, iterator, position)
      steps, loop.config.steps = loop.config.steps, 2
      run(loop, state, iterator, position)
      loop.config.steps = steps
      raise Preempted('killed')

    self.monkeypatch.setattr(Loop, 'run', killed)

  def __exit__(self, *error):
    self.monkeypatch.undo()


@pytest.mark.parametrize(
  ('kind', 'which'),
  [
    ('reranked', 0),
    pytest.param('levelled', 0, marks=pytest.mark.thorough),
    pytest.param('levelled', 1, marks=pytest.mark.thorough),
    pytest.param('levelled', 2, marks=pytest.mark.thorough),
  ],
)
def test_a_killed_run_ends_where_an_uninterrupted_run_does(
  kind, which, request, tmp_path, monkeypatch
):
  whole = request.getfixturevalue(kind)
  config = reranker() if kind == 'reranked' else by_levels()
  with Killed(monkeypatch, which), pytest.raises(Preempted):
    fit(config, tmp_path / 'run')
  config = reranker() if kind == 'reranked' else by_levels()
  result = fit(config, tmp_path / 'run')
  assert result.metrics == whole.metrics
  ours, theirs = (
    load(x).scorer.params for x in (tmp_path / 'run', whole.workdir)
  )
  jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.thorough
def test_no_gold_label_is_lost_in_training(devices, levelled, tmp_path):
  from xjax.data.load import read_corpus
  from xjax.run.stages.proposals import new_proposals
  from xjax.train.preemption import Preemption
  from xjax.train.workdir import Workdir

  config = by_levels()
  shutil.copytree(levelled.workdir, tmp_path / 'run')
  corpus = read_corpus(config.data, config.seed)
  folder = Workdir.at(tmp_path / 'run')
  with Preemption() as preemption:
    lists = new_proposals(config, folder, corpus, preemption).shortlists
  gold = corpus.splits['train'].gold
  rows = np.arange(len(gold), dtype=np.int32)
  positives = gold.padded(rows, int(gold.lengths.max()), PAD)
  shortlist = lists.of(rows, positives)
  assert (shortlist.gold_BA.sum(axis=1) == gold.lengths).all()
  assert (shortlist.ids_BA != PAD).sum() > 5 * gold.lengths.sum()


@pytest.mark.parametrize(
  'more',
  [
    {'head': LabelAttentionConfig()},
    {'rows': FusedAdam()},
    pytest.param(
      {'head': LabelAttentionConfig(), 'rows': FusedAdam()},
      marks=pytest.mark.thorough,
    ),
  ],
)
def test_other_heads_and_rules_are_trained_on_shortlists(more, tmp_path):
  result = fit(reranker(**more), tmp_path)
  assert result.metrics['dev']['xjax']['all']['RP@5'] > 0.2


@pytest.mark.thorough
def test_training_can_score_all_labels(tmp_path):
  """The parameters are those of a run without shortlists."""
  config = reranker()
  config.model.shortlist.trained = False
  config.model.shortlist.size = 2  # too few for the gold labels of training
  result = fit(config, tmp_path / 'run')
  config.model.shortlist = AllLabels()
  fit(config, tmp_path / 'all')
  ours, theirs = (
    load(tmp_path / name, 4).scorer.params for name in ('run', 'all')
  )
  jax.tree.map(np.testing.assert_array_equal, ours, theirs)
  assert load(tmp_path / 'run').selected_by == 'shortlist=2'
  assert recalls(result)['all'].keys() == {'shortlist recall@2'}


def test_a_document_with_more_gold_labels_is_an_error(tmp_path):
  config = reranker()
  config.model.shortlist.size = 2
  with pytest.raises(ConfigError, match='shortlist.size=2: document .* has'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_a_run_with_other_labels_is_an_error(reranked, tmp_path):
  config = reranker()
  source = reranked.workdir / 'stages' / 'proposer'
  config.model.shortlist = RunShortlist(20, 2.0, workdir=str(source))
  config.data.corpus_seed = 5
  with pytest.raises(ConfigError, match='use a run with the same labels'):
    fit(config, tmp_path / 'run')


def test_faults_are_found_before_anything_is_written(reranked, tmp_path):
  config = reranker()
  config.model.shortlist = RunShortlist(20, 2.0)
  with pytest.raises(ConfigError, match="shortlist.workdir='': set it to"):
    check_config(config)
  config.model.shortlist.workdir = str(tmp_path / 'none')
  with pytest.raises(ConfigError, match='there is no run of xjax'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
  config = reranker()
  config.data.zones = ('title',)
  config.model.shortlist = RunShortlist(
    20, 2.0, workdir=str(reranked.workdir / 'stages' / 'proposer')
  )
  with pytest.raises(ConfigError, match='choose all zones that a run reads'):
    fit(config, tmp_path / 'run')
  config = by_levels()
  config.model.shortlist.steps = (3,)
  with pytest.raises(ConfigError, match='shortlist.steps=.3,.: must have'):
    check_config(config)


def test_configs_are_saved_and_shrunk():
  for config in (reranker(), by_levels()):
    assert from_json(to_json(config)) == config
  config = reranker()
  config.model.shortlist = RunShortlist(20, 2.0, workdir='somewhere')
  assert isinstance(shrink(config).model.shortlist, StageShortlist)
