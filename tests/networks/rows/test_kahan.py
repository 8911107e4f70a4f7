"""Tests that rounding errors of bfloat16 rows are stored and added later."""

import functools

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import on_mesh
from xjax.core.mesh import padded_labels
from xjax.core.mesh_config import LABEL_MULTIPLE
from xjax.core.types import PAD
from xjax.networks.heads.chunks import ALL_DEVICES
from xjax.networks.rows.kahan import LEFT_OUT, PLACE, kahan_slots, kahan_step
from xjax.networks.rows.storage import random_bits

D, L = 4, LABEL_MULTIPLE + 71  # two rows a block
STEPS, CHANGE = 400, 2.0**-12
FREQUENT = np.arange(L) % 3 == 0


@functools.cache
def after(mesh, chunks=1):
  """Returns rows that begin as 1, and left-out parts, after many small steps.

  Both arrays are float64.
  """
  rows = padded_labels(L)

  def shard(kernel_RD, slots):
    size = len(kernel_RD) // chunks
    first = lax.axis_index(ALL_DEVICES) * len(kernel_RD)

    def step(number, carry):
      kernel_RD, left_out = carry
      for start in range(0, len(kernel_RD), size):
        ids_C = first + start + jnp.arange(size, dtype=jnp.int32)
        cut = kernel_RD[start : start + size].astype(jnp.float32)
        new, left_out = kahan_step(
          cut,
          jnp.full_like(cut, CHANGE),
          random_bits(jnp.uint32(number), ids_C, D),
          {**slots, LEFT_OUT: left_out},
          start + jnp.arange(len(cut), dtype=jnp.int32),
        )
        kernel_RD = kernel_RD.at[start : start + size].set(new)
      return kernel_RD, left_out

    return lax.fori_loop(0, STEPS, step, (kernel_RD, slots[LEFT_OUT]))

  spec = jax.P(ALL_DEVICES)
  with on_mesh(*mesh):
    run = jax.jit(
      jax.shard_map(
        shard, in_specs=(spec, spec), out_specs=(spec, spec), check_vma=False
      )
    )
    result = run(jnp.ones((rows, D), jnp.bfloat16), kahan_slots(FREQUENT, D))
    kernel_RD, left_out_XD = map(np.asarray, jax.block_until_ready(result))
  left_out_XD = left_out_XD.view(jnp.bfloat16)
  return [x.astype(np.float64) for x in (kernel_RD, left_out_XD)]


def test_places():
  slots = kahan_slots(FREQUENT, D)
  place_L = np.asarray(slots[PLACE])
  assert place_L.shape == (padded_labels(L),) and place_L.dtype == np.int32
  np.testing.assert_array_equal(place_L[:L] != PAD, FREQUENT)
  np.testing.assert_array_equal(place_L[L:], PAD)
  # Every third label has a place: never both rows of a block of two.
  assert set(place_L) == {PAD, 0}
  assert slots[LEFT_OUT].shape == (LABEL_MULTIPLE, D)
  assert slots[LEFT_OUT].dtype == jnp.uint16  # the bits of bfloat16
  both = np.zeros(L, bool)
  both[[0, 1, 5]] = True
  slots = kahan_slots(both, D)
  assert slots[PLACE][:6].tolist() == [0, 1, PAD, PAD, PAD, 0]
  assert slots[LEFT_OUT].shape == (2 * LABEL_MULTIPLE, D)
  slots = kahan_slots(np.zeros(3, bool), D)
  assert (np.asarray(slots[PLACE]) == PAD).all()
  assert slots[LEFT_OUT].shape == (LABEL_MULTIPLE, D)


def test_small_steps_add_up():
  # After 1, bfloat16 has 1 + 2^-7: rounding to the nearest would keep 1.
  assert jnp.bfloat16(1) + jnp.bfloat16(CHANGE) == 1
  kernel_LD, left_out = after((1, 1))
  exact = 1 + STEPS * CHANGE
  sum_LD = kernel_LD[:L][FREQUENT]
  nearest = float(jnp.bfloat16(exact))
  np.testing.assert_array_equal(sum_LD, nearest)
  # A block has two rows and one place.
  at = np.flatnonzero(FREQUENT) // 2
  np.testing.assert_allclose(sum_LD + left_out[at], exact, atol=2.0**-15)


def test_other_labels_are_right_on_average():
  kernel_LD = after((1, 1))[0][:L][~FREQUENT]
  exact = 1 + STEPS * CHANGE
  # Draws are independent, with variance change (spacing - change) each.
  deviation = np.sqrt(STEPS * CHANGE * 2.0**-7)
  assert np.abs(kernel_LD.mean() - exact) < 3 * deviation / kernel_LD.size**0.5
  assert 0.8 * deviation < kernel_LD.std() < 1.2 * deviation


@pytest.mark.parametrize(('mesh', 'chunks'), [((2, 4), 1), ((1, 1), 4)])
def test_meshes_and_chunks_are_bitwise_the_same(mesh, chunks):
  for sharded, expected in zip(after(mesh, chunks), after((1, 1))):
    np.testing.assert_array_equal(sharded, expected)
