"""Models on vectors of an outside encoder."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import make_mesh, put_batch
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import PAD
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.batch import TokenBatch
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.encoders.feature_vectors import Features, FeaturesConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig
from xjax.networks.text_model import build
from xjax.networks.topk import head_topk

B, T, D, L = 8, 5, 6, 7
LENGTHS = np.array([5, 1, 3, 2, 5, 4, 1, 1], np.int32)


def vectors(width: int) -> np.ndarray:
  x_BTD = np.random.default_rng(0).normal(size=(B, T, D)).astype(np.float32)
  x_BTD[np.arange(T) >= LENGTHS[:, None]] = 0
  return np.pad(x_BTD, [(0, 0), (0, width - T), (0, 0)])


def batch(width: int) -> TokenBatch:
  return TokenBatch(
    tokens_BT=None,
    lengths_B=LENGTHS,
    positives_BP=np.full((B, 4), PAD, np.int32),
    mask_B=np.ones(B, bool),
    doc_B=np.arange(B, dtype=np.int32),
    features_BTD=vectors(width),
  )


def scored(width: int, mesh) -> tuple[np.ndarray, np.ndarray]:
  """The scores of the means of vectors, and the rows of labels."""
  config = NeuralModel(
    FeaturesConfig(dim=D), NoEncoder(), MeanConfig(), OneVsAllConfig()
  )
  with jax.set_mesh(mesh):
    model = build(config, vocab_size=0, n_labels=L, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model)

    @jax.jit
    def run(params, batch):
      model = nnx.merge(graphdef, params)
      return head_topk(model.head, model.features(batch), L)

    ids, scores_GBK = run(params, put_batch(batch(width), mesh))
  out = np.zeros((B, L))
  np.put_along_axis(out, np.asarray(ids[0]), np.asarray(scores_GBK[0]), axis=1)
  return out, np.asarray(model.head.kernel[...])[:L]


@pytest.fixture(scope='module', params=[(8, 1), (2, 4)])
def mesh(request):
  return make_mesh(MeshConfig(*request.param))


@pytest.mark.parametrize('width', [T, T + 3])
def test_the_mean_of_vectors_is_scored(mesh, width):
  scores_BL, kernel_LD = scored(width, mesh)
  mean_BD = vectors(T).sum(axis=1) / LENGTHS[:, None]
  np.testing.assert_allclose(scores_BL, mean_BD @ kernel_LD.T, atol=1e-5)


def test_dropout_takes_channels_of_documents():
  features = Features(FeaturesConfig(dim=D, dropout=0.5))
  x_TBD = jnp.ones((T, 99, D))
  got_TBD = features(x_TBD, jnp.bfloat16, nnx.Rngs(dropout=0))
  assert got_TBD.dtype == jnp.bfloat16
  assert (got_TBD == got_TBD[:1]).all()
  assert 0.4 < float((got_TBD[0] == 0).mean()) < 0.6
  same_TBD = features(x_TBD, jnp.float32, None)
  np.testing.assert_array_equal(same_TBD, x_TBD)
