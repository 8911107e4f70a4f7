"""Our encoders against those of torch: values and gradients."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import on_mesh
from xjax.networks.encoders.bigru import BiGRU, BiGRUConfig
from xjax.networks.encoders.bilstm import BiLSTM, BiLSTMConfig
from xjax.networks.encoders.cnn import CNN, CNNConfig

pytestmark = pytest.mark.parity

T, B, D, H, F = 9, 4, 6, 5, 7
LENGTHS = np.array([9, 7, 2, 1])
REAL_TB = np.arange(T)[:, None] < LENGTHS


@pytest.fixture(autouse=True)
def mesh():
  with on_mesh():
    yield


def draw(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def random(model):
  """The model taken apart, every parameter a random one."""
  graphdef, params = nnx.split(model)
  rng = np.random.default_rng(2)
  return graphdef, jax.tree.map(
    lambda x: jnp.asarray(rng.normal(size=x.shape) / 2, jnp.float32), params
  )


def ours(graphdef, params, x_BTD, weight_BTF):
  """States, and gradients of their weighted sum, of an encoder."""

  def loss(params, x_BTD):
    encoder = nnx.merge(graphdef, params)
    h_TBF = encoder(x_BTD.swapaxes(0, 1), jnp.asarray(REAL_TB), None)
    h_BTF = h_TBF.swapaxes(0, 1)
    return (h_BTF * weight_BTF).sum(), h_BTF

  run = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
  (_, h_BTF), gradients = jax.jit(run)(params, jnp.asarray(x_BTD))
  return h_BTF, *gradients


def alike(found, expected, what='', rtol=1e-5):
  np.testing.assert_allclose(found, expected, rtol, 1e-5, err_msg=what)


@pytest.mark.parametrize('width', [1, 3, 8])
@pytest.mark.filterwarnings(
  # torch's, of even widths.
  "ignore:Using padding='same' with even kernel lengths:UserWarning"
)
def test_cnn_is_that_of_torch(width):
  import torch

  graphdef, params = random(CNN(D, CNNConfig(F, width, 0.0), rngs=nnx.Rngs(0)))
  x_BTD, weight_BTF = draw(B, T, D), draw(B, T, F, seed=1)
  h_BTF, d_params, d_x_BTD = ours(graphdef, params, x_BTD, weight_BTF)
  peer = torch.nn.Conv1d(D, F, width, padding='same')
  with torch.no_grad():
    # [w, D, F] here, [F, D, w] there.
    kernel = torch.tensor(np.asarray(params['kernel'][...]))
    peer.weight.copy_(kernel.permute(2, 1, 0))
    peer.bias.copy_(torch.tensor(np.asarray(params['bias'][...])))
  x = torch.tensor(x_BTD, requires_grad=True)
  for b, n in enumerate(LENGTHS):  # each without padding
    h = torch.tanh(peer(x[b : b + 1, :n].transpose(1, 2))).transpose(1, 2)[0]
    (h * torch.tensor(weight_BTF[b, :n])).sum().backward()
    alike(h_BTF[b, :n], h.detach())
    assert not h_BTF[b, n:].any()
  alike(d_x_BTD, x.grad)
  alike(d_params['kernel'][...], peer.weight.grad.permute(2, 1, 0))
  alike(d_params['bias'][...], peer.bias.grad)


# Our names, and those of torch without the direction; their gates are in one
# order. torch's second biases of r and z only add to the first.
ARRAYS = {
  'kernel': 'weight_ih_l0',
  'recurrent': 'weight_hh_l0',
  'bias': 'bias_ih_l0',
  'candidate_bias': 'bias_hh_l0',
}
SIDES = {'': 'forwards', '_reverse': 'backwards'}


def torch_layer(kind, layers, dim):
  """torch's layer of both directions with our parameters, and its start."""
  import torch

  peer = getattr(torch.nn, kind)(dim, H, batch_first=True, bidirectional=True)
  with torch.no_grad():
    for suffix, layer in layers.items():
      for ours, theirs in ARRAYS.items():
        target = getattr(peer, theirs + suffix)
        value = np.zeros(target.shape, np.float32)
        if ours in layer:
          part = np.asarray(layer[ours][...]).T
          value[len(value) - len(part) :] = part
        target.copy_(torch.tensor(value))
  firsts = [
    torch.stack(
      [
        torch.tensor(np.asarray(layer[name][...])).repeat(B, 1)
        for layer in layers.values()
      ]
    )
    for name in ('first_state', 'first_cell')
    if kind == 'LSTM'
  ]
  return peer, tuple(x.requires_grad_() for x in firsts)


@pytest.mark.parametrize(
  ('kind', 'layers'), [('GRU', 1), ('GRU', 3), ('LSTM', 1)]
)
def test_recurrent_layers_are_those_of_torch(kind, layers):
  import torch
  from torch.nn.utils import rnn

  if kind == 'GRU':
    config = BiGRUConfig(units=H, layers=layers, dropout=0.0)
    encoder = BiGRU(D, config, rngs=nnx.Rngs(0))
  else:
    encoder = BiLSTM(D, BiLSTMConfig(units=H, dropout=0.0), rngs=nnx.Rngs(0))
  graphdef, params = random(encoder)
  x_BTD, weight_BTF = draw(B, T, D), draw(B, T, 2 * H, seed=1)
  h_BTF, d_params, d_x_BTD = ours(graphdef, params, x_BTD, weight_BTF)
  peers = [
    torch_layer(kind, {s: params[side][i] for s, side in SIDES.items()}, dim)
    for i, dim in enumerate((D, 2 * H, 2 * H)[:layers])
  ]
  given = x = torch.tensor(x_BTD, requires_grad=True)
  for i, (peer, firsts) in enumerate(peers):
    packed = rnn.pack_padded_sequence(
      x, torch.tensor(LENGTHS), batch_first=True
    )
    start = (firsts,) if firsts else ()
    h, _ = rnn.pad_packed_sequence(peer(packed, *start)[0], batch_first=True)
    x = x + h if i else h  # a residual from the second layer on
  (x * torch.tensor(weight_BTF)).sum().backward()
  alike(h_BTF, x.detach(), rtol=1e-7 if layers == 1 else 1e-5)
  alike(d_x_BTD, given.grad)
  for i, (peer, firsts) in enumerate(peers):
    for at, (suffix, side) in enumerate(SIDES.items()):
      layer = d_params[side][i]
      for name, theirs in ARRAYS.items():
        if name in layer:
          gradient = layer[name][...]
          expected = getattr(peer, theirs + suffix).grad.numpy().T
          alike(gradient, expected[..., -gradient.shape[-1] :], name)
      for name, first in zip(('first_state', 'first_cell'), firsts):
        alike(layer[name][...], first.grad[at].sum(0), name)
