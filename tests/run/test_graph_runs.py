"""Runs whose heads read parents and children: added labels, starts."""

import dataclasses

import numpy as np
import pytest

from tests.fixtures.dense_lists import all_scores as scores
from tests.run.small_runs import assert_resumes
from xjax.core.errors import DataError
from xjax.data.hierarchy import Hierarchy
from xjax.data.load import load_corpus
from xjax.data.schema import Label
from xjax.data.tokens_config import SubwordsConfig
from xjax.models.neural.added_labels import embed_descriptors
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.descriptor_heads import UnifiedConfig
from xjax.networks.label_graph import GraphLayers
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import read_params
from xjax.train.parameters import CONCEPTS, DESCRIPTORS, by_path
from xjax.train.saved_steps import intact_steps

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
