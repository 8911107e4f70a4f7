"""Compares the network of AttentionXML with torch: logits and gradients."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import PAD
from xjax.losses.bce import bce
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.batch import TokenBatch
from xjax.networks.encoders.bilstm import BiLSTMConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.attention_mlp import AttentionMLPConfig
from xjax.networks.heads.chunks import split_head
from xjax.networks.text_model import build

pytestmark = pytest.mark.parity

T, B, D, H, L, WORDS = 9, 4, 6, 5, 11, 20
LENGTHS = np.array([9, 7, 2, 1], np.int32)
SIDES = {'': 'forwards', '_reverse': 'backwards'}


def drawn_batch():
  rng = np.random.default_rng(0)
  tokens = rng.integers(2, WORDS, (B, T)).astype(np.int32)
  tokens[np.arange(T) >= LENGTHS[:, None]] = 0
  positives = np.array([[0, 3], [4, PAD], [10, 2], [PAD, PAD]], np.int32)
  return TokenBatch(
    tokens_BT=jnp.asarray(tokens),
    lengths_B=jnp.asarray(LENGTHS),
    positives_BP=jnp.asarray(positives),
    mask_B=jnp.ones(B, bool),
    doc_B=jnp.arange(B, dtype=jnp.int32),
  )


def ours(mlp, batch):
  """Random parameters; logits, loss and gradients of the mean BCE."""
  config = NeuralModel(
    EmbeddingConfig(dim=D, dropout=0.0, word_dropout=0.0),
    BiLSTMConfig(units=H, dropout=0.0),
    head=AttentionMLPConfig(chunk=4, mlp=mlp),
  )
  model = build(config, vocab_size=WORDS, n_labels=L, rngs=nnx.Rngs(0))
  graphdef, params = nnx.split(model)
  rng = np.random.default_rng(2)
  params = jax.tree.map(
    lambda x: jnp.asarray(rng.normal(size=x.shape) / 2, jnp.float32), params
  )

  @jax.jit
  def logits(params):
    model = nnx.merge(graphdef, params)
    rows = nnx.to_pure_dict(split_head(model.head).rows)
    return model.head.logits(model.features(batch), rows)[:, :L]

  @jax.jit
  @jax.value_and_grad
  def loss(params):
    return nnx.merge(graphdef, params).loss(batch, bce) / (B * L)

  value, gradients = loss(params)
  params, gradients = map(nnx.to_pure_dict, (params, gradients))
  return logits(params_of(graphdef, params)), value, params, gradients


def params_of(graphdef, params):
  """A state with the given values, as nnx.merge wants it."""
  state = nnx.state(
    jax.eval_shape(lambda: nnx.merge(graphdef, nnx.State(params)))
  )
  nnx.replace_by_pure_dict(state, params)
  return state


def theirs(params, batch, mlp):
  """Logits, mean BCE, and torch tensors of the parameters with gradients."""
  import torch
  from torch.nn.utils import rnn

  def leaf(x):
    return torch.tensor(np.asarray(x), requires_grad=True)

  tensors = jax.tree.map(leaf, params)
  lstm = torch.nn.LSTM(D, H, batch_first=True, bidirectional=True)
  with torch.no_grad():
    for suffix, side in SIDES.items():
      layer = params['encoder'][side][0]
      for name, value in (
        ('weight_ih_l0', np.asarray(layer['kernel']).T),
        ('weight_hh_l0', np.asarray(layer['recurrent']).T),
        ('bias_ih_l0', np.asarray(layer['bias'])),
        ('bias_hh_l0', np.zeros(4 * H, np.float32)),
      ):
        getattr(lstm, name + suffix).copy_(torch.tensor(value))
  first = [
    torch.stack(
      [
        tensors['encoder'][side][0][name].repeat(B, 1)
        for side in SIDES.values()
      ]
    )
    for name in ('first_state', 'first_cell')
  ]
  x = tensors['embedding']['table'][torch.tensor(np.asarray(batch.tokens_BT))]
  packed = rnn.pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True)
  h, _ = rnn.pad_packed_sequence(lstm(packed, tuple(first))[0], True)
  head = tensors['head']
  score = h @ head['attention'][:L].T
  padding = torch.arange(T)[None] >= torch.tensor(LENGTHS)[:, None]
  alpha = score.masked_fill(padding[..., None], -torch.inf).softmax(1)
  v = alpha.transpose(1, 2) @ h
  for i in range(len(mlp) + 1):
    v = v @ head['kernels'][i] + head['biases'][i]
    v = v if i == len(mlp) else v.relu()
  logits = v[..., 0]
  targets = torch.zeros(B, L)
  for b, row in enumerate(np.asarray(batch.positives_BP)):
    targets[b, row[row != PAD]] = 1
  loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)
  loss.backward()
  gradients = jax.tree.map(lambda x: x.grad, tensors)
  for suffix, side in SIDES.items():
    layer = gradients['encoder'][side][0]
    layer['kernel'] = getattr(lstm, f'weight_ih_l0{suffix}').grad.T
    layer['recurrent'] = getattr(lstm, f'weight_hh_l0{suffix}').grad.T
    layer['bias'] = getattr(lstm, f'bias_ih_l0{suffix}').grad
  return logits.detach(), loss.detach(), gradients


@pytest.mark.parametrize('mlp', [(7,), (7, 4)])
def test_network_is_that_of_torch(mlp):
  batch = drawn_batch()
  with jax.set_mesh(make_mesh(MeshConfig(), 1)):
    logits, loss, params, gradients = ours(mlp, batch)
  expected_logits, expected_loss, expected = theirs(params, batch, mlp)
  np.testing.assert_allclose(logits, expected_logits, 1e-5, 1e-5)
  np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
  compared = jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5) or 1,
    gradients,
    expected,
  )
  # The embedding; five arrays for each direction; the head's arrays.
  assert len(jax.tree.leaves(compared)) == 1 + 10 + 1 + 2 * (len(mlp) + 1)
