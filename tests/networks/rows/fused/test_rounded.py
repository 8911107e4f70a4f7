"""Tests that rows of 2-byte and 1-byte weights round to neighbours."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.fused_rows import FREQUENT, Step, draw, fused_results
from xjax.losses.bce import bce
from xjax.networks.rows.fused import RowUpdate, StepScalars, fused_loss
from xjax.networks.rows.kahan import LEFT_OUT
from xjax.networks.rows.storage import E4M3, Storage, decode_weights
from xjax.networks.rows.update import FusedAdagrad, FusedSGD

ROUNDED = [Storage.BFLOAT16, Storage.COMPENSATED, Storage.FLOAT8]


@pytest.fixture(params=ROUNDED)
def step(request):
  return Step(storage=request.param, rule=FusedAdagrad())


def numbers_of(dtype):
  """Returns all finite numbers of bfloat16 or E4M3, ascending."""
  unsigned = {jnp.bfloat16: np.uint16, E4M3: np.uint8}[dtype]
  # The first code that is not finite: exponent 255, or in E4M3 all bits set.
  end = {jnp.bfloat16: 0x7F80, E4M3: 0x7F}[dtype]
  numbers = np.arange(end).astype(unsigned).view(dtype).astype(np.float64)
  return np.concatenate([-numbers[:0:-1], numbers])


def nearest(found_LD, exact_LD, numbers):
  """Returns the share of weights that became the nearest number.

  Each weight must be one of the two neighbours of the exact value, up to the
  precision of float32.
  """
  slack_LD = 2e-6 * np.maximum(np.abs(exact_LD), np.abs(exact_LD).mean())
  low_LD = numbers[np.searchsorted(numbers, exact_LD - slack_LD, 'right') - 1]
  high_LD = numbers[np.searchsorted(numbers, exact_LD + slack_LD, 'left')]
  assert ((low_LD <= found_LD) & (found_LD <= high_LD)).all()
  least_LD = np.minimum(exact_LD - low_LD, high_LD - exact_LD)
  return (np.abs(found_LD - exact_LD) <= least_LD + slack_LD).mean()


def test_weights_become_neighbours(step):
  result, exact_LD = step.fused(), step.dense().rows['kernel']
  kernel_LD, numbers = result.kernel(), numbers_of(jnp.bfloat16)
  if step.storage is Storage.FLOAT8:
    scale_L1 = 2.0 ** result.rows['exponent'].astype(np.float64)[:, None]
    kernel_LD, exact_LD = kernel_LD / scale_L1, exact_LD / scale_L1
    numbers = numbers_of(E4M3)
    largest_L = np.abs(exact_LD).max(axis=1)
    assert (largest_L > 224 * (1 - 1e-6)).all()
    assert (largest_L < 448 * (1 + 1e-6)).all()
  drawn = np.ones(len(kernel_LD), bool)
  if step.storage is Storage.COMPENSATED:
    drawn = ~FREQUENT
    assert nearest(kernel_LD[~drawn], exact_LD[~drawn], numbers) == 1
  # The distance sets the chance: the nearer one is drawn 3 times of 4.
  assert 0.7 < nearest(kernel_LD[drawn], exact_LD[drawn], numbers) < 0.8


def left_out(result):
  """Returns LEFT_OUT by label, in float64; each block has one row here."""
  return result.slots[LEFT_OUT].view(jnp.bfloat16).astype(np.float64)


def test_what_rounding_leaves_out_is_kept():
  step = Step(storage=Storage.COMPENSATED, rule=FusedAdagrad())
  result, exact_LD = step.fused(), step.dense().rows['kernel']
  kernel_LD, left_out_LD = result.kernel(), left_out(result)
  spacing_LD = 2.0 ** (np.floor(np.log2(np.abs(kernel_LD))) - 7)
  off_LD = np.abs(kernel_LD + left_out_LD - exact_LD)
  assert (off_LD <= spacing_LD * 2.0**-9 + 1e-6)[FREQUENT].all()
  assert np.abs(kernel_LD - exact_LD)[FREQUENT].max() > 1e-3
  np.testing.assert_array_equal(left_out_LD[~FREQUENT], 0)


def test_meshes_and_chunks_draw_the_same(step):
  sharded, twin = step.at(mesh=(2, 4), chunk=7).fused(), step.fused()
  assert sharded.loss == pytest.approx(twin.loss, rel=1e-6)
  # Sums in another order differ in their last digits, so that a few weights
  # are rounded to the other neighbour.
  assert (sharded.kernel() != twin.kernel()).mean() < 2e-3


def test_draws_are_of_the_key_alone():
  step = Step(storage=Storage.BFLOAT16, rule=FusedAdagrad())
  first, other = step.fused(), step.at(key=step.key + 1).fused()
  fused_results.cache_clear()
  again = step.fused()
  assert again is not first
  np.testing.assert_array_equal(again.kernel(), first.kernel())
  # Two draws between the same neighbours differ in a third of all weights.
  assert 0.28 < (other.kernel() != first.kernel()).mean() < 0.38
  np.testing.assert_array_equal(other.rows['bias'], first.rows['bias'])


@pytest.mark.parametrize('storage', [Storage.BFLOAT16, Storage.FLOAT8])
def test_weights_decay_by_less_than_their_spacing(storage):
  steps, rate, decay = 300, 0.1, 0.01
  step = Step(storage=storage)
  document_BD, positives_BP, mask_B = map(jnp.asarray, draw())
  with step.on_mesh():
    graphdef, params = nnx.split(step.start()[0])

    def taken(number, params):
      key = number * jnp.uint32(step.key)
      scalars = StepScalars(jnp.float32(rate), jnp.float32(decay), key)
      _, (rows, _) = fused_loss(
        nnx.merge(graphdef, params),
        document_BD,
        positives_BP,
        mask_B & False,  # no document: no gradient
        bce,
        RowUpdate(FusedSGD(), {}, scalars),
      )
      return rows

    ends = (jnp.uint32(0), jnp.uint32(steps))
    run = jax.jit(lambda params: jax.lax.fori_loop(*ends, taken, params))
    rows = nnx.to_pure_dict(jax.block_until_ready(run(params)))
  first = step.before()
  labels = len(first.rows['bias'])
  kernel_LD = np.asarray(decode_weights(rows, jnp.float32), np.float64)[:labels]
  share = np.abs(kernel_LD).mean() / np.abs(first.kernel()).mean()
  expected = (1 - rate * decay) ** steps
  # Each step changes less than the spacing: with rounding to the nearest number
  # no step would change anything. Draws are independent, and their variance is
  # at most the spacing times the change.
  spacing = {Storage.BFLOAT16: 2.0**-7, Storage.FLOAT8: 2.0**-3}[storage]
  error = (steps * rate * decay * spacing / kernel_LD.size) ** 0.5
  assert 0.7 < expected < 0.75
  assert abs(share - expected) < 3 * error
  np.testing.assert_array_equal(rows['bias'][:labels], first.rows['bias'])
