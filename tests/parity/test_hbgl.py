"""Compares HBGL with its formulas in torch, which encode whole sequences.

The peer puts the document, the levels and the pseudo masks into one sequence
with an explicit attention mask (Jiang et al. 2022, Section 3.3).
"""

import re

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.generation import (
  GOLD,
  LENGTHS,
  LEVELS,
  L,
  batch,
  hierarchy,
  make_model,
)
from tests.fixtures.networks import on_mesh
from xjax.losses.bce import BCE, bce
from xjax.losses.loss import Reduction
from xjax.networks.encoders.encoder import Remat
from xjax.networks.heads.generation.emitting import Ranking
from xjax.networks.heads.generation.hbgl import HBGLConfig
from xjax.networks.heads.generation.label_levels import (
  make_segment,
  pretrained_nodes,
  pretraining_loss,
)
from xjax.train.parameters import by_path

pytestmark = pytest.mark.parity

N = 3  # levels
OFFSETS = {'bert': 0, 'roberta': 2}
REPLACED = np.random.default_rng(5).random((len(LENGTHS), N)) < 0.5


class Peer:
  """The weights of a model in float64, and the formulas of its parts."""

  def __init__(self, params, kind, heads=4, eps=1e-12):
    import torch

    self.torch, self.heads, self.eps = torch, heads, eps
    self.offset = OFFSETS[kind]
    self.w = {
      path: torch.tensor(np.array(x, np.float64), requires_grad=True)
      for path, x in by_path(params).items()
      if x.dtype == np.float32
    }

  def norm(self, x, path):
    wide = (x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)
    x = (x - x.mean(-1, keepdim=True)) / (wide + self.eps).sqrt()
    return x * self.at(f'{path}/scale') + self.at(f'{path}/bias')

  def dense(self, x, path):
    return x @ self.at(f'{path}/kernel') + self.at(f'{path}/bias')

  def at(self, path):
    """The weights at a path, which may name one layer of the encoder."""
    layer = re.match(r'encoder/layers/(\d)/', path)
    if not layer:
      return self.w[path]
    return self.w[path.replace(f'/{layer[1]}/', '/')][int(layer[1])]

  def gelu(self, x):
    return self.torch.nn.functional.gelu(x)

  def embed(self, vectors, places, kinds):
    base = 'encoder/embeddings'
    kinds = [min(kind, len(self.w[f'{base}/type']) - 1) for kind in kinds]
    places = [place + self.offset for place in places]
    x = vectors + self.w[f'{base}/position'][places]
    return self.norm(x + self.w[f'{base}/type'][kinds], f'{base}/norm')

  def encode(self, x, sees):
    """States [X, D] of a sequence in which vector i sees j if sees[i][j]."""
    torch = self.torch
    sees = torch.tensor(np.asarray(sees))
    for layer in range(2):
      path = f'encoder/layers/{layer}'
      qkv = self.dense(x, f'{path}/attention/inputs')
      q, k, v = (
        part.reshape(len(x), self.heads, -1).transpose(0, 1)
        for part in qkv.chunk(3, dim=-1)
      )
      score = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
      weight = score.masked_fill(~sees, -torch.inf).softmax(-1)
      mixed = (weight @ v).transpose(0, 1).reshape(len(x), -1)
      out = self.dense(mixed, f'{path}/attention/output')
      x = self.norm(x + out, f'{path}/attention/norm')
      inner = self.gelu(self.dense(x, f'{path}/ffn/inner'))
      out = self.dense(inner, f'{path}/ffn/output')
      x = self.norm(x + out, f'{path}/ffn/norm')
    return x

  def transform(self, h):
    return self.norm(
      self.gelu(self.dense(h, 'head/transform/dense')), 'head/transform/norm'
    )

  def scores(self, h):
    """Logits of [SEP], and of all labels."""
    h = self.transform(h)
    end = h @ self.w['head/special'][0] + self.w['head/end_bias'][0]
    kernel, bias = self.w['head/kernel'][:L], self.w['head/bias'][:L]
    return self.torch.cat([end[..., None], h @ kernel.T + bias], dim=-1)

  def states(self, tokens, levels):
    """States of the pseudo masks of the given levels, and of one more."""
    torch, n, count = self.torch, len(tokens), len(levels)
    words = self.w['encoder/embeddings/word'][list(tokens)]
    masks = self.w['head/special'][1].expand(count + 1, -1)
    x = torch.cat([words, *levels, masks])
    places = [*range(n), *range(n, n + count), *range(n, n + count + 1)]
    kinds = [0] * n + [1] * (2 * count + 1)
    sees = np.zeros((len(x), len(x)), bool)
    sees[:, :n] = True
    for i in range(count):
      sees[n + i, n : n + i + 1] = True
    for i in range(count + 1):
      sees[n + count + i, n : n + i] = True
      sees[n + count + i, n + count + i] = True
    return self.encode(self.embed(x, places, kinds), sees)[n + count :]

  def level(self, labels):
    """The vector of a level, [1, D], which gets no gradient."""
    kernel = self.w['head/kernel'].detach()
    return kernel[sorted(labels)].sum(0, keepdim=True)

  def loss(self, tokens, gold, replaced):
    """The loss of a document, summed over its levels."""
    torch = self.torch
    at = [{g for g in gold if LEVELS[g] == level} for level in range(N)]
    last = max((1 + i for i in range(N) if at[i]), default=0)
    mask = self.w['head/special'][1].detach()[None]
    levels = [mask if replaced[i] else self.level(at[i]) for i in range(last)]
    logits = self.scores(self.states(tokens, levels))
    targets = torch.zeros_like(logits)
    targets[last, 0] = 1
    for i in range(last):
      targets[i, [1 + g for g in at[i]]] = 1
    return torch.nn.functional.binary_cross_entropy_with_logits(
      logits, targets, reduction='sum'
    )

  def generate(self, tokens, full=False):
    """Scores [L]; the whole sequence is encoded again for each level."""
    result, levels, end = np.full(L, -np.inf), [], None
    for level in range(N):
      logits = self.scores(self.states(tokens, levels))[level].detach().numpy()
      if end is None and logits[0] > 0:
        end = logits[0]
      here = [label for label in range(L) if LEVELS[label] == level]
      emitted = [label for label in here if logits[1 + label] > 0]
      for label in here:
        p, z = sigmoid(logits[1 + label]), logits[1 + label]
        if end is not None and full:
          p *= sigmoid(-end)
          result[label] = np.log(p / (1 - p))
        elif end is None and (full or z > 0):
          result[label] = z
      levels.append(self.level(emitted))
    return result


def sigmoid(x):
  return 1 / (1 + np.exp(-np.float64(x)))


def documents():
  tokens = np.asarray(batch().tokens_BT)
  for row, length in enumerate(LENGTHS):
    if length:
      gold = sorted({g for g in GOLD[row].tolist() if 0 <= g < L})
      yield row, tokens[row, :length].tolist(), gold


@pytest.mark.parametrize(
  ('kind', 'remat', 'loss', 'divisor'),
  [
    ('bert', Remat.NONE, bce, 1),
    # Over the labels and the end.
    ('roberta', Remat.EVERYTHING, BCE(reduction=Reduction.MEAN_LABELS), L + 1),
  ],
)
def test_the_loss_and_its_gradients_are_those_of_the_formulas(
  kind, remat, loss, divisor
):
  with on_mesh():
    graphdef, params = nnx.split(make_model(kind=kind, remat=remat))

    def total(params):
      model, documents = nnx.merge(graphdef, params), batch()
      prefix = model._head_input(documents, None)
      rest = documents.positives_BP, documents.mask_B, loss
      replaced_BN = jnp.asarray(REPLACED)
      return model.head.loss(prefix, *rest, replaced_BN=replaced_BN)

    found, gradients = jax.jit(jax.value_and_grad(total, allow_int=True))(
      params
    )
  peer = Peer(params, kind)
  expected = sum(peer.loss(t, g, REPLACED[row]) for row, t, g in documents())
  expected = expected / divisor
  np.testing.assert_allclose(found, expected.item(), rtol=1e-5)
  expected.backward()
  compared = 0
  for path, gradient in by_path(gradients).items():
    if path in peer.w:
      tensor = peer.w[path]
      like = tensor.grad if tensor.grad is not None else np.zeros(tensor.shape)
      scale = np.abs(np.asarray(like)).max() + 1
      np.testing.assert_allclose(
        gradient / scale, np.asarray(like) / scale, atol=1e-5, err_msg=path
      )
      compared += 1
  assert compared == len(by_path(params)) - 2  # all but level and index


@pytest.mark.parametrize(
  ('kind', 'ranking'), [('bert', Ranking.EMITTED), ('roberta', Ranking.FULL)]
)
def test_the_labels_are_those_of_slow_generation(kind, ranking):
  with on_mesh():
    head = HBGLConfig(ranking=ranking)
    models = [nnx.split(make_model(head, kind, seed=i)) for i in range(3)]
    graphdef, _ = models[0]
    run = jax.jit(lambda p: nnx.merge(graphdef, p).features(batch()))
    drawn = [(params, np.asarray(run(params))) for _, params in models]
  emitted = ends = 0
  for params, scores_BL in drawn:
    peer = Peer(params, kind)
    for row, tokens, _ in documents():
      expected = peer.generate(tokens, ranking is Ranking.FULL)
      result = scores_BL[row, :L]
      np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
      emitted += (expected > 0).sum()
      ends += (expected[LEVELS == N - 1] <= 0).all()
    assert (scores_BL[:, L:] == -np.inf).all()
  assert emitted > 20 and ends  # the drawn models do both


@pytest.mark.parametrize('kind', OFFSETS)
def test_the_loss_of_the_hierarchy_is_that_of_the_formulas(kind):
  import torch

  nodes = pretrained_nodes(hierarchy())
  inside = np.array([0, 2, 3, 4, 6, 7, 8, 9])  # without b and f
  segment = jax.tree.map(jnp.asarray, make_segment(nodes, inside, 10))
  rng = np.random.default_rng(2)
  rows = rng.normal(size=(10, 16)).astype(np.float32)
  special = rng.normal(size=(2, 16)).astype(np.float32)
  masked = rng.random((3, 10)) < 0.5
  with on_mesh():
    model = make_model(kind=kind)
    graphdef, params = nnx.split(model)

    def total(rows):
      model = nnx.merge(graphdef, params)
      parts = model.encoder, model.head.transform, jnp.asarray(special)
      seeds = model.encoder.seeds(None)
      return pretraining_loss(rows, *parts, segment, jnp.asarray(masked), seeds)

    loss, gradient = jax.jit(jax.value_and_grad(total))(jnp.asarray(rows))
  peer = Peer(params, kind)
  ids = [nodes.ids[node] for node in inside]
  parents = {label.id: set(label.parents) or {'root'} for label in nodes.labels}
  inner = {parent for above in parents.values() for parent in above}
  table = torch.tensor(np.float64(rows[:8]), requires_grad=True)
  special_2D = torch.tensor(np.float64(special))
  levels = [{'a': 1, 'i': 1, 'x': 2, 'g': 3, 'h': 3}.get(i, 2) for i in ids]
  names = ['root', *ids]
  sees = [
    [
      x == y or y in parents.get(x, ()) or x in parents.get(y, ())
      for y in names
    ]
    for x in names
  ]
  losses = []
  for mask in masked[:, :8]:
    vectors = [special_2D[1] if m else v for m, v in zip(mask, table)]
    x = torch.stack([special_2D[0], *vectors])
    h = peer.encode(peer.embed(x, [0, *levels], [0] * 9), sees)[1:]
    logits = peer.transform(h) @ table.T
    for i in np.flatnonzero(mask):
      targets = [float(i == j) for j in range(8)]
      for j in np.flatnonzero(mask):
        leaves = not {ids[i], ids[j]} & inner
        if leaves and parents[ids[i]] & parents[ids[j]]:
          targets[j] = 1.0
      losses.append(
        torch.nn.functional.binary_cross_entropy_with_logits(
          logits[i], torch.tensor(targets, dtype=logits.dtype)
        )
      )
  expected = torch.stack(losses).mean()
  np.testing.assert_allclose(loss, expected.item(), rtol=1e-5)
  expected.backward()
  np.testing.assert_allclose(gradient[:8], table.grad, atol=1e-5)
  assert not np.asarray(gradient[8:]).any()
