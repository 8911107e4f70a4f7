"""Compares the transform of a folder's language model with transformers."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.generation import KINDS, SIZES, make_model
from tests.fixtures.networks import on_mesh
from xjax.networks.pretrained.model_folder import (
  ModelFolder,
  language_transform,
)
from xjax.train.parameters import by_path

pytestmark = pytest.mark.parity


@pytest.mark.parametrize('kind', KINDS)
def test_the_transform_is_that_of_transformers(kind, tmp_path):
  import torch
  from transformers import AutoConfig, AutoModelForMaskedLM

  torch.manual_seed(0)
  config = AutoConfig.for_model(kind, **SIZES)
  peer = AutoModelForMaskedLM.from_config(config).eval()
  with torch.no_grad():
    for weight in peer.parameters():
      weight.add_(0.3 * torch.randn(weight.shape))
  peer.save_pretrained(tmp_path)
  arrays = language_transform(ModelFolder.at(str(tmp_path)))
  h = np.random.default_rng(0).normal(size=(3, 5, 16)).astype(np.float32)
  with torch.no_grad():
    if kind == 'bert':
      expected = peer.cls.predictions.transform(torch.tensor(h))
    else:
      head = peer.lm_head
      expected = head.dense(torch.tensor(h))
      expected = head.layer_norm(torch.nn.functional.gelu(expected))
  with on_mesh():
    transform = make_model(kind=kind).head.transform
    transform.norm.eps = peer.config.layer_norm_eps
    assert arrays.keys() == by_path(nnx.state(transform)).keys()
    transform.dense.kernel[...] = jnp.asarray(arrays['dense/kernel'])
    transform.dense.bias[...] = jnp.asarray(arrays['dense/bias'])
    transform.norm.scale[...] = jnp.asarray(arrays['norm/scale'])
    transform.norm.bias[...] = jnp.asarray(arrays['norm/bias'])
    result = jax.jit(lambda x: transform(x))(jnp.asarray(h))
  np.testing.assert_allclose(result, expected.numpy(), rtol=1e-5, atol=1e-5)
