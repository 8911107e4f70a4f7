"""Generates labels level by level, on any mesh, and ranks them."""

import dataclasses

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.generation import (
  LEVELS,
  L,
  T,
  batch,
  hierarchy,
  make_model,
  mesh_of,
)
from xjax.core.errors import ConfigError
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.losses.bce import bce
from xjax.losses.loss import LabelWeights
from xjax.networks.heads.generation.emitting import Ranking
from xjax.networks.heads.generation.hbgl import HBGLConfig
from xjax.networks.heads.generation.levels import label_levels
from xjax.networks.topk import head_topk

FULL = HBGLConfig(ranking=Ranking.FULL, chunk=4)


def compiled(function, model):
  """function(model, *arrays), which is compiled once per shape."""
  graphdef, params = nnx.split(model)
  run = jax.jit(lambda params, *x: function(nnx.merge(graphdef, params), *x))
  return run, params


def lists(model, documents):
  return head_topk(model.head, model.features(documents), L)


@pytest.fixture(scope='module')
def ranked():
  """The lists of both rankings of the same weights: ids, scores [B, L]."""
  result = {}
  with jax.set_mesh(mesh_of()):
    for head in (HBGLConfig(chunk=4), FULL):
      run, params = compiled(lists, make_model(head))
      ids, scores = jax.tree.map(np.asarray, run(params, batch()))
      result[head.ranking] = ids[0], scores[0]
  return result


def test_a_full_list_starts_with_the_emitted_labels_and_others_have_no_more(
  ranked,
):
  ids, scores = ranked[Ranking.EMITTED]
  listed = ids != PAD
  assert (listed == (scores > -np.inf)).all()
  assert (scores[listed] > 0).all()
  lengths = listed.sum(axis=1)
  assert lengths.min() < lengths.max() < L  # some documents end early
  full_ids, full_scores = ranked[Ranking.FULL]
  assert (np.sort(full_ids) == np.arange(L)).all()
  np.testing.assert_array_equal(full_ids[listed], ids[listed])
  np.testing.assert_array_equal(full_scores[listed], scores[listed])
  assert (full_scores[~listed] <= 0).all()
  assert np.isfinite(full_scores).all()


def test_scores_depend_on_neither_other_documents_nor_padding(ranked):
  with jax.set_mesh(mesh_of()):
    run, params = compiled(lists, make_model(FULL))
    alone = [run(params, batch(T + 4, slice(i, i + 1))) for i in range(4)]
  ids, scores = ranked[Ranking.FULL]
  for i, (own_ids, own) in enumerate(alone):
    np.testing.assert_array_equal(own_ids[0, 0], ids[i])
    np.testing.assert_allclose(own[0, 0], scores[i], atol=1e-5)


def loss_of(model, documents, weights=None):
  return model.loss(documents, bce, None, weights)


def test_the_loss_is_the_sum_over_documents():
  with jax.set_mesh(mesh_of()):
    run, params = compiled(loss_of, make_model())
    total = run(params, batch())
    parts = [run(params, batch(T, slice(i, i + 1))) for i in range(8)]
    assert run._cache_size() == 2
  np.testing.assert_allclose(sum(parts), total, rtol=1e-5)
  assert parts[7] == 0  # this row only fills the batch
  assert min(parts[:7]) > 0


@pytest.mark.parametrize(
  'mesh', [(2, 4), pytest.param((4, 2), marks=pytest.mark.thorough)]
)
def test_devices_give_the_same_loss_and_lists(mesh, ranked):
  rows = jnp.asarray(np.random.default_rng(1).uniform(0.5, 2, (2, 1536)))
  weights = LabelWeights(*rows.astype(jnp.float32))

  def both(model, documents):
    graphdef, params = nnx.split(model)

    def total(params):
      return loss_of(nnx.merge(graphdef, params), documents, weights)

    result = jax.value_and_grad(total, allow_int=True)(params)
    return result, lists(model, documents)

  results = []
  for shape in ((1, 1), mesh):
    with jax.set_mesh(mesh_of(shape)):
      run, params = compiled(both, make_model(FULL))
      results.append(jax.block_until_ready(run(params, batch())))
  (one, one_lists), (many, many_lists) = jax.tree.map(np.asarray, results)
  for x, y in zip(jax.tree.leaves(many), jax.tree.leaves(one)):
    if x.dtype == np.float32:
      assert np.abs(x - y).max() <= 1e-5 * (1 + np.abs(y).max())
  np.testing.assert_array_equal(many_lists[0], one_lists[0])
  np.testing.assert_array_equal(one_lists[0][0], ranked[Ranking.FULL][0])
  np.testing.assert_allclose(many_lists[1], one_lists[1], atol=1e-5)


def test_the_key_decides_dropout_and_masked_levels():
  def loss_with(model, key):
    return model.loss(batch(), bce, nnx.Rngs(dropout=key))

  keys = [jax.random.key(i) for i in (0, 1)]
  losses = {}
  with jax.set_mesh(mesh_of()):
    for masked, rate in ((0.5, 0.0), (0.0, 0.2), (0.0, 0.0)):
      model = make_model(HBGLConfig(masked=masked), rate=rate)
      run, params = compiled(loss_with, model)
      result = [float(run(params, key)) for key in (*keys, keys[0])]
      assert result[0] == result[2]
      losses[masked, rate] = result
    plain = float(compiled(loss_of, make_model())[0](params, batch()))
  assert losses[0.0, 0.0][0] == losses[0.0, 0.0][1]
  assert losses[0.0, 0.0][0] == pytest.approx(plain, rel=1e-6)
  for case in ((0.5, 0.0), (0.0, 0.2)):
    assert len({*losses[case], plain}) == 3


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
  with jax.set_mesh(mesh_of()):
    model = make_model(config, of=chain, n_labels=20)
    run, params = compiled(
      lambda m, x: (loss_of(m, x), m.features(x).scores_BL[:, :20]), model
    )
    loss, scores = run(params, documents)
  assert model.head.n_levels == 20
  assert np.isfinite(loss) and np.isfinite(scores).all()
  assert len(np.unique(scores)) == 40
