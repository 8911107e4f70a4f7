"""Compares the loss of HGCLR with torch: values and gradients.

The peer is written from the formulas: paths are walked, heads are separate, the
softmax over labels is computed at once, and BERT is that of transformers.
"""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures import generation
from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.losses.bce import BCE
from xjax.losses.loss import Reduction
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.batch import TokenBatch
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.head import Frozen
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.networks.pretrained.architecture import architecture_of
from xjax.networks.pretrained.convert import from_hugging_face, to_hugging_face
from xjax.networks.text_model import build
from xjax.networks.views import hierarchy_views
from xjax.networks.views.hierarchy_views import HierarchyViews
from xjax.train.parameters import by_path, from_paths

pytestmark = pytest.mark.parity

B, T, D, WORDS, HEADS, TOKEN_HEADS = 5, 7, 16, 30, 4, 2
LENGTHS = np.array([7, 5, 2, 1, 4], np.int32)
REAL = np.array([True, True, True, True, False])  # the last row is padding
SIZES = generation.SIZES | {'model_type': 'bert', 'num_attention_heads': 2}
SIZES |= {'max_position_embeddings': 12, 'pad_token_id': 0}
# Six labels in two trees, one of them below a concept, and a label alone.
LABELS = (
  Label('0', parents=('1',)),
  Label('1', parents=('6',)),
  Label('2', parents=('1',)),
  Label('3', parents=('4',)),
  Label('4'),
  Label('5'),
)
PARENTS = {0: 1, 1: 6, 2: 1, 3: 4}
NODES, L = 7, 6
PIECES = np.array(
  [[4, 5, 6], [7, PAD, PAD], [4, 8, PAD], [PAD, PAD, PAD], [9, 9, PAD]]
  + [[10, 11, 12], [13, PAD, PAD]],
  np.int32,
)
# These shift the scores of all labels alike, which changes no probability.
SHIFTS = 'views/key/bias', 'views/labels/norm/bias'
# Weight, threshold, temperature of the choice, and of the contrastive loss.
WEIGHT, THRESHOLD, TAU, CONTRAST = 0.7, 0.27, 0.8, 0.6


def drawn():
  """A batch, and the noise of each node."""
  rng = np.random.default_rng(0)
  tokens = rng.integers(2, WORDS, (B, T)).astype(np.int32)
  tokens[np.arange(T) >= LENGTHS[:, None]] = 0
  gold = [[0, 1], [2, PAD], [3, 4], [PAD, PAD], [5, 1]]
  batch = TokenBatch(
    tokens_BT=jnp.asarray(tokens),
    lengths_B=jnp.asarray(LENGTHS),
    positives_BP=jnp.asarray(np.array(gold, np.int32)),
    mask_B=jnp.asarray(REAL),
    doc_B=jnp.arange(B, dtype=jnp.int32),
  )
  return batch, rng.gumbel(size=(B, T, NODES)).astype(np.float32)


def path_up(node):
  path = [node]
  while path[-1] in PARENTS:
    path.append(PARENTS[path[-1]])
  return path


def edges_between(a, b):
  """The edges on the path; an edge has the number of its lower node."""
  return set(path_up(a)) ^ set(path_up(b))


class Peer:
  """HGCLR in torch, with the parameters of a model by path."""

  def __init__(self, params, bert):
    import torch

    self.bert = bert
    self.table = bert.embeddings.word_embeddings.weight
    self.p = {
      path: torch.tensor(np.asarray(x), requires_grad=x.dtype == np.float32)
      for path, x in params.items()
      if not path.startswith('encoder/')
    }

  def dense(self, x, name):
    return x @ self.p[f'{name}/kernel'] + self.p[f'{name}/bias']

  def labels(self, nodes):
    """The vectors of the nodes of one part."""
    import torch

    names = [self.table[[i for i in PIECES[n] if i != PAD]] for n in nodes]
    means = [x.mean(0) if len(x) else torch.zeros(D) for x in names]
    x = torch.stack(means) + self.p['views/labels/vector'][nodes]
    query, key, value = self.dense(x, 'views/labels/inputs').split(D, dim=1)
    rows = []
    for a in nodes:
      for b in nodes:
        edges = sorted(edges_between(a, b))
        bias = self.p['views/labels/distance'][len(edges)]
        if edges:
          bias = bias + self.p['views/labels/edge'][edges].mean()
        rows.append(bias)
    bias = torch.stack(rows).reshape(len(nodes), -1)
    mixed, size = [], D // HEADS
    for h in range(HEADS):
      q, k, v = (x[:, h * size : (h + 1) * size] for x in (query, key, value))
      weights = torch.softmax(q @ k.T / size**0.5 + bias, dim=1)
      mixed.append(weights @ v)
    x = x + self.dense(torch.cat(mixed, dim=1), 'views/labels/output')
    scale, shift = (self.p[f'views/labels/norm/{n}'] for n in ('scale', 'bias'))
    return torch.nn.functional.layer_norm(x, (D,), scale, shift, 1e-12)

  def importance(self, batch, noise, parts):
    import torch

    words = self.table[torch.tensor(np.asarray(batch.tokens_BT)).long()]
    queries = self.dense(words, 'views/query')
    scores = torch.zeros(B, T, L)
    size = D // TOKEN_HEADS
    for nodes, counted in parts:
      keys = self.dense(self.labels(nodes), 'views/key')
      by_head = [
        queries[..., h : h + size] @ keys[:, h : h + size].T / size**0.5
        for h in range(0, D, size)
      ]
      mean = torch.stack(by_head).mean(0)
      for i, node in enumerate(nodes):
        if counted[i]:
          scores[..., node] = mean[..., i] + torch.tensor(noise[..., node])
    chosen = torch.softmax(scores / TAU, dim=-1)
    gold = [
      chosen[b, :, [n for n in row if n != PAD]].sum(-1)
      for b, row in enumerate(np.asarray(batch.positives_BP).tolist())
    ]
    return torch.stack(gold)

  def document(self, batch, kept=None):
    import torch

    tokens = torch.tensor(np.asarray(batch.tokens_BT)).long()
    words = self.table[tokens]
    if kept is not None:
      words = words * kept[..., None]
    mask = torch.tensor(np.arange(T) < LENGTHS[:, None]).long()
    return self.bert(inputs_embeds=words, attention_mask=mask)[0][:, 0]

  def loss(self, batch, noise, parts):
    import torch
    from torch.nn import functional

    importance = self.importance(batch, noise, parts)
    hard = (importance > THRESHOLD).float()
    kept = hard + importance - importance.detach()
    documents = self.document(batch), self.document(batch, kept)
    targets = np.zeros((B, L + 1), np.float32)
    np.put_along_axis(targets, np.asarray(batch.positives_BP), 1, axis=1)
    total = 0
    for document in documents:
      logits = document @ self.p['head/kernel'][:L].T + self.p['head/bias'][:L]
      bce = functional.binary_cross_entropy_with_logits(
        logits[REAL], torch.tensor(targets[REAL, :L])
      )
      total = total + bce * REAL.sum()
    points = []
    for document in documents:
      inner = torch.relu(self.dense(document[REAL], 'views/inner'))
      points.append(self.dense(inner, 'views/outer'))
    z = functional.normalize(torch.cat(points))
    logits = (z @ z.T / CONTRAST).fill_diagonal_(-torch.inf)
    other = torch.arange(len(z)).roll(len(z) // 2)
    return total + WEIGHT * functional.cross_entropy(logits, other) * REAL.sum()


def random_model(segment):
  """Our model, and its parameters, which are all random."""
  views = HierarchyViews(
    weight=WEIGHT,
    threshold=THRESHOLD,
    temperature=TAU,
    contrast_temperature=CONTRAST,
    dropout=0.0,
    heads=HEADS,
    token_heads=TOKEN_HEADS,
    name_tokens=PIECES.shape[1],
    segment=segment,
  )
  config = NeuralModel(
    NoEmbedding(),
    BertConfig(dropout=0.0, attention_dropout=0.0),
    ClsConfig(dropout=0.0),
    OneVsAllConfig(chunk=4),
    views=views,
  )
  model = build(
    config,
    vocab_size=WORDS,
    n_labels=L,
    architecture=architecture_of(SIZES, 'test'),
    hierarchy=Hierarchy.of(LABELS, [Label('6')]),
    rngs=nnx.Rngs(0),
  )
  graphdef, params = nnx.split(model)
  rng, values = np.random.default_rng(1), {}
  for path, x in by_path(params).items():
    if x.dtype == jnp.float32:
      around = float(path.endswith('norm/scale'))
      x = around + rng.normal(size=x.shape) * 0.4
      x = jnp.asarray(x, jnp.float32)
    values[path] = x
  values['views/labels/pieces'] = jnp.asarray(PIECES)
  return graphdef, from_paths(params, values)


def peer_of(params):
  import torch
  from transformers import BertConfig as PeerConfig, BertModel

  architecture = architecture_of(SIZES, 'test')
  fields = {name: x for name, x in SIZES.items() if name != 'model_type'}
  bert = BertModel(PeerConfig(**fields), add_pooling_layer=False).eval()
  tensors = to_hugging_face(by_path(params), architecture)
  bert.load_state_dict({name: torch.tensor(x) for name, x in tensors.items()})
  return Peer(by_path(params), bert)


@pytest.mark.parametrize(
  'segment', [pytest.param(512, marks=pytest.mark.thorough), 4]
)
def test_the_loss_and_its_gradients_are_those_of_the_formulas(
  segment, monkeypatch
):
  batch, noise = drawn()
  with jax.set_mesh(make_mesh(MeshConfig(), jax.devices()[:1])):
    graphdef, params = random_model(segment)
    labels = nnx.merge(graphdef, params).views.labels
    all_nodes, counted = np.asarray(labels.nodes), np.asarray(labels.counted)
    noise_of_part = jnp.asarray(noise[:, :, all_nodes].transpose(2, 0, 1, 3))
    monkeypatch.setattr(
      hierarchy_views, '_gumbel', lambda key, part, shape: noise_of_part[part]
    )
    rest, floats = nnx.split_state(params, Frozen, ...)

    @jax.jit
    def ours(floats):
      def loss(floats):
        model = nnx.merge(graphdef, floats, rest)
        mean = BCE(reduction=Reduction.MEAN_LABELS)
        return model.loss(batch, mean, nnx.Rngs(dropout=0))

      return jax.value_and_grad(loss)(floats)

    total, grads = ours(floats)
  assert len(all_nodes) == (1 if segment == 512 else 2)
  parts = [
    ([n for n in nodes.tolist() if n != PAD], flags)
    for nodes, flags in zip(all_nodes, counted)
  ]
  peer = peer_of(params)
  importance = peer.importance(batch, noise, parts).detach().numpy()
  kept = importance > THRESHOLD
  assert 0 < kept.sum() < kept.size  # some words are kept, and some are not
  assert np.abs(importance - THRESHOLD).min() > 1e-3
  expected = peer.loss(batch, noise, parts)
  expected.backward()
  np.testing.assert_allclose(total, expected.item(), 1e-5)
  wanted = {p: x.grad for p, x in peer.p.items() if x.requires_grad}
  encoder = {n: x.grad.numpy() for n, x in peer.bert.named_parameters()}
  wanted |= from_hugging_face(encoder, architecture_of(SIZES, 'test'), 'torch')
  grads = by_path(grads)
  assert grads.keys() == wanted.keys()
  for path, grad in grads.items():
    gradient = np.asarray(wanted[path])
    matters = path not in SHIFTS
    assert (np.abs(gradient).max() > 1e-4) == matters, path
    np.testing.assert_allclose(grad, gradient, 1e-5, 1e-5, err_msg=path)
