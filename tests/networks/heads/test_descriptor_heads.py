"""The unified head: rows that a step leaves out."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.heads import (
  LENGTHS,
  SEEN,
  UNIFIED,
  L,
  built,
  hidden_states,
  values_of,
)
from tests.fixtures.networks import on_mesh
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.descriptor_heads import UnifiedConfig
from xjax.networks.heads.head import TokenFeatures


@pytest.fixture
def head():
  with on_mesh():
    return built(UNIFIED)


def thinned(head, seed):
  return head.with_dropout(nnx.Rngs(dropout=jax.random.key(seed)))


def test_a_thinned_head_lacks_rows_of_its_own(head):
  before = values_of(head)
  rows_of = [values_of(thinned(head, seed)) for seed in (0, 0, 1)]
  jax.tree.map(np.testing.assert_array_equal, rows_of[0], rows_of[1])
  own_SL = np.array([params.pop('own') for params in rows_of])
  # The head does not change, and a thinned head differs in `own` alone.
  jax.tree.map(np.testing.assert_array_equal, values_of(head), before)
  own_L = before.pop('own')
  for params in rows_of:
    jax.tree.map(np.testing.assert_array_equal, params, before)
  assert set(np.unique(own_SL)) == {0, 1}
  assert not own_SL[:, own_L == 0].any()
  kept_SX = own_SL[:, own_L == 1]
  assert kept_SX.shape == (3, SEEN.sum())
  dropped = 1 - kept_SX.mean(axis=1)
  np.testing.assert_allclose(dropped, 0.3, atol=4 * np.sqrt(0.21 / 180))
  assert 0.2 < (kept_SX[0] != kept_SX[2]).mean() < 0.65


def test_a_label_without_its_rows_is_scored_by_its_descriptor(head):
  features = TokenFeatures(*map(jnp.asarray, (hidden_states(), LENGTHS)))
  thin = thinned(head, 5)
  bare_L = (thin.own[:L] == 0) & SEEN

  def logits(head):
    rows = nnx.to_pure_dict(split_head(head).rows)
    return np.asarray(head.logits(features, rows)[:, :L])

  whole_BL, thin_BL = logits(head), logits(thin)
  np.testing.assert_array_equal(thin_BL[:, ~bare_L], whole_BL[:, ~bare_L])
  for name in ('attention', 'output', 'bias'):
    param = getattr(head, name)
    param[...] = param[...].at[np.flatnonzero(bare_L)].set(0)
  np.testing.assert_allclose(thin_BL, logits(head), atol=1e-6)
  assert np.abs(thin_BL - whole_BL)[:, bare_L].max() > 1


def test_without_row_dropout_nothing_is_drawn():
  with on_mesh():
    head = built(UnifiedConfig(row_dropout=0.0))
  assert head.with_dropout(nnx.Rngs(0)) is head
