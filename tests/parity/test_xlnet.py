"""Compares our XLNet with one in torch, written here, and with transformers.

The one written here follows Yang et al. 2019 and Dai et al. 2019, token by
token, without a shift of scores.
"""

import json

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from xjax.core.mesh import DATA, LABEL
from xjax.data.text.subwords import Subwords
from xjax.networks.encoders.xlnet import XLNet, XLNetConfig
from xjax.networks.pretrained.architecture import architecture_of
from xjax.networks.pretrained.convert import (
  from_hugging_face,
  parameter_shapes,
  to_hugging_face,
)
from xjax.networks.pretrained.model_folder import (
  ModelFolder,
  write_model_folder,
)
from xjax.run.export import tokenizer_files
from xjax.train.parameters import by_path, from_paths

pytestmark = pytest.mark.parity

T, B, V, D, HEADS, LAYERS = 9, 4, 50, 16, 4, 2
LENGTHS = np.array([9, 7, 2, 1])
CONFIG = {
  'model_type': 'xlnet',
  'vocab_size': V,
  'd_model': D,
  'n_layer': LAYERS,
  'n_head': HEADS,
  'd_inner': 24,
}
ACTIVATIONS = ('gelu', 'gelu_new', 'relu')


def random_tensors(**fields):
  """Returns Hugging Face's tensors, all of which matter."""
  architecture = architecture_of(CONFIG | fields, 'c')
  rng = np.random.default_rng(0)
  params = {
    path: rng.normal(float(path.endswith('scale')), 0.3, shape)
    for path, shape in parameter_shapes(architecture).items()
  }
  return architecture, to_hugging_face(params, architecture, 'ours')


def documents():
  ids_BT = np.random.default_rng(1).integers(5, V, (B, T))
  real_BT = np.arange(T) < LENGTHS[:, None]
  return np.where(real_BT, ids_BT, 5), real_BT


def on_one_device():
  devices = np.array(jax.devices()[:1]).reshape(1, 1)
  return jax.set_mesh(jax.sharding.Mesh(devices, (DATA, LABEL)))


def our_states(graphdef, params, ids_BT, real_BT):
  encoder = nnx.merge(graphdef, params)
  return encoder.states(jnp.asarray(ids_BT.T), jnp.asarray(real_BT.T), None)


def ours(architecture, params):
  def build():
    return XLNet(architecture, XLNetConfig(), rngs=nnx.Rngs(0))

  graphdef, like = nnx.split(nnx.eval_shape(build))
  leaves = {
    path.removeprefix('encoder/'): jnp.asarray(x)
    for path, x in params.items()
    if path.startswith('encoder/')
  }
  return graphdef, from_paths(like, leaves)


def place(difference: int):
  """Returns the sinusoids of one difference of positions."""
  import torch

  angles = [difference / 10_000 ** (2 * i / D) for i in range(D // 2)]
  return torch.tensor([np.sin(x) for x in angles] + [np.cos(x) for x in angles])


def attention(tensors, name, h_TD):
  """Returns the attention of one document, before the output kernel."""
  import torch

  q, k, v, r = (tensors[f'{name}.{x}'] for x in 'qkvr')
  u, bias, w = (tensors[f'{name}.r_{x}_bias'] for x in 'wrs')
  rows = []
  for i, h in enumerate(h_TD):
    query = torch.einsum('x,xnd->nd', h, q)
    scores = []
    for j, other in enumerate(h_TD):
      key = torch.einsum('x,xnd->nd', other, k)
      at = torch.einsum('x,xnd->nd', place(i - j).float(), r)
      # Only [CLS], the last token, is in a segment of its own.
      differs = int((i == len(h_TD) - 1) != (j == len(h_TD) - 1))
      segment = tensors[f'{name}.seg_embed'][differs]
      score = (query + u) * key + (query + bias) * at + (query + w) * segment
      scores.append(score.sum(1) / (D // HEADS) ** 0.5)
    weights = torch.stack(scores, 1).softmax(1)
    values = torch.einsum('tx,xnd->tnd', h_TD, v)
    rows.append(torch.einsum('nt,tnd->nd', weights, values))
  return torch.stack(rows)


def torch_states(tensors, ids_T, activation):
  """Returns the states of one document: the embeddings, then each layer."""
  import torch
  from torch.nn import functional

  def norm(x, name):
    weight, bias = (tensors[f'{name}.{x}'] for x in ('weight', 'bias'))
    return functional.layer_norm(x, (D,), weight, bias, 1e-12)

  def dense(x, name):
    return x @ tensors[f'{name}.weight'].T + tensors[f'{name}.bias']

  act = {
    'gelu': functional.gelu,
    'gelu_new': lambda x: functional.gelu(x, approximate='tanh'),
    'relu': functional.relu,
  }[activation]
  states = [tensors['word_embedding.weight'][torch.tensor(ids_T)]]
  for layer in range(LAYERS):
    name, h = f'layer.{layer}.rel_attn', states[-1]
    mixed = attention(tensors, name, h)
    out = torch.einsum('tnd,xnd->tx', mixed, tensors[f'{name}.o'])
    h = norm(h + out, f'{name}.layer_norm')
    name = f'layer.{layer}.ff'
    out = dense(act(dense(h, f'{name}.layer_1')), f'{name}.layer_2')
    states.append(norm(h + out, f'{name}.layer_norm'))
  return states


@pytest.mark.parametrize('activation', ACTIVATIONS)
def test_states_and_gradients_are_those_of_the_paper(activation):
  import torch

  architecture, arrays = random_tensors(ff_activation=activation)
  tensors = {n: torch.tensor(x, requires_grad=True) for n, x in arrays.items()}
  ids_BT, real_BT = documents()
  weights = np.random.default_rng(2).normal(size=(LAYERS + 1, B, T, D))
  weights = (weights * real_BT[:, :, None] / weights.size).astype(np.float32)
  expected, total = [], 0
  for b, length in enumerate(LENGTHS):
    expected.append(torch_states(tensors, ids_BT[b, :length], activation))
    for state, weight in zip(expected[-1], weights):
      total += (state * torch.tensor(weight[b, :length])).sum()
  total.backward()
  expected_grads = from_hugging_face(
    {name: x.grad.numpy() for name, x in tensors.items()}, architecture, 'it'
  )

  graphdef, params = ours(
    architecture, from_hugging_face(arrays, architecture, 'it')
  )

  def loss(params):
    states = our_states(graphdef, params, ids_BT, real_BT)
    return sum((h * w).sum() for h, w in zip(states, weights)), states

  with on_one_device():
    grads, states = jax.jit(jax.grad(loss, has_aux=True))(params)
  assert len(states) == LAYERS + 1
  for layer, state in enumerate(states):
    for b, length in enumerate(LENGTHS):
      wanted = expected[b][layer].detach().numpy()
      np.testing.assert_allclose(state[b, :length], wanted, 0, 1e-5)
  grads = by_path(grads)
  assert {f'encoder/{path}' for path in grads} == set(expected_grads)
  for path, grad in grads.items():
    wanted = expected_grads[f'encoder/{path}']
    assert np.abs(wanted).max() > 1e-5, path
    np.testing.assert_allclose(grad, wanted, 1e-5, 1e-5, err_msg=path)


def random_peer(kind='XLNetModel', **fields):
  """Returns a tiny model of transformers, all of whose weights matter."""
  import torch
  import transformers

  torch.manual_seed(0)
  sizes = {n: x for n, x in CONFIG.items() if n != 'model_type'}
  config = transformers.XLNetConfig(**sizes | fields)
  peer = getattr(transformers, kind)(config).eval()
  with torch.no_grad():
    for name, weight in peer.named_parameters():
      around = 1.0 if name.endswith('layer_norm.weight') else 0.0
      weight.copy_(around + 0.3 * torch.randn(weight.shape))
  return peer


def peer_inputs(side):
  """Returns ids, mask and types of documents that are padded on a side."""
  import torch

  ids_BT, real_BT = documents()
  types_BT = np.zeros_like(ids_BT)
  types_BT[np.arange(B), LENGTHS - 1] = 2  # as in XLNet's tokenizer
  types_BT[~real_BT] = 3
  if side == 'left':
    for x in (ids_BT, real_BT, types_BT):
      for row, length in zip(x, LENGTHS):
        row[:] = np.roll(row, -length)
  names = ('input_ids', 'attention_mask', 'token_type_ids')
  arrays = (ids_BT, real_BT.astype(np.float32), types_BT)
  return {name: torch.tensor(x) for name, x in zip(names, arrays)}


def peer_states(peer, side='right'):
  """Returns all states of real tokens, [layers + 1, tokens, D]."""
  import torch

  inputs = peer_inputs(side)
  with torch.no_grad():
    states = peer(**inputs, output_hidden_states=True).hidden_states
  real_BT = inputs['attention_mask'].numpy() > 0
  return np.stack([np.asarray(state)[real_BT] for state in states])


@pytest.mark.parametrize('side', ['left', 'right'])
@pytest.mark.parametrize('activation', ACTIVATIONS)
def test_states_are_those_of_transformers(activation, side, tmp_path):
  peer = random_peer(ff_activation=activation)
  peer.save_pretrained(tmp_path)
  folder = ModelFolder.at(str(tmp_path))
  ids_BT, real_BT = documents()
  with on_one_device():
    encoder = ours(folder.architecture, folder.parameters())
    states = our_states(*encoder, ids_BT, real_BT)
  states = np.stack([np.asarray(state)[real_BT] for state in states])
  np.testing.assert_allclose(states, peer_states(peer, side), 0, 1e-5)


@pytest.mark.parametrize('kind', ['LMHeadModel', 'ForSequenceClassification'])
def test_a_model_with_a_task_loads(kind, tmp_path):
  peer = random_peer(f'XLNet{kind}')
  peer.save_pretrained(tmp_path)
  params = ModelFolder.at(str(tmp_path)).parameters()
  word = peer.transformer.word_embedding.weight.detach().numpy()
  assert np.array_equal(params['encoder/embeddings/word'], word)
  has_pooler = kind == 'ForSequenceClassification'
  assert ('pooling/dense/kernel' in params) == has_pooler
  if has_pooler:
    kernel = peer.sequence_summary.summary.weight.detach().numpy().T
    assert np.array_equal(params['pooling/dense/kernel'], kernel)


@pytest.mark.parametrize('pooler', [True, False])
def test_what_is_written_transformers_loads(pooler, tmp_path):
  from transformers import AutoModel

  peer = random_peer('XLNetForSequenceClassification')
  peer.save_pretrained(tmp_path / 'from')
  folder = ModelFolder.at(str(tmp_path / 'from'))
  params = folder.parameters()
  if not pooler:
    params = {p: x for p, x in params.items() if p.startswith('encoder/')}
  write_model_folder(tmp_path / 'to', folder.config, params)
  again, info = AutoModel.from_pretrained(
    tmp_path / 'to', output_loading_info=True
  )
  # This vector stands for tokens to guess. No text has such tokens.
  assert set(info.pop('missing_keys')) == {'mask_emb'}
  summary = {f'sequence_summary.summary.{x}' for x in ('weight', 'bias')}
  assert set(info.pop('unexpected_keys')) == (summary if pooler else set())
  assert not any(info.values()), info
  states = peer_states(again.eval())
  assert np.array_equal(states, peer_states(peer.transformer))


def unigram() -> Subwords:
  """Returns a tokenizer with the parts of XLNet's."""
  words = ['the', '▁the', '▁state', 's', '▁aid', '▁', *'acdeghiorstué']
  pieces = ['<unk>', '<s>', '</s>', '<cls>', '<sep>', '<pad>', '<mask>', *words]
  vocabulary = [(piece, -float(i)) for i, piece in enumerate(pieces)]
  tokenizer = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=0))
  tokenizer.normalizer = normalizers.Sequence(
    [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
  )
  tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
  tokenizer.post_processor = processors.TemplateProcessing(
    single='$A:0 <sep>:0 <cls>:2',
    pair='$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2',
    special_tokens=[('<sep>', 4), ('<cls>', 3)],
  )
  tokenizer.add_special_tokens(pieces[:7])
  return Subwords(json.loads(tokenizer.to_str()), 'it')


def test_transformers_reads_the_tokenizer(tmp_path):
  from transformers import AutoTokenizer

  tokenizer = unigram()
  config = CONFIG | {'vocab_size': len(tokenizer)}
  architecture = architecture_of(config, 'c')
  rng = np.random.default_rng(0)
  params = {
    path: rng.normal(size=shape)
    for path, shape in parameter_shapes(architecture).items()
  }
  texts = tokenizer_files(tokenizer, architecture)
  write_model_folder(tmp_path / 'm', config, params, texts)
  peer = AutoTokenizer.from_pretrained(tmp_path / 'm')
  texts = ['The States aided', 'Là-bas', '', 'state ' * 20]
  for most in (3, 6, 64):
    wanted = peer(texts, truncation=True, max_length=most)
    ids = [x.tolist() for x in tokenizer.encode_all(texts, most)]
    assert wanted['input_ids'] == ids
    assert all(x[-2:] == [4, 3] for x in ids)
    assert all(types[-1] == 2 for types in wanted['token_type_ids'])
  short, _ = peer(['', 'state'], padding=True)['input_ids']
  assert short[0] == tokenizer.pad_id and short[-2:] == [4, 3]
  assert (peer.cls_token, peer.sep_token) == ('<cls>', '<sep>')
