"""Compares heads with a graph of labels with torch: logits and gradients."""

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
from xjax.losses.bce import bce
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import HeadInputs, TokenFeatures
from xjax.networks.heads.streaming import head_loss
from xjax.networks.heads.unified import UnifiedConfig
from xjax.networks.heads.zero_shot import ZeroShotConfig
from xjax.networks.label_graph import GraphLayers, Joining

pytestmark = pytest.mark.parity

T, B, D, E, H, L = 7, 4, 6, 5, 3, 11
LENGTHS = np.array([7, 5, 2, 1], np.int32)
POSITIVES = np.array([[0, 3], [4, PAD], [10, 2], [PAD, PAD]], np.int32)
# Two roots; a label with two parents; an orphan (5); concepts that no document
# has, above labels (11), between labels (12) and below a label (13).
# Each item has the parents of a node.
PARENTS = [[], [0], [0, 11], [12], [12, 1], [], [2], [2], [11], [8], [9]]
PARENTS += [[], [1], [10]]
SEEN = np.arange(L) % 4 < 3
HIDDEN = np.arange(L) == 3
HEADS = {
  'unified': UnifiedConfig(chunk=4, graph=GraphLayers(H)),
  'queries': UnifiedConfig(chunk=4, graph=GraphLayers(H, queries=True)),
  'add': ZeroShotConfig(chunk=4, graph=GraphLayers(H)),
  'concat': ZeroShotConfig(
    chunk=4, graph=GraphLayers(H, joining=Joining.CONCAT)
  ),
}
FROZEN = {'descriptors', 'concepts', 'seen', 'own', 'hidden'}
EDGES = {'parents', 'children'}


def hierarchy():
  labels = [
    Label(str(node), parents=tuple(map(str, above)))
    for node, above in enumerate(PARENTS)
  ]
  return Hierarchy.of(labels[:L], labels[L:])


def ours(config, hidden_BTD):
  """Random parameters; logits, loss and gradients of the BCE."""
  inputs = HeadInputs(
    dim=D,
    n_labels=L,
    bias_L=None,
    seen_L=SEEN & ~HIDDEN,
    hidden_L=HIDDEN,
    descriptor_dim=E,
    hierarchy=hierarchy(),
  )
  head = config.build(inputs, nnx.Rngs(0))
  rng = np.random.default_rng(2)
  for path, param in sorted(nnx.to_flat_state(nnx.state(head))):
    if path[-1] not in {'seen', 'own', 'hidden', *EDGES}:
      param[...] = jnp.asarray(rng.normal(size=param.shape) / 2, jnp.float32)
  graphdef, edges, params = nnx.split(head, lambda p, _: p[-1] in EDGES, ...)
  features = TokenFeatures(jnp.asarray(hidden_BTD), jnp.asarray(LENGTHS))

  @jax.jit
  def logits(params):
    head = nnx.merge(graphdef, edges, params).ready()
    rows = nnx.to_pure_dict(split_head(head).rows)
    return head.logits(head.prepare(features), rows)[:, :L]

  @jax.jit
  @jax.value_and_grad
  def loss(params):
    head = nnx.merge(graphdef, edges, params).ready()
    gold = jnp.asarray(POSITIVES), jnp.ones(B, bool)
    return head_loss(head, head.prepare(features), *gold, bce)

  value, gradients = loss(params)
  params, gradients = map(nnx.to_pure_dict, (params, gradients))
  state = nnx.state(head, lambda p, _: p[-1] not in EDGES)
  return logits(state), value, params, gradients


def graph_of(tensors, unit):
  """Returns g of all labels: two products with [V, V] matrices of means."""
  import torch

  graph = hierarchy()
  means = []
  for near in (graph.parents, graph.children):
    matrix = torch.zeros(len(graph), len(graph))
    for node in range(len(graph)):
      for other in near[node].tolist():
        matrix[node, other] = 1 / len(near[node])
    means.append(matrix)
  x = torch.cat([tensors['descriptors'][:L], tensors['graph']['concepts']])
  if unit:
    x = torch.nn.functional.normalize(x, dim=1)
  for layer in tensors['graph']['layers'].values():
    total = x @ layer['own_kernel'] + layer['bias']
    for mean, name in zip(means, ('parent_kernel', 'child_kernel')):
      total = total + mean @ x @ layer[name]
    x = total.tanh()
  return x[:L] @ tensors['graph']['kernel'] if unit else x[:L]


def unified_logits(tensors, config, h, mask):
  import torch

  rows = {name: x[:L] for name, x in tensors.items() if name in ROWS}
  e = torch.nn.functional.normalize(rows['descriptors'], dim=1)
  both = e + graph_of(tensors, True)
  own = torch.tensor(np.asarray(SEEN & ~HIDDEN, np.float32))
  query = both if config.graph.queries else e
  u = own[:, None] * rows['attention'] + query @ tensors['attention_kernel']
  w = own[:, None] * rows['output'] + both @ tensors['output_kernel']
  b = own * rows['bias'] + both @ tensors['bias_kernel'] + tensors['offset']
  alpha = (h @ u.T + mask).softmax(1)
  z = torch.einsum('btl,btd,ld->bl', alpha, h, w) + b
  unseen = tensors['unseen_scale'] * z.detach() + tensors['unseen_offset']
  return torch.where(own > 0, z, unseen)


ROWS = ('descriptors', 'attention', 'output', 'bias')


def zero_shot_logits(tensors, config, h, mask):
  import torch

  e, g = tensors['descriptors'][:L], graph_of(tensors, False)
  keys = (h @ tensors['kernel'] + tensors['bias']).tanh()
  alpha = (keys @ e.T + mask).softmax(1).transpose(1, 2)
  if config.graph.joining is Joining.CONCAT:
    x = alpha @ h @ tensors['graph_kernel'] + tensors['graph_bias']
    z = (x.tanh() * torch.cat([e, g], dim=1)).sum(2)
  else:
    z = (alpha @ keys * (e + g)).sum(2)
  return z + tensors['offset']


def theirs(config, params, hidden_BTD):
  """Logits, BCE, and gradients of the parameters."""
  import torch

  def leaf(x):
    return torch.tensor(np.asarray(x), requires_grad=True)

  tensors = jax.tree.map(leaf, params)
  padding = torch.arange(T)[None] >= torch.tensor(LENGTHS)[:, None]
  mask = torch.zeros(B, T, 1).masked_fill(padding[..., None], -torch.inf)
  unified = isinstance(config, UnifiedConfig)
  score = unified_logits if unified else zero_shot_logits
  logits = score(tensors, config, torch.tensor(hidden_BTD), mask)
  targets = torch.zeros(B, L)
  for b, row in enumerate(POSITIVES):
    targets[b, row[row != PAD]] = 1
  learnt = torch.tensor(SEEN | HIDDEN if unified else SEEN & ~HIDDEN)
  loss = torch.nn.functional.binary_cross_entropy_with_logits(
    logits[:, learnt], targets[:, learnt], reduction='sum'
  )
  loss.backward()
  return logits.detach(), loss.detach(), jax.tree.map(grad_of, tensors)


def grad_of(tensor):
  return np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()


def without_frozen(tree):
  return {
    name: without_frozen(x) if isinstance(x, dict) else x
    for name, x in tree.items()
    if name not in FROZEN
  }


@pytest.mark.parametrize('name', HEADS)
def test_heads_with_a_graph_are_those_of_torch(name):
  config = HEADS[name]
  hidden_BTD = np.random.default_rng(1).normal(size=(B, T, D))
  hidden_BTD *= (np.arange(T) < LENGTHS[:, None])[..., None]
  hidden_BTD = hidden_BTD.astype(np.float32)
  with jax.set_mesh(make_mesh(MeshConfig(), 1)):
    logits, loss, params, gradients = ours(config, hidden_BTD)
  expected_logits, expected_loss, expected = theirs(config, params, hidden_BTD)
  np.testing.assert_allclose(logits, expected_logits, 1e-5, 1e-5)
  np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
  compared = jax.tree.map(
    lambda a, b: (
      np.testing.assert_allclose(a, b, 1e-5, 1e-5) or np.abs(a).max()
    ),
    without_frozen(gradients),
    without_frozen(expected),
  )
  largest = jax.tree.leaves(compared['graph'])
  assert len(largest) == 8 + isinstance(config, UnifiedConfig)
  assert min(largest) > 1e-3
