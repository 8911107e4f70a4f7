import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.networks.topk import BestLabels, with_chunk

B, K = 3, 20
SIZES = (16, 2000)


@functools.partial(jax.jit, static_argnames='recall')
def add(best, scores_BC, first, recall=1.0):
  return with_chunk(best, scores_BC, first, recall)


def listed(scores_BL, size, recall=1.0):
  best = BestLabels.none(B, K)
  for start in range(0, scores_BL.shape[1], size):
    chunk = jnp.asarray(scores_BL[:, start : start + size])
    best = add(best, chunk, jnp.int32(start), recall)
  return np.asarray(best.ids), np.asarray(best.scores)


def draw(n_labels, kinds):
  rng = np.random.default_rng(kinds)
  return rng.integers(-kinds, kinds, (B, n_labels)).astype(np.float32)


SCORES = {
  'ties': draw(6000, 40),
  'few ties': draw(6000, 10**6),
  'rising': np.sort(draw(6000, 10**6)),
  'falling': -np.sort(draw(6000, 10**6)),
  'all alike': np.zeros((B, 6000), np.float32),
  'zeros of either sign': draw(6000, 1) * np.float32(0),
  'hardly any': np.where(draw(6000, 10**6) > 995_000, 1, -np.inf),
}


@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('name', SCORES)
def test_it_is_a_stable_sort(name, size):
  scores_BL = SCORES[name].astype(np.float32)
  ids, found = listed(scores_BL, size)
  order = np.argsort(-scores_BL, axis=1, kind='stable')[:, :K]
  expected = np.take_along_axis(scores_BL, order, axis=1)
  np.testing.assert_array_equal(found, expected)
  np.testing.assert_array_equal(ids, np.where(expected > -np.inf, order, -1))


@pytest.mark.parametrize('size', SIZES)
def test_nan_is_seen_wherever_it_is(size):
  scores_BL = draw(6000, 40)
  scores_BL[:, [3, 5990]] = np.nan
  ids, found = listed(scores_BL, size)
  np.testing.assert_array_equal(ids[:, :2], [[3, 5990]] * B)
  assert np.isnan(found[:, :2]).all() and not np.isnan(found[:, 2:]).any()


def test_recall_changes_nothing_but_on_a_tpu():
  scores_BL = SCORES['ties']
  for ours, exact in zip(listed(scores_BL, 2000, 0.5), listed(scores_BL, 2000)):
    np.testing.assert_array_equal(ours, exact)


def test_a_tpu_looks_for_less_than_everything():
  given = BestLabels.none(B, K), jnp.zeros((B, 2000)), jnp.int32(0)

  def lowered(recall, platform):
    traced = add.trace(*given, recall=recall)
    return traced.lower(lowering_platforms=(platform,)).as_text()

  assert 'ApproxTopK' not in lowered(1.0, 'tpu')
  assert 'ApproxTopK' not in lowered(0.75, 'cpu')
  nearly = lowered(0.75, 'tpu')
  assert 'ApproxTopK' in nearly and 'recall_target = 7.5' in nearly
