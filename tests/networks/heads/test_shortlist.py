"""Shortlists against streaming over all labels, and against dense masks."""

import dataclasses
import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import on_mesh, thorough
from xjax.core.mesh import padded_labels
from xjax.core.types import PAD
from xjax.losses.bce import BCE, bce
from xjax.losses.focal import Focal
from xjax.losses.loss import LabelWeights, Reduction
from xjax.losses.softmax import Softmax
from xjax.losses.squared_hinge import SquaredHinge, squared_hinge
from xjax.networks.batch import Shortlist
from xjax.networks.heads.attention_mlp import AttentionMLPConfig
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import HeadInputs, TokenFeatures
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.heads.shortlist import shortlist_logits, shortlist_loss
from xjax.networks.heads.streaming import head_loss
from xjax.networks.heads.unified import UnifiedConfig
from xjax.networks.heads.zero_shot import ZeroShotConfig
from xjax.networks.rows.storage import Storage

B, T, D, E, L, A = 8, 5, 6, 4, 83, 13
LENGTHS = np.array([5, 4, 1, 2, 5, 3, 1, 0], np.int32)
MASK = LENGTHS > 0
SEEN = np.arange(L) % 5 != 0
HIDDEN = np.arange(L) % 10 == 5
LOSSES = [bce, squared_hinge, Focal(2.0, 0.25), Softmax(), Softmax(False)]
MEAN = {'reduction': Reduction.MEAN_LABELS}
MEANS = [BCE(**MEAN), SquaredHinge(**MEAN), Focal(2.0, 0.25, **MEAN)]


def one_vs_all(chunk, **more):
  biases = np.linspace(-1, 1, L)
  return OneVsAllConfig(chunk=chunk, **more).build(
    HeadInputs(D, L, bias_L=biases), nnx.Rngs(0)
  )


def with_descriptors(head):
  rng = np.random.default_rng(7)
  shape = head.descriptors.shape
  head.descriptors[...] = jnp.asarray(rng.normal(size=shape), jnp.float32)
  return head


def unified(chunk):
  head = UnifiedConfig(chunk=chunk, row_dropout=0.0).build(
    HeadInputs(D, L, seen_L=SEEN, hidden_L=HIDDEN, descriptor_dim=E),
    nnx.Rngs(0),
  )
  normal = jax.random.normal(jax.random.key(9), head.attention.shape)
  head.attention[...], head.output[...] = normal, normal[:, ::-1]
  return with_descriptors(head)


HEADS = {
  'OneVsAll': functools.partial(one_vs_all, bottleneck=E),
  'LabelAttention': lambda chunk: LabelAttentionConfig(chunk=chunk).build(
    HeadInputs(D, L, bias_L=np.linspace(-1, 1, L)), nnx.Rngs(0)
  ),
  'ZeroShot': lambda chunk: with_descriptors(
    ZeroShotConfig(chunk=chunk).build(
      HeadInputs(D, L, seen_L=SEEN, descriptor_dim=E), nnx.Rngs(0)
    )
  ),
  'Unified': unified,
  'AttentionMLP': lambda chunk: AttentionMLPConfig(
    chunk=chunk, mlp=(7, 4)
  ).build(HeadInputs(D, L), nnx.Rngs(0)),
}
# Rows of these formats have no gradients; the fused pass trains them.
STORED = {
  storage.name: functools.partial(one_vs_all, storage=storage)
  for storage in (Storage.BFLOAT16, Storage.FLOAT8)
}
POOLED = {'OneVsAll', *STORED}
EACH_HEAD = pytest.mark.parametrize('kind', HEADS)


QUICK = ('OneVsAll', (2, 4)), ('LabelAttention', (1, 8))
MESHES = [
  (kind, mesh) if (kind, mesh) in QUICK else thorough(kind, mesh)
  for kind in HEADS
  for mesh in ((2, 4), (1, 8), (8, 1))
]


def draw():
  rng = np.random.default_rng(0)
  hidden_BTD = rng.normal(size=(B, T, D)).astype(np.float32)
  return TokenFeatures(jnp.asarray(hidden_BTD), jnp.asarray(LENGTHS))


def shortlist_of(gold_BL, ids_BA):
  gold_BA = np.take_along_axis(gold_BL, np.clip(ids_BA, 0, L - 1), axis=1)
  return Shortlist(*map(jnp.asarray, (ids_BA, gold_BA & (ids_BA >= 0))))


def drawn():
  """Returns (gold_BL, ids_BA), with PAD anywhere, and one list empty."""
  rng = np.random.default_rng(1)
  gold_BL = rng.random((B, L)) < 0.08
  ids_BA = np.stack([rng.permutation(L)[:A] for _ in range(B)])
  ids_BA = np.where(rng.random((B, A)) < 0.3, PAD, ids_BA).astype(np.int32)
  ids_BA[3], ids_BA[0, 0] = PAD, L + 2  # not a label, but a row of padding
  return gold_BL, ids_BA


def everything():
  """Returns (gold_BL, ids_BA) of all labels, each document's in its order."""
  rng = np.random.default_rng(2)
  ids_BA = np.stack([rng.permutation(L) for _ in range(B)])
  return drawn()[0], ids_BA.astype(np.int32)


def positives(gold_BL):
  most = gold_BL.sum(axis=1).max()
  ids_BP = np.argsort(~gold_BL, axis=1, kind='stable')[:, :most]
  kept_BP = np.take_along_axis(gold_BL, ids_BP, axis=1)
  return jnp.asarray(np.where(kept_BP, ids_BP, PAD), jnp.int32)


def label_weights():
  draw = np.random.default_rng(5).uniform(0, 3, (2, padded_labels(L)))
  return LabelWeights(*map(jnp.asarray, draw.astype(np.float32)))


def gradients(kind, total, mesh=(1, 1), chunk=5):
  """Returns total(head, features), and its gradients by name."""
  with on_mesh(*mesh):
    graphdef, params = nnx.split(HEADS[kind](chunk))

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def run(params, hidden_BTD):
      head = nnx.merge(graphdef, params)
      inputs = draw().replace(hidden_BTD=hidden_BTD)
      inputs = hidden_BTD.sum(axis=1) if kind == 'OneVsAll' else inputs
      return total(head, head.prepare(inputs))

    results = jax.block_until_ready(run(params, draw().hidden_BTD))
  loss, (d_params, d_hidden) = jax.tree.map(np.asarray, results)
  leaves = jax.tree_util.tree_leaves_with_path(nnx.to_pure_dict(d_params))
  named = {'.'.join(str(x.key) for x in path): leaf for path, leaf in leaves}
  return {'loss': loss, 'hidden': d_hidden} | named


def assert_same(results, expected, rtol=1e-6):
  """Compares arrays relative to their lengths, if these are above 1."""
  assert results.keys() == expected.keys()
  for name, exact in expected.items():
    length = max(np.linalg.norm(exact), 1)
    assert np.linalg.norm(results[name] - exact) <= rtol * length, name


def of_shortlist(lists, loss=bce, entry_weights=None, **more):
  shortlist = dataclasses.replace(
    shortlist_of(*lists), weights_BA=entry_weights
  )
  return lambda head, features: shortlist_loss(
    head, features, shortlist, jnp.asarray(MASK), loss, **more
  )


@pytest.mark.parametrize(
  ('kind', 'loss'),
  [('OneVsAll', MEANS[0]), ('OneVsAll', Softmax()), ('LabelAttention', bce)]
  + [thorough('LabelAttention', Softmax())]
  + [
    thorough(kind, loss)
    for kind in ('ZeroShot', 'Unified')
    for loss in (MEANS[0], Softmax())
  ],
)
def test_all_labels_give_the_loss_of_streaming(kind, loss):
  weights = label_weights()
  lists = everything()

  def streamed(head, features):
    gold = positives(lists[0]), jnp.asarray(MASK)
    return head_loss(head, features, *gold, loss, weights)

  results = gradients(
    kind, of_shortlist(lists, loss, weights=weights), chunk=30
  )
  assert_same(results, gradients(kind, streamed, chunk=L))


def logits_at(kind, ids_BA, mesh=(1, 1), chunk=5):
  with on_mesh(*mesh):
    graphdef, params = nnx.split((HEADS | STORED)[kind](chunk))

    @jax.jit
    def run(params, features):
      head = nnx.merge(graphdef, params)
      hidden_BTD = features.hidden_BTD
      inputs = hidden_BTD.sum(axis=1) if kind in POOLED else features
      inputs = head.prepare(inputs)
      rows = nnx.to_pure_dict(split_head(head).rows)
      logits_BA = shortlist_logits(head, inputs, jnp.asarray(ids_BA))
      return logits_BA, head.logits(inputs, rows)

    results = jax.block_until_ready(run(params, draw()))
  return [np.asarray(x) for x in results]


@pytest.mark.parametrize('kind', [*HEADS, *STORED])
def test_logits_are_those_of_the_whole_head(kind):
  _, ids_BA = drawn()
  found_BA, all_BL = logits_at(kind, ids_BA)
  real_BA = (ids_BA != PAD) & (ids_BA < L)
  expected_BA = np.take_along_axis(all_BL, np.maximum(ids_BA, 0), axis=1)
  assert (found_BA[~real_BA] == -np.inf).all()
  np.testing.assert_allclose(
    found_BA[real_BA], expected_BA[real_BA], rtol=1e-6, atol=1e-6
  )


@pytest.mark.parametrize(
  ('kind', 'mesh'), [*MESHES, ('FLOAT8', (2, 4)), thorough('BFLOAT16', (2, 4))]
)
def test_logits_are_the_same_on_meshes(kind, mesh):
  _, ids_BA = drawn()
  one_BA, found_BA = (
    logits_at(kind, ids_BA, shape)[0] for shape in ((1, 1), mesh)
  )
  np.testing.assert_allclose(found_BA, one_BA, rtol=1e-6, atol=1e-6)


def dense_loss(lists, loss, weights=None, slots_BA=None):
  """Returns the loss over all logits, with a mask for labels not asked for."""
  gold_BL, ids_BA = lists
  asked_BL = np.zeros((B, L), bool)
  slots_BL = np.ones((B, L), np.float32)
  for i, j in np.argwhere((ids_BA != PAD) & (ids_BA < L)):
    asked_BL[i, ids_BA[i, j]] = True
    slots_BL[i, ids_BA[i, j]] = 1 if slots_BA is None else slots_BA[i, j]
  lengths_B = np.ones(B)
  if loss.reduction is Reduction.MEAN_LABELS:
    lengths_B = np.maximum(asked_BL.sum(axis=1), 1)

  def total(head, features):
    rows = nnx.to_pure_dict(split_head(head).rows)
    rows = {name: row[:L] for name, row in rows.items()}
    logits_BL = head.logits(features, rows)
    learns = head.learns(rows)
    asked = jnp.asarray(asked_BL & MASK[:, None])
    asked = asked if learns is None else asked & learns
    gold = asked & gold_BL
    weight_BL = jnp.asarray(slots_BL)
    if weights is not None:
      each = jnp.where(gold, *(x[:L] for x in jax.tree.leaves(weights)))
      weight_BL *= each
    if isinstance(loss, Softmax):
      masked_BL = jnp.where(asked, logits_BL, -1e30)
      part_BL = jnp.where(gold, weight_BL, 0)
      if loss.averaged:
        part_BL /= jnp.maximum(part_BL.sum(axis=1, keepdims=True), 1e-30)
      nats_BL = jnp.where(gold, -jax.nn.log_softmax(masked_BL), 0)
      loss_BL = part_BL * nats_BL
    else:
      loss_BL = jnp.where(
        asked, weight_BL * _by_label(loss, logits_BL, gold), 0
      )
    return (loss_BL.sum(axis=1) / lengths_B).sum()

  return total


def _by_label(loss, logits_BL, gold):
  sign_BL = jnp.where(gold, 1.0, -1.0)
  margins_BL = sign_BL * logits_BL
  if isinstance(loss, SquaredHinge):
    return jnp.maximum(0, 1 - margins_BL) ** 2
  if isinstance(loss, BCE):
    return jax.nn.softplus(-margins_BL)
  scale_BL = jnp.where(gold, loss.alpha, 1 - loss.alpha)
  hard_BL = jax.nn.sigmoid(-margins_BL) ** loss.gamma
  return scale_BL * hard_BL * jax.nn.softplus(-margins_BL)


@pytest.mark.parametrize(
  'loss', [*MEANS, *LOSSES[3:], *(thorough(loss) for loss in LOSSES[:3])]
)
def test_losses_are_those_of_masked_logits(loss):
  """Each gold label, document and entry counts by its weights."""
  slots_BA = np.random.default_rng(6).uniform(0, 3, (B, A)).astype(np.float32)
  more = {'weights': label_weights()}
  loss_of = of_shortlist(drawn(), loss, jnp.asarray(slots_BA), **more)
  expected = dense_loss(drawn(), loss, slots_BA=slots_BA, **more)
  assert_same(
    gradients('OneVsAll', loss_of), gradients('OneVsAll', expected), 2e-6
  )


@EACH_HEAD
def test_gradients_of_heads_are_those_of_masked_logits(kind):
  expected = gradients(kind, dense_loss(drawn(), bce))
  assert_same(gradients(kind, of_shortlist(drawn())), expected, 2e-6)


@pytest.mark.parametrize(('kind', 'mesh'), MESHES)
def test_meshes(kind, mesh):
  loss = MEANS[0] if kind == 'LabelAttention' else Softmax()
  total = of_shortlist(drawn(), loss, weights=label_weights())
  expected = gradients(kind, total, chunk=A)
  assert_same(gradients(kind, total, mesh), expected, 2e-6)


@pytest.mark.parametrize(
  ('kind', 'mesh'),
  [
    ('OneVsAll', (2, 4)),
    thorough('Unified', (8, 1)),
    thorough('OneVsAll', (8, 1)),
    thorough('Unified', (2, 4)),
  ],
)
def test_logits_have_gradients(kind, mesh):
  """Any loss of logits can be differentiated, on any mesh."""
  gold_BL, ids_BA = drawn()
  factor_BA = jnp.asarray(np.random.default_rng(4).normal(size=(B, A)))
  real_BA = jnp.asarray((ids_BA != PAD) & (ids_BA < L))
  columns_BA = jnp.asarray(np.where(real_BA, ids_BA, 0))

  def total(head, features):
    logits_BA = shortlist_logits(head, features, jnp.asarray(ids_BA))
    return jnp.where(real_BA, factor_BA * jnp.tanh(logits_BA), 0).sum()

  def dense(head, features):
    rows = nnx.to_pure_dict(split_head(head).rows)
    logits_BL = head.logits(features, rows)
    logits_BA = jnp.take_along_axis(logits_BL, columns_BA, axis=1)
    return jnp.where(real_BA, factor_BA * jnp.tanh(logits_BA), 0).sum()

  assert_same(gradients(kind, total, mesh), gradients(kind, dense), 2e-6)


def test_an_excess_of_logits_is_never_there():
  """No array has more rows of labels than a chunk of each shortlist."""
  with on_mesh():
    head = HEADS['LabelAttention'](5)
    total = of_shortlist(drawn())
    text = jax.jit(jax.grad(total, allow_int=True)).lower(
      head, head.prepare(draw())
    )
  assert f'{B}x5x{D}x' in text.as_text()
  assert f'{B}x{A}x{D}x' not in text.as_text()
