"""Cascades: against all scores and losses in NumPy and with dense masks."""

import dataclasses

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import assert_close, on_mesh
from xjax.core.errors import ConfigError
from xjax.core.mesh import padded_labels
from xjax.core.types import PAD, Ragged
from xjax.data.label_trees.levels import LabelLevels, LevelsConfig
from xjax.losses.bce import BCE, bce
from xjax.losses.loss import LabelWeights, Reduction
from xjax.networks.heads.cascade import CascadeConfig, Chain
from xjax.networks.heads.cascade_level import first_biases
from xjax.networks.heads.head import HeadInputs
from xjax.networks.topk import restricted_topk

B, L, D, K = 8, 61, 6, 5
SIZES = (4, 13)  # some clusters have fewer children than others
LEVELS = LabelLevels.even([*SIZES, L])
RNG = np.random.default_rng(0)
X = RNG.normal(size=(B, 2 * D)).astype(np.float32)
POSITIVES = np.array(
  [RNG.choice(L, 3, replace=False) for _ in range(B)], np.int32
)
POSITIVES[0, 1:] = PAD
POSITIVES[1] = PAD
MASK = np.arange(B) != 5

MEAN = BCE(reduction=Reduction.MEAN_LABELS)


def head_of(mesh=(1, 1), levels=LEVELS, **fields):
  """A cascade whose rows are of a size that tells scores apart."""
  sizes = levels.sizes[:-1]
  config = CascadeConfig(
    chunk=8, levels=LevelsConfig(sizes), dropout=(0.0,), **fields
  )
  n_labels = levels.sizes[-1]
  inputs = HeadInputs(2 * D, n_labels, joined=2, levels=levels)
  with on_mesh(*mesh):
    return config.build(inputs, nnx.Rngs(3))


def logits_of(head):
  """float64 logits of each level's nodes, and last of the labels."""
  parts = []
  for part in [*head.clusters, head]:
    x = X.astype(np.float64)
    if part.reading.parts:
      x = np.concatenate(
        [x[:, i * D : (i + 1) * D] for i in part.reading.parts], 1
      )
    if part.reading.layer is not None:
      x = x @ np.asarray(part.reading.layer[...], np.float64)
    kernel, bias = np.asarray(part.kernel[...]), np.asarray(part.bias[...])
    n = L if part is head else len(kernel)
    parts.append(x @ kernel[:n].T.astype(np.float64) + bias[:n])
  return parts


def sigmoid(z):
  return 1 / (1 + np.exp(-z))


def best(scores, mask):
  masked = np.where(mask, scores, -np.inf)
  order = np.argsort(-masked, axis=1, kind='stable')[:, :K]
  top = np.take_along_axis(masked, order, axis=1)
  return np.where(top == -np.inf, PAD, order), top


def topk(head, mesh=(1, 1), **filters):
  graphdef, params = nnx.split(head)

  @jax.jit
  def run(params, x, filters):
    head = nnx.merge(graphdef, params)
    return restricted_topk(head, head.prepare(x), K, **filters)

  with on_mesh(*mesh):
    return jax.tree.map(np.asarray, run(params, jnp.asarray(X), filters))


SLICES = tuple(RNG.random((2, L)) < 0.2)
WEIGHTS = RNG.uniform(0, 3, L).astype(np.float32) * (RNG.random(L) < 0.5)
ALLOWED = RNG.random(L) < 0.4, RNG.random((B, L)) < 0.4


@pytest.mark.parametrize(
  ('chain', 'weights', 'allowed'),
  [
    (Chain.PRODUCT, None, None),
    (Chain.PRODUCT, WEIGHTS, ALLOWED[0]),
    (Chain.PARENT, WEIGHTS, ALLOWED[1]),
    (Chain.LAST, None, ALLOWED[0]),
  ],
)
def test_all_clusters_kept_give_the_exact_scores(chain, weights, allowed):
  head = head_of(
    kept=SIZES, hidden=(0, 3, 4), parts=('0', '1', ''), chain=chain
  )
  assert head.shortlist_size is None
  top, middle, labels = map(sigmoid, logits_of(head))
  above, parent = LEVELS.above[0], LEVELS.above[1]
  product = {
    Chain.PRODUCT: top[:, above] * middle[:, parent] * labels,
    Chain.PARENT: middle[:, parent] * labels,
    Chain.LAST: labels,
  }[chain]
  scores = np.log(product) - np.log1p(-product)
  if weights is not None:
    with np.errstate(divide='ignore'):
      scores = np.log(product) + np.log(weights)
  inside = True if allowed is None else allowed
  found = topk(head, weights=weights, slices=SLICES, allowed=allowed)
  masks = (np.ones(L, bool), *SLICES)
  for ids, values, mask in zip(*found, masks, strict=True):
    want_ids, want = best(scores, mask & inside)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_allclose(values, want, 1e-4, 1e-5)


def test_labels_below_other_clusters_are_not_listed():
  """Each list has clusters of its own."""
  head = head_of(kept=(2, 3))
  assert head.shortlist_size == 15
  top, middle, labels = logits_of(head)
  ids, _ = topk(head, slices=SLICES)
  for group, mask in enumerate((np.ones(L, bool), *SLICES)):
    for row in range(B):
      has = [
        np.bincount(LEVELS.above[r][mask], minlength=n) > 0
        for r, n in enumerate(SIZES)
      ]
      first = np.argsort(-np.where(has[0], top[row], -np.inf))[:2]
      inside = np.isin(LEVELS.parents[1], first) & has[1]
      second = np.argsort(-np.where(inside, middle[row], -np.inf))[:3]
      second = second[inside[second]]
      listed = ids[group, row][ids[group, row] != PAD]
      possible = np.flatnonzero(mask & np.isin(LEVELS.above[1], second))
      assert set(listed) <= set(possible)
      assert len(listed) == min(K, len(possible))


def differentiated(head, total):
  """The value of total(head, x) and its gradients."""
  graphdef, params, frozen = nnx.split(
    head, lambda p, v: type(v) is nnx.Param, ...
  )
  run = jax.value_and_grad(
    lambda params, x: total(nnx.merge(graphdef, params, frozen), x), (0, 1)
  )
  return jax.tree.map(np.asarray, jax.jit(run)(params, jnp.asarray(X)))


def loss_of(head, mesh=(1, 1), weights=None, positives=POSITIVES, loss=MEAN):
  labels = jnp.asarray(positives), jnp.asarray(MASK)
  with on_mesh(*mesh):
    return differentiated(
      head, lambda head, x: head.loss(head.prepare(x), *labels, loss, weights)
    )


def dense_loss(head, is_mean):
  """The same loss from all logits, with a mask of the candidates."""

  def run(head, x):
    total, inside = 0.0, jnp.ones((B, SIZES[0]), bool)
    for r, part in enumerate([*head.clusters, head]):
      above, n = LEVELS.above[r], (*SIZES, L)[r]
      gold = np.zeros((B, n), bool)
      for row in range(B):
        real = POSITIVES[row][POSITIVES[row] != PAD]
        gold[row, above[real]] = True
      logits = part.reading(x) @ part.kernel[...][:n].T + part.bias[...][:n]
      cost = jnp.logaddexp(0, logits) - gold * logits
      cost_B = (cost * inside).sum(1) / (inside.sum(1) if is_mean else 1)
      total += head.weights[r] * (cost_B * MASK).sum()
      if part is not head:
        forced = jnp.where(gold & MASK[:, None], jnp.inf, logits)
        keys = jnp.where(inside, forced, -jnp.inf)
        order = jnp.argsort(-keys, axis=1, stable=True)[:, : head.kept[r]]
        none, rows = jnp.zeros((B, n), bool), jnp.arange(B)[:, None]
        kept = none.at[rows, order].set(True)
        inside = (kept & inside)[:, LEVELS.parents[r + 1]]
    return total

  return differentiated(head, run)


def assert_same(found, expected):
  assert found[0] == pytest.approx(expected[0], rel=1e-5)
  assert_close(found[1], expected[1], 0.0001, 2e-06)


@pytest.mark.parametrize('loss', [MEAN, bce])
def test_the_loss_is_that_of_masked_logits(loss):
  head = head_of(kept=(3, 4), hidden=(0, 3, 4), weights=(2.0, 1.0, 0.5))
  assert_same(loss_of(head, loss=loss), dense_loss(head, loss is MEAN))


@pytest.mark.parametrize(
  'mesh', [(2, 4), pytest.param((1, 8), marks=pytest.mark.thorough)]
)
def test_devices_give_the_same_loss_and_lists(mesh):
  levels = LabelLevels.even([*SIZES, 800])  # the labels are on many devices
  head = head_of(levels=levels, kept=(3, 4))
  spread = head_of(mesh, levels, kept=(3, 4))
  rng, rows = np.random.default_rng(1), padded_labels(800)
  factors = rng.uniform(0.5, 2, (2, rows)).astype(np.float32)
  weights, positives = LabelWeights(*factors), np.maximum(PAD, 13 * POSITIVES)
  loss, gradients = loss_of(spread, mesh, weights, positives)
  expected = loss_of(head, (1, 1), weights, positives)
  assert_near(loss, expected[0])
  jax.tree.map(assert_near, gradients, expected[1])
  filters = {
    'weights': factors[0] * (rng.random(rows) < 0.5),
    'slices': tuple(rng.random((2, rows)) < 0.2),
    'allowed': rng.random((B, 800)) < 0.4,
  }
  ids, values = topk(spread, mesh, **filters)
  want_ids, want = topk(head, **filters)
  np.testing.assert_array_equal(ids, want_ids)
  assert_near(values[ids != PAD], want[ids != PAD])


def assert_near(found, expected):
  """Only the rounding of float32 may differ."""
  error = np.linalg.norm(np.ravel(found - expected))
  assert error <= 1e-6 * np.linalg.norm(np.ravel(expected))


def test_too_few_kept_clusters_are_an_error():
  config = CascadeConfig(levels=LevelsConfig(SIZES), kept=(2, 2))
  gold = Ragged.of([[0], [0, 7, 14], [1, 2]])
  says = "document 'b' has .* 3 clusters of level 1"
  with pytest.raises(ConfigError, match=says):
    config.check_gold(LEVELS, gold, ['a', 'b', 'c'])
  dataclasses.replace(config, kept=(3,)).check_gold(
    LEVELS, gold, ['a', 'b', 'c']
  )


def test_gold_labels_in_kept_clusters_are_counted_in_each_level():
  head = head_of(kept=(2, 3))
  assert head.kept_clusters == (2, 3)
  mask_L = np.random.default_rng(1).random(L) < 0.5
  logs = jnp.where(jnp.asarray(mask_L), 0.0, -jnp.inf)
  top, middle, _ = map(np.log, map(sigmoid, logits_of(head)))
  coarse_L, parent = LEVELS.above[0], LEVELS.above[1]
  above = np.array([coarse_L[parent == c][0] for c in range(SIZES[1])])

  @jax.jit
  def run(x):
    features, gold = head.prepare(x), jnp.asarray(POSITIVES)
    chosen = features, head.narrowed(features, logs)
    return [head.kept_gold(x, gold) for x in chosen]

  with on_mesh():
    both = run(jnp.asarray(X))
  for counts, inside_L in zip(both, (np.ones(L, bool), mask_L)):
    inside_M = np.array([inside_L[parent == c].any() for c in range(SIZES[1])])
    inside_T = np.array([inside_M[above == c].any() for c in range(SIZES[0])])
    for row, gold in enumerate(POSITIVES):
      gold = gold[gold != PAD]
      key = np.where(inside_T, top[row], -np.inf)
      coarse = np.argsort(-key, kind='stable')[:2]
      key = np.where(inside_M & np.isin(above, coarse), middle[row], -np.inf)
      fine = np.argsort(-key, kind='stable')[:3]
      fine = fine[key[fine] > -np.inf]
      nodes = parent[gold]
      wanted = np.isin(above[nodes], coarse).sum(), np.isin(nodes, fine).sum()
      assert tuple(np.asarray(counts)[row]) == (*wanted, wanted[1])


def test_first_biases_are_the_logits_of_having_a_label_of_the_cluster():
  p_L = RNG.uniform(1e-4, 0.3, L)
  biases = first_biases(LEVELS, np.log(p_L / (1 - p_L)))
  above = LEVELS.parents[1][LEVELS.parents[2]]
  for bias, cluster_L in zip(biases, [above, LEVELS.parents[2], np.arange(L)]):
    for i, b in enumerate(bias):
      none = np.prod(1 - p_L[cluster_L == i])
      assert b == pytest.approx(np.log((1 - none) / none))
  assert [x.any() for x in first_biases(LEVELS, None)] == [False] * 3
