"""Our encoders and label-wise attention against others': values, gradients."""

import os
import pathlib
import subprocess

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import DATA, LABEL
from xjax.networks.encoders.bigru import BiGRU, BiGRUConfig
from xjax.networks.encoders.cnn import CNN, CNNConfig
from xjax.networks.heads.head import HeadInputs, TokenFeatures
from xjax.networks.heads.label_attention import LabelAttentionConfig

T, B, D, H, F, L = 9, 4, 6, 5, 7, 11
LENGTHS = np.array([9, 7, 2, 1])
REAL_TB = np.arange(T)[:, None] < LENGTHS


@pytest.fixture(autouse=True)
def mesh():
  one = np.array(jax.devices()[:1]).reshape(1, 1)
  with jax.set_mesh(jax.sharding.Mesh(one, (DATA, LABEL))):
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


@pytest.mark.parity
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


def torch_layer(given, dim):
  """torch.nn.GRU of both directions with our parameters."""
  import torch

  peer = torch.nn.GRU(dim, H, batch_first=True, bidirectional=True)
  with torch.no_grad():
    for suffix, layer in given.items():
      values = {
        'weight_ih_l0': np.asarray(layer['kernel'][...]).T,
        'weight_hh_l0': np.asarray(layer['recurrent'][...]).T,
        'bias_ih_l0': np.asarray(layer['bias'][...]),
        # Its second biases of r and z only add to the first.
        'bias_hh_l0': np.pad(layer['candidate_bias'][...], (2 * H, 0)),
      }
      for name, value in values.items():
        getattr(peer, name + suffix).copy_(torch.tensor(value))
  return peer


@pytest.mark.parity
@pytest.mark.parametrize('layers', [1, 3])
def test_bigru_is_that_of_torch(layers):
  import torch
  from torch.nn.utils import rnn

  config = BiGRUConfig(units=H, layers=layers, dropout=0.0)
  graphdef, params = random(BiGRU(D, config, rngs=nnx.Rngs(0)))
  x_BTD, weight_BTF = draw(B, T, D), draw(B, T, 2 * H, seed=1)
  h_BTF, d_params, d_x_BTD = ours(graphdef, params, x_BTD, weight_BTF)
  sides = {'': 'forwards', '_reverse': 'backwards'}
  peers = [
    torch_layer({s: params[side][i] for s, side in sides.items()}, dim)
    for i, dim in enumerate((D, 2 * H, 2 * H)[:layers])
  ]
  given = x = torch.tensor(x_BTD, requires_grad=True)
  for i, peer in enumerate(peers):
    packed = rnn.pack_padded_sequence(
      x, torch.tensor(LENGTHS), batch_first=True
    )
    h, _ = rnn.pad_packed_sequence(peer(packed)[0], batch_first=True)
    x = x + h if i else h  # a residual from the second layer on
  (x * torch.tensor(weight_BTF)).sum().backward()
  alike(h_BTF, x.detach(), rtol=1e-7 if layers == 1 else 1e-5)
  alike(d_x_BTD, given.grad)
  for i, peer in enumerate(peers):
    for suffix, side in sides.items():
      for name, theirs in (
        ('kernel', 'weight_ih_l0'),
        ('recurrent', 'weight_hh_l0'),
        ('bias', 'bias_ih_l0'),
        ('candidate_bias', 'bias_hh_l0'),
      ):
        gradient = getattr(peer, theirs + suffix).grad.numpy().T
        if name == 'candidate_bias':
          gradient = gradient[2 * H :]
        alike(d_params[side][i][name][...], gradient, f'{side} {i} {name}')


@pytest.mark.peers
def test_label_attention_is_that_of_libmultilabel(tmp_path):
  head = LabelAttentionConfig(chunk=4).build(HeadInputs(D, L), nnx.Rngs(0))
  graphdef, params = random(head)
  hidden_BTD, weight_BL = draw(B, T, D), draw(B, L, seed=1)
  rows = {name: value[:L] for name, value in nnx.to_pure_dict(params).items()}
  given, out = tmp_path / 'in.npz', tmp_path / 'out.npz'
  np.savez(given, hidden=hidden_BTD, weight=weight_BL, **rows)
  python = pathlib.Path(os.environ['XJAX_PEERS_DIR']) / 'bin' / 'python'
  script = pathlib.Path(__file__).parent / 'attention_peer.py'
  subprocess.run([python, script, given, out], check=True, timeout=300)
  theirs = np.load(out, allow_pickle=False)

  def loss(rows, hidden_BTD):
    # It has no mask: all documents are of one length.
    features = TokenFeatures(hidden_BTD, jnp.full(B, T, jnp.int32))
    logits_BL = nnx.merge(graphdef, params).logits(features, rows)
    return (logits_BL * weight_BL).sum(), logits_BL

  run = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
  (_, logits_BL), (d_rows, d_hidden_BTD) = run(rows, jnp.asarray(hidden_BTD))
  alike(logits_BL, theirs['logits'])
  alike(d_hidden_BTD, theirs['d_hidden'])
  for name, gradient in d_rows.items():
    alike(gradient, theirs[f'd_{name}'], name)
