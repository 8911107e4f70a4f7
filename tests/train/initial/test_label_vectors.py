"""The first vectors of labels: from names, and trained on a hierarchy."""

from flax import nnx
import numpy as np
import pytest

from tests.fixtures.generation import KINDS, SIZES, hierarchy, make_model
from tests.fixtures.networks import on_mesh
from xjax.data.schema import Label
from xjax.data.text.subwords import Subwords
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding, Remat
from xjax.networks.heads.generation.hbgl import HBGLConfig
from xjax.networks.heads.generation.label_levels import (
  LabelPretraining,
  pretrained_nodes,
  segments_of,
)
from xjax.networks.pretrained.architecture import architecture_of
from xjax.train.initial import label_vectors
from xjax.train.initial.label_vectors import name_vectors, pretrain
from xjax.train.parameters import by_path


def test_a_label_starts_as_the_sum_of_its_pieces():
  tokenizer = Subwords.fit(['red wine', 'white wine'])
  words = np.random.default_rng(0).normal(size=(len(tokenizer), 4))
  words = words.astype(np.float32)
  piece = {text: words[i] for i, text in enumerate(tokenizer.pieces)}
  labels = [Label('1', 'Red wine'), Label('2', ' '), Label('3', 'dw')]
  others = np.full((3, 4), 7, np.float32)
  after = name_vectors(labels, tokenizer, words, others)
  np.testing.assert_allclose(after[0], piece['red'] + piece['wine'])
  np.testing.assert_array_equal(after[1], others[1])
  np.testing.assert_allclose(after[2], piece['d'] + piece['##w'])
  assert (others == 7).all()


@pytest.fixture(scope='module')
def modules():
  """An encoder with dropout and a transform, and the vectors of two tokens."""
  with on_mesh():
    model = make_model(rate=0.1)
  special = np.random.default_rng(1).normal(size=(2, 16)).astype(np.float32)
  return (model.encoder, model.head.transform), special


def trained(modules, seed=0, check=lambda: None, **fields):
  nodes = pretrained_nodes(hierarchy())
  table = np.random.default_rng(3).normal(size=(len(nodes), 16), scale=0.1)
  config = LabelPretraining(batch=4, **{'steps': 3, 'mask': 0.4, **fields})
  table = table.astype(np.float32)
  return table, pretrain(
    table,
    nodes,
    modules=modules[0],
    special_2D=modules[1],
    config=config,
    seed=seed,
    check=check,
  )


@pytest.mark.thorough
def test_a_step_changes_only_its_segment(modules):
  class Stopped(Exception):
    pass

  steps = []

  def stop_after_the_first():
    steps.append(len(steps))
    raise Stopped

  with pytest.raises(Stopped):
    trained(modules, check=stop_after_the_first, segment=4)
  assert steps == [0]
  # In a round, each leaf has one step, which is about the rate of Adam. The
  # roots a and b, and the node c, have a step in each of their segments.
  before, after = trained(modules, segment=4, steps=1, mask=1.0)
  change = np.abs(after - before).max(axis=1)
  in_one_segment = [3, 4, 5, 6, 7, 8]  # d to i, all leaves
  np.testing.assert_allclose(change[in_one_segment], 1e-3, rtol=1e-2)
  segments = segments_of(pretrained_nodes(hierarchy()), 4)
  times = np.bincount(np.concatenate(segments), minlength=len(change))
  assert times.max() > 1
  assert (change > 0.9e-3).all() and (change < times * 1.01e-3).all()


@pytest.mark.thorough
def test_a_second_step_in_a_round_is_like_one_in_a_second_round(
  modules, monkeypatch
):
  nodes = np.arange(len(pretrained_nodes(hierarchy())), dtype=np.int32)
  after = []
  for times in (1, 2):
    monkeypatch.setattr(
      label_vectors, 'segments_of', lambda *_, n=times: [nodes] * n
    )
    after.append(trained(modules, steps=2 // times)[1])
  np.testing.assert_array_equal(*after)


def test_a_step_writes_over_the_tables(modules, monkeypatch):
  step, is_free = label_vectors._step, []

  def watched(graphdef, rate, arrays, *rest):
    result = step(graphdef, rate, arrays, *rest)
    is_free.extend(x.is_deleted() for x in arrays)
    return result

  monkeypatch.setattr(label_vectors, '_step', watched)
  trained(modules)
  assert len(is_free) == 3 * 4 and all(is_free)


def test_the_layers_are_computed_again_in_the_backward_pass():
  model = NeuralModel(NoEmbedding(), BertConfig(), head=HBGLConfig())
  with on_mesh():
    params = by_path(nnx.state(make_model()))
  architecture = architecture_of(SIZES | KINDS['bert'], 'sizes')
  encoder, _ = label_vectors._frozen_modules(params, model, architecture)
  assert (encoder.remat, model.encoder.remat) == (Remat.EVERYTHING, Remat.NONE)


@pytest.mark.thorough
def test_training_finds_the_hierarchy(modules, caplog):
  caplog.set_level('INFO')
  trained(modules, steps=200, rate=1e-2)
  first, last = caplog.messages[-1].rpartition('loss ')[2].split(' to ')
  assert float(last) < float(first) / 2
