"""Compares our BERT family and our XLNet with those of transformers."""

import functools
import pathlib

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.generation import KINDS, SIZES, make_model
from tests.fixtures.networks import on_mesh
from xjax.networks.encoders.bert import Bert, BertConfig
from xjax.networks.encoders.xlnet import XLNet, XLNetConfig
from xjax.networks.pretrained.convert import from_hugging_face, parameter_shapes
from xjax.networks.pretrained.model_folder import (
  ModelFolder,
  language_transform,
  write_model_folder,
)
from xjax.train.parameters import by_path, from_paths

pytestmark = pytest.mark.parity

T, B, V = 9, 4, 50
LENGTHS = np.array([9, 7, 2, 1])
REAL_BT = np.arange(T) < LENGTHS[:, None]
BERT_SIZES = SIZES | {'vocab_size': V, 'max_position_embeddings': 20}
XLNET_SIZES = {'vocab_size': V, 'd_model': 16, 'n_layer': 2, 'n_head': 4}
XLNET_SIZES['d_inner'] = 24
VARIANTS = {
  'bert': ('bert', {'hidden_act': 'gelu'}),
  'bert_new': ('bert', {'hidden_act': 'gelu_new'}),
  'bert_tanh': ('bert', {'hidden_act': 'gelu_pytorch_tanh'}),
  'bert_relu': ('bert', {'hidden_act': 'relu', 'layer_norm_eps': 0.1}),
  'roberta': ('roberta', {'type_vocab_size': 1}),
  'xlm_roberta': ('xlm-roberta', {'pad_token_id': 3}),
  'xlnet': ('xlnet', {'ff_activation': 'gelu'}),
  'xlnet_new': ('xlnet', {'ff_activation': 'gelu_new'}),
  'xlnet_relu': ('xlnet', {'ff_activation': 'relu'}),
}


def random_peer(kind: str, model='', **fields):
  """A tiny model of transformers, all of whose weights matter."""
  import torch
  import transformers

  torch.manual_seed(0)
  sizes = XLNET_SIZES if kind == 'xlnet' else BERT_SIZES
  config = transformers.AutoConfig.for_model(kind, **sizes | fields)
  if model:
    peer = getattr(transformers, model)(config)
  else:
    peer = transformers.AutoModel.from_config(config)
  with torch.no_grad():
    for name, weight in peer.named_parameters():
      is_scale = name.lower().endswith(
        ('layernorm.weight', 'layer_norm.weight')
      )
      weight.copy_(float(is_scale) + 0.3 * torch.randn(weight.shape))
  return peer.eval()


def load_peer(folder: pathlib.Path):
  """transformers' model of a folder, and what it says of loading it."""
  from transformers import AutoModel

  peer, info = AutoModel.from_pretrained(folder, output_loading_info=True)
  return peer.eval(), {name: set(keys) for name, keys in info.items()}


def ours(folder: ModelFolder):
  """Our encoder with the weights of a folder."""
  kind, config = Bert, BertConfig
  if folder.config['model_type'] == 'xlnet':
    kind, config = XLNet, XLNetConfig

  def build():
    return kind(folder.architecture, config(joined=(1, 2)), rngs=nnx.Rngs(0))

  graphdef, like = nnx.split(nnx.eval_shape(build))
  params = {
    path.removeprefix('encoder/'): jnp.asarray(x)
    for path, x in folder.parameters().items()
    if path.startswith('encoder/')
  }
  return graphdef, from_paths(like, params)


def tokens(pad_id: int):
  ids_BT = np.random.default_rng(0).integers(5, V, (B, T))
  return np.where(REAL_BT, ids_BT, pad_id)


@functools.partial(jax.jit, static_argnums=0)
def all_states(graphdef, params, ids_BT, real_BT):
  encoder = nnx.merge(graphdef, params)
  return encoder.states(ids_BT.T, real_BT.T, None)


def peer_states(peer, side='right'):
  """All states of the real tokens, each [tokens, D]."""
  import torch

  ids_BT, real_BT = tokens(peer.config.pad_token_id), REAL_BT.copy()
  types_BT = np.zeros_like(ids_BT)
  if peer.config.model_type == 'xlnet':  # as in its tokenizer
    types_BT[np.arange(B), LENGTHS - 1] = 2
    types_BT[~real_BT] = 3
  if side == 'left':
    for array in (ids_BT, real_BT, types_BT):
      for row, length in zip(array, LENGTHS):
        row[:] = np.roll(row, -length)
  states = peer(
    input_ids=torch.tensor(ids_BT),
    attention_mask=torch.tensor(real_BT.astype(np.float32)),
    token_type_ids=torch.tensor(types_BT),
    output_hidden_states=True,
  ).hidden_states
  return [state[torch.tensor(real_BT)] for state in states]


def outputs(peer):
  return np.stack([state.detach().numpy() for state in peer_states(peer)])


@pytest.mark.parametrize('variant', VARIANTS)
def test_states_and_gradients_are_those_of_transformers(variant, tmp_path):
  import torch

  kind, fields = VARIANTS[variant]
  peer = random_peer(kind, **fields)
  peer.save_pretrained(tmp_path)
  folder = ModelFolder.at(str(tmp_path))
  shape = 3, LENGTHS.sum(), 16
  weights = np.random.default_rng(1).normal(size=shape).astype(np.float32)
  weights /= weights.size
  # transformers pads XLNet's documents on the left.
  expected = peer_states(peer, 'left' if variant == 'xlnet' else 'right')
  sum((h * torch.tensor(w)).sum() for h, w in zip(expected, weights)).backward()
  expected_grads = from_hugging_face(
    {
      name: weight.grad.numpy()
      for name, weight in peer.named_parameters()
      if weight.grad is not None
    },
    folder.architecture,
    'torch',
  )
  graphdef, params = ours(folder)
  ids_BT = tokens(folder.architecture.pad_id)

  def loss(params):
    states = all_states(graphdef, params, ids_BT, REAL_BT)
    states = [state[REAL_BT] for state in states]
    return sum((h * w).sum() for h, w in zip(states, weights)), states

  with on_mesh():
    grads, states = jax.jit(jax.grad(loss, has_aux=True))(params)
  for state, wanted in zip(states, expected, strict=True):
    np.testing.assert_allclose(state, wanted.detach().numpy(), 0, 1e-5)
  grads = by_path(grads)
  assert {f'encoder/{path}' for path in grads} == set(expected_grads)
  for path, grad in grads.items():
    wanted = expected_grads[f'encoder/{path}']
    assert np.abs(wanted).max() > 1e-5
    np.testing.assert_allclose(grad, wanted, 1e-5, 1e-5, err_msg=path)


@pytest.mark.parametrize('kind', ['bert', 'roberta', 'camembert', 'xlnet'])
@pytest.mark.parametrize('pooler', [True, False])
def test_what_is_written_transformers_loads(kind, pooler, tmp_path):
  xlnet = kind == 'xlnet'
  peer = random_peer(kind, 'XLNetForSequenceClassification' if xlnet else '')
  peer.save_pretrained(tmp_path / 'from')
  folder = ModelFolder.at(str(tmp_path / 'from'))
  params = folder.parameters()
  assert {path: x.shape for path, x in params.items()} == parameter_shapes(
    folder.architecture, pooler=True
  )
  if not pooler:
    params = {p: x for p, x in params.items() if p.startswith('encoder/')}
  write_model_folder(tmp_path / 'to', folder.config, params)
  again, info = load_peer(tmp_path / 'to')
  dense = {
    f'{"sequence_summary.summary" if xlnet else "pooler.dense"}.{x}'
    for x in ('weight', 'bias')
  }
  missing, unexpected = set() if pooler else dense, set()
  if xlnet:
    # mask_emb stands for tokens to guess. No text has such tokens.
    missing, unexpected = {'mask_emb'}, dense if pooler else set()
  assert info.pop('missing_keys') == missing
  assert info.pop('unexpected_keys') == unexpected
  assert not any(info.values()), info
  assert np.array_equal(outputs(again), outputs(peer.base_model))


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
