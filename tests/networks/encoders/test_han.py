"""HAN as a whole: zones in, scores out."""

import dataclasses
import functools

from flax import nnx
import jax
import numpy as np
import pytest

from tests.fixtures.networks import assert_close, mesh_of
from xjax.core.mesh import put_batch
from xjax.core.ranking import Query
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.schema import LabelSpace
from xjax.losses.bce import bce
from xjax.models.contract import Config, Run
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.neural_plan import plan_neural
from xjax.models.neural.neural_scorer import NeuralScorer
from xjax.networks.batch import TokenBatch
from xjax.networks.encoders.han import HANConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import SelfAttentionConfig
from xjax.plan.costs import compiled_collectives

B, Z, T, L, VOCABULARY = 8, 3, 5, 150, 40
LENGTHS = np.array(
  [
    [5, 2, 4],
    [3, 0, 0],
    [1, 1, 1],
    [4, 5, 0],
    [1, 0, 0],
    [2, 2, 2],
    [5, 5, 5],
    [0, 0, 0],  # only fills the batch
  ],
  np.int32,
)


def model_of(chunk=64, layers=1):
  return NeuralModel(
    EmbeddingConfig(dim=6, init_scale=1.0),
    HANConfig(units=4, layers=layers, zone_units=3, dropout=0.3),
    SelfAttentionConfig(),
    OneVsAllConfig(chunk=chunk),
  )


ONE = mesh_of()


def draw(zones=Z, tokens=T):
  rng = np.random.default_rng(0)
  tokens_BZT = rng.integers(2, VOCABULARY, (B, Z, T)).astype(np.int32)
  tokens_BZT[np.arange(T) >= LENGTHS[..., None]] = 0
  more = [(0, 0), (0, zones - Z)]
  return TokenBatch(
    tokens_BT=np.pad(tokens_BZT, [*more, (0, tokens - T)]),
    lengths_B=np.pad(LENGTHS, more),
    positives_BP=rng.integers(0, L, (B, 4)).astype(np.int32),
    mask_B=LENGTHS.any(axis=1),
    doc_B=np.where(LENGTHS.any(axis=1), np.arange(B, dtype=np.int32), PAD),
  )


@functools.cache
def scorer(mesh, **options):
  """A scorer whose parameters are all random."""
  config = Config(model=model_of(**options))
  space = LabelSpace((), np.zeros(L, np.int32), 1, L)
  plan = plan_neural(config, space, VOCABULARY, mesh)
  found = NeuralScorer(Run(config, None), plan, mesh, L, None)
  rng = np.random.default_rng(1)
  with jax.set_mesh(mesh):
    first = plan.init(jax.random.key(0)).params
  found.params = jax.tree.map(
    lambda x: jax.device_put(
      np.asarray(x) + rng.normal(size=x.shape).astype(np.float32) / 4,
      x.sharding,
    ),
    first,
  )
  return found


def scores(batch, mesh=ONE, **options):
  """[B, L] logits, labels in order."""
  documents = Documents([''] * len(batch.doc_B))
  lists = scorer(mesh, **options).batch_ranker(documents, Query(L))(batch)
  order = lists.ids_GNK[0].argsort(axis=1)
  return np.take_along_axis(lists.scores_GNK[0], order, axis=1)


def gru(x_TD, layer):
  """Gate by gate, from the first step to the last."""
  kernel, bias, recurrent, candidate = (
    np.asarray(layer[name][...], np.float64)
    for name in ('kernel', 'bias', 'recurrent', 'candidate_bias')
  )
  h, states = np.zeros(len(recurrent)), []
  for x in x_TD:
    xr, xz, xn = np.split(x @ kernel + bias, 3)
    ur, uz, un = np.split(h @ recurrent, 3)
    r, z = 1 / (1 + np.exp(-xr - ur)), 1 / (1 + np.exp(-xz - uz))
    h = (1 - z) * np.tanh(xn + r * (un + candidate)) + z * h
    states.append(h)
  return np.array(states)


def bigru(x_TD, part):
  for i in range(len(part['forwards'])):
    forward = gru(x_TD, part['forwards'][i])
    backward = gru(x_TD[::-1], part['backwards'][i])[::-1]
    h_TD = np.concatenate([forward, backward], axis=1)
    x_TD = x_TD + h_TD if i else h_TD
  return x_TD


def attention(h_TD, part):
  kernel, bias, query = (
    np.asarray(part[name][...], np.float64)
    for name in ('kernel', 'bias', 'query')
  )
  weights = [np.exp(query @ np.tanh(h @ kernel + bias)) for h in h_TD]
  return sum(w * h for w, h in zip(weights, h_TD)) / sum(weights)


def by_definition(zones, params):
  """One document's logits, zone by zone and word by word."""
  table = np.asarray(params['embedding']['table'][...], np.float64)
  encoder, head = params['encoder'], params['head']
  vectors = [
    attention(bigru(table[words], encoder['words']), encoder['attention'])
    for words in zones
  ]
  states = bigru(np.array(vectors), encoder['zones'])
  document = attention(states, params['pooling'])
  return (document @ head['kernel'][...].T + head['bias'][...])[:L]


@pytest.mark.parametrize('layers', [1, 2])
def test_definition(layers):
  batch = draw()
  logits = scores(batch, layers=layers)
  params = scorer(ONE, layers=layers).params
  for row in np.flatnonzero(batch.mask_B):
    zones = [
      words[:n]
      for words, n in zip(batch.tokens_BT[row], batch.lengths_B[row])
      if n
    ]
    expected = by_definition(zones, params)
    np.testing.assert_allclose(logits[row], expected, atol=1e-5)


def test_neither_padding_nor_company_nor_chunks_nor_devices_matter():
  together = scores(draw())
  np.testing.assert_allclose(scores(draw(), mesh_of(2, 4)), together, atol=1e-5)
  longer = scores(draw(zones=Z + 1, tokens=T + 4))
  np.testing.assert_allclose(longer, together, atol=1e-5)
  np.testing.assert_allclose(scores(draw(), chunk=7), together, atol=1e-5)
  alone = jax.tree.map(lambda x: x[3:4], draw())
  alone = dataclasses.replace(
    alone, tokens_BT=alone.tokens_BT[:, :2], lengths_B=alone.lengths_B[:, :2]
  )
  np.testing.assert_allclose(scores(alone)[0], together[3], atol=1e-5)


def differentiated(mesh):
  found = scorer(mesh)
  graphdef, params = found.plan.graphdef, found.params

  @jax.jit
  @jax.value_and_grad
  def run(params, batch):
    rngs = nnx.Rngs(dropout=jax.random.key(0))
    return nnx.merge(graphdef, params).loss(batch, bce, rngs)

  with jax.set_mesh(mesh):
    compiled = run.lower(params, put_batch(draw(), mesh)).compile()
    values = compiled(params, put_batch(draw(), mesh))
    return jax.block_until_ready(values), compiled.as_text()


@pytest.mark.thorough
def test_meshes_agree_and_only_the_head_sees_documents_of_other_shards():
  (loss, d_params), text = differentiated(mesh_of(2, 4))
  expected, d_expected = differentiated(ONE)[0]
  assert np.isfinite(expected)
  for path, d in jax.tree.leaves_with_path(d_expected):
    assert np.isfinite(d).all() and (d != 0).any(), path
  np.testing.assert_allclose(loss, expected, rtol=1e-5)
  assert_close(d_params, d_expected, 1e-5, 1e-5)
  sent = compiled_collectives(text)
  gathered = {c.shapes for c in sent if c.kind == 'all-gather'}
  # The head's: features, labels, and which documents are real.
  assert gathered == {((B // 2, 6),), ((B // 2, 4),), ((B // 2,),)}
  kinds = {c.kind for c in sent} - {'all-gather'}
  assert kinds == {'all-reduce', 'reduce-scatter'}  # the gradients' sums
