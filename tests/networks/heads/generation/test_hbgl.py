"""Generates labels level by level, on any mesh, and ranks them."""

import dataclasses

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.generation import LEVELS, L, T, batch, hierarchy, make_model
from tests.fixtures.networks import on_mesh
from xjax.core.errors import ConfigError
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.losses.bce import bce
from xjax.losses.loss import LabelWeights
from xjax.networks.heads.generation.emitting import Ranking
from xjax.networks.heads.generation.hbgl import HBGLConfig
from xjax.networks.heads.generation.label_levels import label_levels
from xjax.networks.topk import head_topk

FULL = HBGLConfig(ranking=Ranking.FULL, chunk=4)
ROWS = np.random.default_rng(1).uniform(0.5, 2, (2, 1536)).astype(np.float32)


def compiled(function, *fields, **named):
  """function(model, *arrays), and the parameters of a model of one layer."""
  graphdef, params = nnx.split(make_model(*fields, layers=1, **named))
  run = jax.jit(lambda params, *x: function(nnx.merge(graphdef, params), *x))
  return run, params


def lists(model, documents):
  return head_topk(model.head, model.features(documents), L)


def loss_of(model, documents, rngs=None):
  return model.loss(documents, bce, rngs, LabelWeights(*map(jnp.asarray, ROWS)))


@pytest.fixture(scope='module')
def ranked():
  """The lists of both rankings of the same weights: ids, scores [B, L]."""
  result = {}
  with on_mesh():
    for head in (HBGLConfig(chunk=4), FULL):
      run, params = compiled(lists, head)
      ids, scores = jax.tree.map(np.asarray, run(params, batch()))
      result[head.ranking] = ids[0], scores[0]
  return result


@pytest.fixture(scope='module')
def total():
  """The loss of the batch."""
  with on_mesh():
    run, params = compiled(loss_of, FULL)
    return float(run(params, batch()))


def test_documents_are_scored_and_learnt_alone(ranked, total):
  """Neither other documents nor padding change anything."""
  ids, scores = ranked[Ranking.FULL]
  parts = [batch(T + 4, slice(i, i + 1)) for i in range(8)]

  def both(model, documents):
    return lists(model, documents), loss_of(model, documents)

  with on_mesh():
    run, params = compiled(both, FULL)
    results = [run(params, part) for part in parts]
  for i, ((own_ids, own), _) in enumerate(results[:7]):
    np.testing.assert_array_equal(own_ids[0, 0], ids[i])
    np.testing.assert_allclose(own[0, 0], scores[i], atol=1e-5)
  losses = [loss for _, loss in results]
  np.testing.assert_allclose(sum(losses), total, rtol=1e-5)
  assert losses[7] == 0  # this row only fills the batch
  assert min(losses[:7]) > 0


def test_devices_give_the_same_lists(ranked):
  with on_mesh(2, 4):
    run, params = compiled(lists, FULL)
    ids, scores = run(params, batch())
  np.testing.assert_array_equal(ids[0], ranked[Ranking.FULL][0])
  np.testing.assert_allclose(scores[0], ranked[Ranking.FULL][1], atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize('mesh', [(2, 4), (4, 2)])
def test_devices_give_the_same_loss(mesh):
  def run(model, documents):
    graphdef, params = nnx.split(model)

    def total(params):
      return loss_of(nnx.merge(graphdef, params), documents)

    return jax.value_and_grad(total, allow_int=True)(params)

  results = []
  for shape in ((1, 1), mesh):
    with on_mesh(*shape):
      program, params = compiled(run, FULL)
      results.append(jax.tree.map(np.asarray, program(params, batch())))
  for y, x in zip(*map(jax.tree.leaves, results)):
    if x.dtype == np.float32:
      assert np.abs(x - y).max() <= 1e-5 * (1 + np.abs(y).max())


@pytest.mark.parametrize(('masked', 'rate'), [(0.5, 0.0), (0.0, 0.2)])
def test_the_key_decides_dropout_and_masked_levels(masked, rate, total):

  def loss_with(model, key):
    return loss_of(model, batch(), nnx.Rngs(dropout=key))

  with on_mesh():
    run, params = compiled(loss_with, HBGLConfig(masked=masked), rate=rate)
    losses = [float(run(params, jax.random.key(i))) for i in (0, 1, 0)]
  assert losses[0] == losses[2]
  assert len({*losses, total}) == 3


def test_levels_without_labels_are_left_out():
  np.testing.assert_array_equal(label_levels(hierarchy()), LEVELS)
  # Only the leaves are labels; the others are concepts.
  labels = [Label('g', 'g', parents=('c',)), Label('i', 'i')]
  others = [Label('c', 'c', parents=('a',)), Label('a', 'a')]
  result = label_levels(Hierarchy.of(labels, others))
  assert result.tolist() == [1, 0]
  flat = Hierarchy.of([Label(name, name) for name in 'ab'])
  assert label_levels(flat).tolist() == [0, 0]


def test_twenty_levels_are_generated():
  names = [str(i) for i in range(20)]
  chain = Hierarchy.of(
    [
      Label(x, x, parents=(y,) if y else ())
      for x, y in zip(names, [''] + names)
    ]
  )
  config = dataclasses.replace(FULL, max_levels=20)
  config.check_hierarchy(chain)
  with pytest.raises(ConfigError, match='max_levels=8: .* have 20 levels'):
    FULL.check_hierarchy(chain)
  documents = batch(T, slice(0, 2))
  gold = jnp.asarray([[0, 19, PAD, PAD, PAD], [*range(5)]], jnp.int32)
  documents = dataclasses.replace(documents, positives_BP=gold)
  with on_mesh():
    run, params = compiled(
      lambda m, x: (loss_of(m, x), m.features(x)[:, :20]),
      *(config, 'bert', chain),
      n_labels=20,
    )
    loss, scores = run(params, documents)
  assert np.isfinite(loss) and np.isfinite(scores).all()
  assert len(np.unique(scores)) == 40
