"""Compares RADAr with torch's transformer decoder: loss and gradients."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.losses.sequence import SequenceLoss
from xjax.networks.heads.generation.label_sequences import label_sequences
from xjax.networks.heads.generation.radar import RadarConfig
from xjax.networks.heads.head import HeadInputs, TokenFeatures

pytestmark = pytest.mark.parity

B, T, D, L, HEADS, LAYERS = 4, 7, 12, 9, 3, 2
LENGTHS = np.array([7, 5, 2, 1], np.int32)
LABELS = [Label(str(x), parents=(str(x - 4),) * (x > 3)) for x in range(L)]
POSITIVES = np.array([[8, 0, 4], [4, PAD, PAD], [1, 2, 3], [PAD] * 3], np.int32)
FROZEN = 'index', 'level', 'rank'
GAMMA, SMOOTHING = 2.0, 0.1


def hidden_states():
  hidden = np.random.default_rng(0).normal(size=(B, T, D)).astype(np.float32)
  return np.where((np.arange(T) < LENGTHS[:, None])[..., None], hidden, 0)


def ours():
  """Loss, gradients, parameters and sequences of a head of random weights."""
  none_L = np.zeros(L, bool)
  inputs = HeadInputs(
    D, L, None, none_L, none_L, D, hierarchy=Hierarchy.of(LABELS)
  )
  config = RadarConfig(heads=HEADS, layers=LAYERS, expansion=2, dropout=0.0)
  head = config.build(inputs, nnx.Rngs(0))
  graphdef, frozen, params = nnx.split(head, lambda p, _: p[-1] in FROZEN, ...)
  rng = np.random.default_rng(2)
  params = jax.tree.map(
    lambda x: jnp.asarray(rng.normal(size=x.shape) / 2, jnp.float32), params
  )

  @jax.jit
  def loss(params, hidden_BTD):
    head = nnx.merge(graphdef, frozen, params)
    features = TokenFeatures(hidden_BTD, jnp.asarray(LENGTHS))
    gold = jnp.asarray(POSITIVES), jnp.ones(B, bool)
    rule = SequenceLoss(GAMMA, SMOOTHING)
    return head.loss(head.prepare_loss(features), *gold, rule)

  value, gradients = jax.value_and_grad(loss, (0, 1))(
    params, jnp.asarray(hidden_states())
  )
  rows = (jnp.asarray(POSITIVES), head.rank[...], head.level[...])
  sequences = label_sequences(*rows, L, head.n_levels)
  parts = sequences.inputs, sequences.targets, sequences.real
  pure = nnx.to_pure_dict(gradients[0]), gradients[1], nnx.to_pure_dict(params)
  return value, *pure, [np.asarray(x) for x in parts]


def paths_of_torch():
  """Our path -> (torch's path, rows of its matrix) of a layer's weights."""
  third = [slice(i * D, (i + 1) * D) for i in range(3)]
  every, both = slice(None), slice(D, 3 * D)
  paths = {
    'inner': ('linear1.{}', every),
    'outer': ('linear2.{}', every),
    'own_query': ('self_attn.in_proj_{}', third[0]),
    'own_pairs': ('self_attn.in_proj_{}', both),
    'own_output': ('self_attn.out_proj.{}', every),
    'token_query': ('multihead_attn.in_proj_{}', third[0]),
    'token_pairs': ('multihead_attn.in_proj_{}', both),
    'token_output': ('multihead_attn.out_proj.{}', every),
  }
  norms = {i: (f'norm{i + 1}.{{}}', every) for i in range(3)}
  return paths, norms


def pairs_of(layer, tensors):
  """Yields (our array, the part of torch's tensor that it stands for)."""
  paths, norms = paths_of_torch()
  for name, (path, rows) in paths.items():
    yield layer[name]['kernel'], tensors[path.format('weight')][rows].T
    yield layer[name]['bias'], tensors[path.format('bias')][rows]
  for i, (path, _) in norms.items():
    yield layer['norms'][i]['scale'], tensors[path.format('weight')]
    yield layer['norms'][i]['bias'], tensors[path.format('bias')]


def theirs(params, inputs, targets, real):
  """The loss in torch, and all gradients beside the arrays they belong to."""
  import torch

  def leaf(x):
    return torch.tensor(np.asarray(x), requires_grad=True)

  layer = torch.nn.TransformerDecoderLayer(
    D, HEADS, 2 * D, dropout=0.0, batch_first=True
  )
  decoder = torch.nn.TransformerDecoder(layer, LAYERS)
  for number, module in enumerate(decoder.layers):
    tensors = dict(module.named_parameters())
    with torch.no_grad():
      for value, part in pairs_of(params['decoder']['layers'][number], tensors):
        part.copy_(torch.tensor(np.asarray(value)))
  tables = ('embedding', 'other_embedding', 'kernel', 'other_kernel')
  tensors = {
    name: leaf(params[name]) for name in (*tables, 'bias', 'other_bias')
  }
  hidden = leaf(hidden_states())
  whole = {
    name: torch.cat([tensors[name][:L], tensors[f'other_{name}']])
    for name in ('embedding', 'kernel', 'bias')
  }
  steps = inputs.shape[1]
  states = decoder(
    whole['embedding'][torch.tensor(inputs).long()],
    hidden,
    tgt_mask=torch.nn.Transformer.generate_square_subsequent_mask(steps),
    memory_key_padding_mask=torch.arange(T) >= torch.tensor(LENGTHS)[:, None],
  )
  logits = states @ whole['kernel'].T + whole['bias']
  nats = torch.nn.functional.cross_entropy(
    logits.transpose(1, 2),
    torch.tensor(np.where(real, targets, -100)).long(),
    ignore_index=-100,
    label_smoothing=SMOOTHING,
    reduction='none',
  )
  loss = ((1 - torch.exp(-nats)) ** GAMMA * nats).sum()
  loss.backward()
  layers = [
    {name: x.grad for name, x in module.named_parameters()}
    for module in decoder.layers
  ]
  grads = {name: x.grad for name, x in tensors.items()}
  return loss.detach(), grads, layers, hidden.grad


def test_decoder_and_loss_are_those_of_torch():
  with jax.set_mesh(make_mesh(MeshConfig(), 1)):
    loss, gradients, d_hidden, params, sequences = ours()
  wanted, grads, layers, d_wanted = theirs(params, *sequences)
  np.testing.assert_allclose(loss, wanted, rtol=1e-5)
  np.testing.assert_allclose(d_hidden, d_wanted, 1e-5, 1e-5)
  compared = 0
  for name, grad in grads.items():
    np.testing.assert_allclose(gradients[name], grad, 1e-5, 1e-5, name)
    compared += 1
  for number, tensors in enumerate(layers):
    for x, y in pairs_of(gradients['decoder']['layers'][number], tensors):
      np.testing.assert_allclose(x, y, 1e-5, 1e-5)
      compared += 1
  assert compared == len(jax.tree.leaves(gradients))
