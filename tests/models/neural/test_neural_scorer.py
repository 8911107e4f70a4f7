import functools

from flax import nnx
import jax
import numpy as np
import pytest

from tests.fixtures.networks import mesh_of
from xjax.core.mesh import put_batch
from xjax.core.ranking import Query
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.schema import LabelSpace
from xjax.losses.bce import bce
from xjax.models.contract import Config, Run
from xjax.models.eval_config import EvalConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.neural_plan import plan_neural
from xjax.models.neural.neural_scorer import NeuralScorer
from xjax.networks.batch import TokenBatch
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.encoders.recurrent_cells import BiGRUConfig
from xjax.networks.heads.label_attention import LabelAttentionConfig

L, VOCABULARY = 150, 40
MESHES = [(1, 1), (8, 1), (2, 4)]
MODEL = NeuralModel(
  EmbeddingConfig(dim=6, init_scale=1.0),
  BiGRUConfig(units=5),
  head=LabelAttentionConfig(chunk=64),
)
SPACE = LabelSpace((), np.arange(L, dtype=np.int32), 500, L)


def draw():
  rng = np.random.default_rng(0)
  lengths = np.array([7, 6, 1, 3, 7, 2, 5, 0], np.int32)
  tokens_BT = rng.integers(2, VOCABULARY, (8, 7)).astype(np.int32)
  tokens_BT[np.arange(7) >= lengths[:, None]] = 0
  positives = rng.integers(0, L, (8, 4)).astype(np.int32)
  positives[:, 3] = PAD
  return TokenBatch(
    tokens_BT=tokens_BT,
    lengths_B=lengths,
    positives_BP=positives,
    mask_B=lengths > 0,
    doc_B=np.arange(8, dtype=np.int32),
  )


def scorer(mesh, kind=NeuralScorer, reader=None, parts=(), **config):
  config = Config(**{'model': MODEL, **config})
  plan = plan_neural(config, SPACE, VOCABULARY, mesh)
  ours = kind(Run(config, None), plan, mesh, L, reader, *parts)
  with jax.set_mesh(mesh):
    ours.params = plan.init(jax.random.key(0)).params
  return ours


def ranker(ours, k, **filters):
  return ours.batch_ranker(Documents([''] * 8), Query(k, **filters))


def topk(ours, batch, k, **filters):
  lists = ranker(ours, k, **filters)(batch)
  return lists.ids_GNK, lists.scores_GNK


def differentiated(mesh):
  """(jitted function of parameters and batch, parameters) on a mesh."""
  ours = scorer(mesh)

  @jax.jit
  @jax.value_and_grad
  def run(params, batch):
    rngs = nnx.Rngs(dropout=jax.random.key(0))
    return nnx.merge(ours.plan.graphdef, params).loss(batch, bce, rngs)

  return run, ours.params


@functools.cache
def gradients(shape):
  """Loss and gradients on a mesh, with dropout."""
  mesh = mesh_of(*shape)
  run, params = differentiated(mesh)
  with jax.set_mesh(mesh):
    found = jax.block_until_ready(run(params, put_batch(draw(), mesh)))
  return jax.tree.map(np.asarray, found)


@pytest.mark.thorough
@pytest.mark.parametrize('mesh', MESHES[1:])
def test_meshes_agree(mesh):
  loss, d_params = gradients(mesh)
  expected, d_expected = gradients((1, 1))
  np.testing.assert_allclose(loss, expected, rtol=1e-5)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5),
    d_params,
    d_expected,
  )


@pytest.mark.parametrize('mesh', MESHES[1:])
def test_no_device_sees_the_documents_of_others(mesh):
  mesh = mesh_of(*mesh)
  run, params = differentiated(mesh)
  with jax.set_mesh(mesh):
    text = run.lower(params, put_batch(draw(), mesh)).compile().as_text()
  assert 'all-reduce' in text  # the gradients' sums
  for exchange in ('all-gather', 'all-to-all', 'collective-permute'):
    assert exchange not in text


@pytest.mark.parametrize('mesh', MESHES[1:])
def test_scorers_agree(mesh):
  masks = (np.arange(L + 9) % 2 == 0, np.arange(L + 9) >= L)
  ids, scores = topk(scorer(mesh_of(*mesh)), draw(), 6, slices=masks)
  expected = topk(scorer(mesh_of(1, 1)), draw(), 6, slices=masks)
  assert isinstance(ids, np.ndarray) and ids.shape == (3, 8, 6)
  np.testing.assert_allclose(scores, expected[1], atol=1e-5)
  np.testing.assert_array_equal(ids[2], PAD)  # no label of this model
  # Where neighbours are apart, the labels are the same as well.
  padded = np.pad(expected[1][:2], [(0, 0), (0, 0), (1, 1)], constant_values=9)
  apart = np.abs(np.diff(padded)) > 1e-4
  apart = apart[..., 1:] & apart[..., :-1]
  assert apart.mean() > 0.9
  np.testing.assert_array_equal(ids[:2][apart], expected[0][:2][apart])


def test_the_recall_of_the_config_reaches_the_search():
  ours = scorer(mesh_of(), eval=EvalConfig(recall=0.5))
  options = {'k': 6, 'weights': None, 'slices': (), 'allowed': None}
  options |= {'sigmoid': (1.0, 0.0), 'measured': None}
  with jax.set_mesh(ours.mesh):
    traced = ours._topk.trace(ours.params, draw(), **options)
  assert 'recall_target=0.5' in str(traced.jaxpr)
  assert ours.selected_by == 'recall=0.5'
