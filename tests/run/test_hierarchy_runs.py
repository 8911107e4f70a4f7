"""Runs that read parents: added labels, starts, kills, and plans."""

import dataclasses

from flax import nnx
import numpy as np
import pytest

from tests.fixtures.dense_lists import all_scores as scores
from tests.fixtures.encoders import write_encoder
from tests.fixtures.kills import assert_same_dev, kill
from tests.fixtures.shrink import shrink
from tests.run.small_runs import assert_predicts_what_was_judged, assert_resumes
from xjax.configs import quickstart
from xjax.core.errors import ConfigError, DataError, Preempted
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.load import load_corpus
from xjax.data.schema import Label
from xjax.data.tokens_config import SubwordsConfig
from xjax.models.neural.added_labels import embed_descriptors
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.descriptor_heads import UnifiedConfig
from xjax.networks.heads.generation.emitting import Ranking
from xjax.networks.heads.generation.label_levels import (
  LabelPretraining,
  label_levels,
)
from xjax.networks.label_graph import GraphLayers
from xjax.plan.sizes import corpus_sizes
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import read_params
from xjax.train.initial import label_vectors
from xjax.train.parameters import CONCEPTS, DESCRIPTORS, by_path
from xjax.train.saved_steps import complete_steps, intact_steps
from xjax.train.workdir import Workdir

PRETRAINED = UnifiedConfig(
  chunk=8, hidden_labels=2, aligned=True, graph=GraphLayers(queries=True)
)


@pytest.fixture(
  scope='module',
  params=['unified', pytest.param('pretrained', marks=pytest.mark.thorough)],
)
def graph_config(request, described_config, tmp_path_factory):
  """A config of 14 labels; two more concepts are parents or children.

  At least one held-out label has parents and no children.
  """
  corpus = load_corpus(described_config.data, described_config.seed)
  space = corpus.label_space
  graph = Hierarchy.of_space(space)
  inner = np.flatnonzero(graph.parents.lengths * graph.children.lengths)
  leaf = np.flatnonzero(graph.parents.lengths * (graph.children.lengths == 0))
  left_out = {space.ids[inner[0]], space.ids[leaf[0]]}
  path = tmp_path_factory.mktemp('labels') / 'labels.txt'
  path.write_text(''.join(f'{x}\n' for x in space.ids if x not in left_out))
  tokens, model = described_config.data.tokens, described_config.model
  head = dataclasses.replace(model.head, graph=GraphLayers(6, dropout=0.2))
  match request.param:
    case 'unified':
      model = dataclasses.replace(model, head=head)
    case 'pretrained':
      tokens = SubwordsConfig(max_tokens=16, buckets=(16,))
      model = NeuralModel(NoEmbedding(), BertConfig(), head=PRETRAINED)
  data = described_config.data
  data = dataclasses.replace(data, labels=str(path), tokens=tokens)
  config = dataclasses.replace(described_config, data=data, model=model)
  while not held_out_leaves(load_corpus(config.data, config.seed).label_space):
    config.seed += 1
  return config


def held_out_leaves(space):
  """Returns the held-out labels that have parents and no children."""
  graph = Hierarchy.of_space(space)
  return [
    int(node)
    for node in space.held_out
    if len(graph.parents[node]) and not len(graph.children[node])
  ]


@pytest.fixture(scope='module')
def run(graph_config, tmp_path_factory):
  return fit(graph_config, tmp_path_factory.mktemp('graph') / 'run')


@pytest.fixture(scope='module')
def predictor(run):
  return open_run(run.workdir)


@pytest.fixture(scope='module')
def graph(predictor):
  space = predictor.space
  return Hierarchy.of_space(space, space.n_trained + space.n_held_out)


@pytest.fixture(scope='module')
def split(graph_config):
  return load_corpus(graph_config.data, graph_config.seed).split('dev')


@pytest.fixture(scope='module')
def before(predictor, split):
  return scores(predictor, split)


@pytest.mark.thorough
def test_all_nodes_have_the_embeddings_of_their_names(predictor, graph):
  assert len(graph) > graph.n_labels == 14
  vocab = predictor.scorer.reader.vocab
  rows = embed_descriptors(graph.labels, predictor.run, vocab)
  params = by_path(predictor.scorer.params)
  result = np.concatenate([params[DESCRIPTORS][:14], params[CONCEPTS]])
  np.testing.assert_allclose(result, rows, atol=1e-6)


def test_the_graph_is_learnt(run):
  folder = run.workdir / 'checkpoints'
  steps = intact_steps(folder)
  first, last = (read_params(folder, step) for step in (steps[0], steps[-1]))
  names = [name for name in last if name.startswith('head/graph')]
  frozen = {CONCEPTS, 'head/graph/parents', 'head/graph/children'}
  assert frozen < {*names} and len(names) > 10
  for name in names:
    assert np.array_equal(first[name], last[name]) == (name in frozen), name


def test_an_added_label_scores_like_the_held_out_one(predictor, split, before):
  """Other scores stay, although the parents get one more child."""
  space = predictor.space
  at = held_out_leaves(space)
  twins = [dataclasses.replace(space.labels[n], id=f'new-{n}') for n in at]
  after = scores(predictor.with_labels(twins), split)
  np.testing.assert_allclose(after[:, :14], before, atol=1e-6)
  np.testing.assert_allclose(after[:, 14:], before[:, at], atol=1e-6)
  strangers = [dataclasses.replace(x, parents=()) for x in twins]
  others = scores(predictor.with_labels(strangers), split)
  assert np.abs(others[:, 14:] - after[:, 14:]).max() > 1e-4


def test_faulty_parents_of_new_labels(predictor):
  name = predictor.space.labels[3].name
  unknown = [Label('a', name, parents=('b',)), Label('b', name, parents=('q',))]
  says = "new label 'b' has the unknown parent 'q'; a parent must be"
  with pytest.raises(DataError, match=says):
    predictor.with_labels(unknown)
  cycle = [Label('a', name, parents=('b',)), Label('b', name, parents=('a',))]
  with pytest.raises(DataError, match="'a' is its own ancestor"):
    predictor.with_labels(cycle)


@pytest.mark.thorough
def test_resuming_is_bitwise(graph_config, run, tmp_path):
  assert_resumes(graph_config, run, tmp_path, graph_config.train.steps - 2)


pytestmark = pytest.mark.thorough


def config_with(steps=4, init_from='', **head):
  """A config whose labels are in several segments, with dropout."""
  small = shrink(quickstart.get_config('hbgl'))
  pretraining = LabelPretraining(steps=2, batch=2, segment=6)
  fields = {'pretraining': pretraining, 'ranking': Ranking.EMITTED, 'chunk': 8}
  head = dataclasses.replace(small.model.head, **fields | head)
  when = {'steps': steps, 'checkpoint_every': 2, 'judge_every': 2}
  more = {'best_metric': 'all/micro-F1', 'init_from': init_from}
  train = dataclasses.replace(small.train, **when, **more)
  encoder = BertConfig(dropout=0.1, attention_dropout=0.1)
  model = dataclasses.replace(small.model, encoder=encoder, head=head)
  return dataclasses.replace(small, model=model, train=train)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  return fit(config_with(), tmp_path_factory.mktemp('hbgl') / 'run')


def params_of(run, step=4):
  return read_params(Workdir.at(run.workdir).checkpoints, step)


def assert_same(run, other):
  ours, theirs = params_of(run), params_of(other)
  for name in theirs:
    np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
  assert_same_dev(run, other)


def test_a_run_that_is_killed_while_labels_are_trained_begins_again(
  finished, tmp_path, monkeypatch
):
  with monkeypatch.context() as patch, pytest.raises(Preempted):
    kill(patch, label_vectors, 'make_segment', which=1)
    fit(config_with(), tmp_path)
  assert complete_steps(Workdir.at(tmp_path).checkpoints) == []
  with monkeypatch.context() as patch:
    # It ends at step 2, and goes on from there.
    fit(config_with(steps=2), tmp_path)
    patch.setattr(label_vectors, 'pretrain', None)  # not a second time
    assert_same(fit(config_with(), tmp_path), finished)


def test_a_loaded_run_predicts_what_was_judged(finished):
  assert_predicts_what_was_judged(finished)


def test_levels_are_saved_in_the_order_of_labels(finished):
  space = Workdir.at(finished.workdir).label_space()
  expected = label_levels(Hierarchy.of_space(space, space.n_trained))
  level = params_of(finished)['head/level']
  np.testing.assert_array_equal(level[: space.n_trained], expected)
  assert (level[space.n_trained :] == PAD).all()
  assert len(set(expected)) > 1


def test_labels_that_another_run_lacks_are_trained_on_its_encoder(
  finished, tmp_path, monkeypatch
):
  config = config_with(steps=1, init_from=str(finished.workdir))
  more = config.data.n_labels + 4
  config.data = dataclasses.replace(config.data, n_labels=more)
  start = {}

  def pretrain(table, nodes, *, modules, **_):
    start.update(by_path(nnx.split(modules[0])[1]), table=table)
    return table + 1

  monkeypatch.setattr(label_vectors, 'pretrain', pretrain)
  run = fit(config, tmp_path)
  ours, theirs = params_of(run, 0), params_of(finished, finished.best_step)
  table = start.pop('table')
  for name, x in start.items():
    if name != 'embeddings/word':  # its rows are in another order
      np.testing.assert_array_equal(x, theirs[f'encoder/{name}'], err_msg=name)
  ids, known = (
    Workdir.at(x.workdir).label_space().ids for x in (run, finished)
  )
  rows = known.row_of.find(ids)
  assert {*rows} > {PAD}
  kernel, source = ours['head/kernel'][: len(ids)], theirs['head/kernel']
  is_new, table = rows == PAD, table[: len(ids)]
  np.testing.assert_array_equal(kernel[~is_new], source[rows[~is_new]])
  np.testing.assert_array_equal(table[~is_new], source[rows[~is_new]])
  np.testing.assert_array_equal(kernel[is_new], table[is_new] + 1)
  assert not ours['head/kernel'][len(ids) :].any()


def test_a_taxonomy_with_too_many_levels_is_refused(tmp_path):
  config, says = config_with(max_levels=1), 'head.max_levels=1: the labels'
  with pytest.raises(ConfigError, match=says):
    fit(config, tmp_path)
  with pytest.raises(ConfigError, match=says):
    corpus_sizes(config, load_corpus(config.data, config.seed))


def test_an_encoder_without_positions_for_the_levels_is_refused(tmp_path):
  write_encoder(tmp_path / 'model', pooler=False)  # 20 positions
  config = config_with(max_levels=4)
  config.model.encoder.folder = str(tmp_path / 'model')
  with pytest.raises(ConfigError, match='20 tokens, including 5 vectors'):
    fit(config, tmp_path / 'run')
