"""Our GRU against torch's: states and gradients."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import DATA, LABEL
from xjax.networks.encoders.bigru import BiGRU, BiGRUConfig

pytestmark = pytest.mark.parity

T, B, D, H = 9, 4, 6, 5
LENGTHS = np.array([9, 7, 2, 1])


def torch_states(x_BTD, weight_BTD, model):
  """States and gradients of torch.nn.GRU with our parameters."""
  import torch
  from torch.nn.utils import rnn

  peer = torch.nn.GRU(D, H, batch_first=True, bidirectional=True)
  ours = {'': model.forwards[0], '_reverse': model.backwards[0]}
  with torch.no_grad():
    for suffix, layer in ours.items():
      given = {
        'weight_ih_l0': np.asarray(layer.kernel[...]).T,
        'weight_hh_l0': np.asarray(layer.recurrent[...]).T,
        'bias_ih_l0': np.asarray(layer.bias[...]),
        # Its second biases of r and z only add to the first.
        'bias_hh_l0': np.pad(layer.candidate_bias[...], (2 * H, 0)),
      }
      for name, value in given.items():
        getattr(peer, name + suffix).copy_(torch.tensor(value))
  x = torch.tensor(x_BTD, requires_grad=True)
  packed = rnn.pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True)
  h, _ = rnn.pad_packed_sequence(peer(packed)[0], batch_first=True)
  (h * torch.tensor(weight_BTD)).sum().backward()
  gradients = {
    suffix: {
      'kernel': getattr(peer, f'weight_ih_l0{suffix}').grad.numpy().T,
      'bias': getattr(peer, f'bias_ih_l0{suffix}').grad.numpy(),
      'recurrent': getattr(peer, f'weight_hh_l0{suffix}').grad.numpy().T,
      'candidate_bias': getattr(peer, f'bias_hh_l0{suffix}').grad.numpy()[
        2 * H :
      ],
    }
    for suffix in ours
  }
  return h.detach().numpy(), x.grad.numpy(), gradients


def test_states_and_gradients_are_those_of_torch():
  rng = np.random.default_rng(0)
  x_BTD = rng.normal(size=(B, T, D)).astype(np.float32)
  weight_BTD = rng.normal(size=(B, T, 2 * H)).astype(np.float32)
  model = BiGRU(D, BiGRUConfig(units=H), rngs=nnx.Rngs(0))
  for layer in (model.forwards[0], model.backwards[0]):
    layer.bias[...] = jnp.asarray(rng.normal(size=3 * H), jnp.float32)
    layer.candidate_bias[...] = jnp.asarray(rng.normal(size=H), jnp.float32)
  real_TB = np.arange(T)[:, None] < LENGTHS
  graphdef, params = nnx.split(model)

  def states(params, x_BTD):
    h_TBD = nnx.merge(graphdef, params)(
      x_BTD.swapaxes(0, 1), jnp.asarray(real_TB), None
    )
    return h_TBD.swapaxes(0, 1)

  one = np.array(jax.devices()[:1]).reshape(1, 1)
  with jax.set_mesh(jax.sharding.Mesh(one, (DATA, LABEL))):
    found = states(params, jnp.asarray(x_BTD))
    d_params, d_x = jax.grad(
      lambda p, x: (states(p, x) * weight_BTD).sum(), argnums=(0, 1)
    )(params, jnp.asarray(x_BTD))
  expected, expected_x, gradients = torch_states(x_BTD, weight_BTD, model)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  np.testing.assert_allclose(d_x, expected_x, 1e-5, 1e-5)
  for name, suffix in (('forwards', ''), ('backwards', '_reverse')):
    for parameter, gradient in gradients[suffix].items():
      np.testing.assert_allclose(
        d_params[name][0][parameter][...], gradient, 1e-5, 1e-5, err_msg=name
      )
