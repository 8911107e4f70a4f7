"""Tests that stochastic rounding is unbiased and depends on key and place."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.networks.rows.storage import (
  E4M3,
  power_of_2,
  random_bits,
  to_bfloat16,
  to_e4m3,
)

DRAWS = 10_000
KEY = 0x2545F491  # any 32 bits, as the key of a step has
LARGEST = 448.0
# All numbers of E4M3 from 0 on: 7 subnormals, and 8 for each power of 2.
NUMBERS = np.unique(
  np.arange(128, dtype=np.uint8).view(E4M3).astype(np.float64)
)
NUMBERS = NUMBERS[np.isfinite(NUMBERS)]


@functools.cache
def bits(rows, dim, key=KEY):
  return jax.jit(random_bits, static_argnums=2)(
    jnp.uint32(key), jnp.arange(rows, dtype=jnp.int32), dim
  )


def half_precision(values_CD, bits_CD):
  rounded_CD = to_bfloat16(jnp.asarray(values_CD, jnp.float32), bits_CD)
  assert rounded_CD.dtype == jnp.bfloat16
  return np.asarray(rounded_CD, np.float64)


def quarter_precision(values_CD, bits_CD):
  """Returns the decoded rounded values, and the exponents of the rows."""
  given_CD = jnp.asarray(values_CD, jnp.float32)
  rounded_CD, exponent_C = jax.jit(to_e4m3)(given_CD, bits_CD)
  assert (rounded_CD.dtype, exponent_C.dtype) == (E4M3, jnp.int8)
  scale_C = 2.0 ** np.asarray(exponent_C, np.float64)
  found_CD = np.asarray(rounded_CD, np.float64) * scale_C[:, None]
  return found_CD, np.asarray(exponent_C)


def neighbours(values, numbers):
  """Returns the nearest of ascending numbers on both sides of each value."""
  size, sign = np.abs(values), np.sign(values)
  low = numbers[np.searchsorted(numbers, size, 'right') - 1]
  high = numbers[np.searchsorted(numbers, size, 'left')]
  return sign * low, sign * high


def bfloat16_numbers(values):
  """Returns all bfloat16 numbers from 0 to twice the largest of some values."""
  numbers = np.arange(0x7F80, dtype=np.uint16).view(jnp.bfloat16)
  numbers = numbers.astype(np.float64)
  return numbers[numbers <= 2 * np.abs(values).max()]


def assert_unbiased(rounded_ND, values_D, low_D, high_D):
  """Checks that means are within 3 standard errors of a draw of two values."""
  share_D = (values_D - low_D) / np.where(high_D != low_D, high_D - low_D, 1)
  error_D = np.sqrt(share_D * (1 - share_D) / DRAWS) * np.abs(high_D - low_D)
  off_D = np.abs(rounded_ND.mean(axis=0) - values_D)
  assert (off_D <= 3 * error_D + 1e-9 * np.abs(values_D)).all(), off_D / error_D
  for column, (low, high) in enumerate(zip(low_D, high_D)):
    assert set(rounded_ND[:, column]) == {low, high}


BFLOAT16_VALUES = np.array(
  [1.001, -1.0001, 3.14159, -0.3, 1e-3, 255.9, 1.9999, 7e-30, -2e30], np.float32
).astype(np.float64)


# The first value sets the scale. The least normal number of E4M3 is 1/64, its
# least subnormal one 1/512; 433 lies between its two largest numbers.
E4M3_VALUES = np.array(
  [448, 433, -420.5, 17, 0.3, -0.016, 0.0147, -0.003, 0.0009, -1.2e-5],
  np.float32,
).astype(np.float64)


@pytest.mark.parametrize('exponent', [None, -9, 20])
def test_rounding_is_unbiased(exponent):
  """To bfloat16, or to E4M3 whose rows are scaled by 2^exponent."""
  scale = 1.0 if exponent is None else 2.0**exponent
  values_D = BFLOAT16_VALUES if exponent is None else E4M3_VALUES
  numbers = bfloat16_numbers(values_D) if exponent is None else NUMBERS
  tiled_ND = np.tile(values_D * scale, (DRAWS, 1))
  if exponent is None:
    rounded_ND = half_precision(tiled_ND, bits(*tiled_ND.shape))
  else:
    rounded_ND, exponent_N = quarter_precision(tiled_ND, bits(*tiled_ND.shape))
    np.testing.assert_array_equal(exponent_N, exponent)
  low_D, high_D = (x * scale for x in neighbours(values_D, numbers))
  assert_unbiased(rounded_ND, values_D * scale, low_D, high_D)


def drawn_rows():
  """Returns rows of all sizes, whose entries differ much in size as well."""
  rng = np.random.default_rng(1)
  sizes = rng.normal(size=(400, 1)) * 2.0 ** rng.integers(-60, 60, (400, 1))
  values_CD = rng.normal(size=(400, 9)) * 10.0 ** -rng.integers(0, 6, (400, 9))
  return (sizes * values_CD).astype(np.float32).astype(np.float64)


def test_e4m3_is_a_neighbour_by_the_least_scale():
  values_CD = drawn_rows()
  found_CD, exponent_C = quarter_precision(values_CD, bits(400, 9))
  largest_C = np.abs(values_CD).max(axis=1)
  least_C = np.ceil(np.log2(largest_C / LARGEST))
  np.testing.assert_array_equal(exponent_C, least_C)
  scale_C1 = 2.0 ** least_C[:, None]
  low_CD, high_CD = neighbours(values_CD / scale_C1, NUMBERS)
  scaled_CD = found_CD / scale_C1
  assert ((scaled_CD == low_CD) | (scaled_CD == high_CD)).all()
  assert 0.4 < (scaled_CD == low_CD).mean() < 0.6


@pytest.mark.parametrize('power', [-20, 0, 13])
def test_the_largest_number_needs_no_larger_scale(power):
  ulp = np.float32(2.0**-15)
  largest_C = np.array([LARGEST, LARGEST + ulp, LARGEST - ulp, 224.0, 225.0])
  values_CD = (largest_C * 2.0**power)[:, None].astype(np.float32)
  _, exponent_C = quarter_precision(values_CD, bits(5, 1))
  np.testing.assert_array_equal(
    exponent_C - power, np.array([0, 1, 0, -1, 0], int)
  )


def test_exact_numbers_stay():
  numbers = bfloat16_numbers(np.float64(100))
  tiled_CD = np.tile(numbers, (2, 1))
  rounded_CD = half_precision(tiled_CD, bits(*tiled_CD.shape))
  np.testing.assert_array_equal(rounded_CD, tiled_CD)
  signed = np.concatenate([NUMBERS, -NUMBERS])
  tiled_CD = np.tile(signed, (2, 1))
  found_CD, _ = quarter_precision(tiled_CD, bits(*tiled_CD.shape))
  np.testing.assert_array_equal(found_CD, tiled_CD)


def test_what_is_stored_stays_whatever_was_drawn():
  """Checks also rows whose largest entry was rounded to a power of 2."""
  first_CD, _ = quarter_precision(drawn_rows(), bits(400, 9))
  for key in range(1, 4):
    again_CD, _ = quarter_precision(first_CD, bits(400, 9, KEY + key))
    np.testing.assert_array_equal(again_CD, first_CD)


def test_rows_of_zeros_and_of_nearly_nothing():
  values_CD = np.zeros((3, 4))
  values_CD[1, 2], values_CD[2] = -1e-38, 1e-37
  found_CD, exponent_C = quarter_precision(values_CD, bits(3, 4))
  np.testing.assert_array_equal(found_CD[0], 0)
  assert (np.abs(found_CD - values_CD) <= 2.0**-126).all()
  assert (exponent_C >= -126).all()
  exponents = jnp.arange(-126, 128, dtype=jnp.int32)
  expected = 2.0 ** np.arange(-126.0, 128)
  np.testing.assert_array_equal(power_of_2(exponents), expected)


def test_bits_are_of_the_place_whatever_the_chunks():
  whole_CD = bits(300, 7, 5)
  for start, size in ((0, 1), (17, 48), (299, 1)):
    ids_C = start + jnp.arange(size, dtype=jnp.int32)
    part_CD = random_bits(jnp.uint32(5), ids_C, 7)
    np.testing.assert_array_equal(part_CD, whole_CD[start : start + size])
  # The bits of a column do not depend on the number of columns.
  np.testing.assert_array_equal(bits(300, 4, 5), whole_CD[:, :4])


def ones(x_CD):
  """Returns the share of ones at each of 32 places."""
  places = np.arange(32, dtype=np.uint32)
  return (np.ravel(x_CD)[:, None] >> places & 1).mean(axis=0)


def test_bits_are_even_and_differ_by_key_row_and_column():
  x_CD = np.asarray(bits(400, 300, 1))
  assert len(np.unique(x_CD)) > 0.999 * x_CD.size
  pairs = {
    'itself': x_CD,
    'row': x_CD[1:] ^ x_CD[:-1],
    'column': x_CD[:, 1:] ^ x_CD[:, :-1],
    'key': x_CD ^ np.asarray(bits(400, 300, 2)),
    'diagonal': x_CD[1:, 1:] ^ x_CD[:-1, :-1],
  }
  for name, mask in pairs.items():
    error = 0.5 / np.sqrt(mask.size)
    assert (np.abs(ones(mask) - 0.5) < 4.5 * error).all(), name


@pytest.mark.parametrize('wrong', [np.inf, -np.inf, np.nan])
def test_rows_that_are_not_finite_stay_so(wrong):
  values_CD = np.array([[2, wrong, -1e30], [2, 1, -1]], np.float32)
  rounded_CD, _ = to_e4m3(jnp.asarray(values_CD), bits(2, 3))
  assert np.isnan(np.asarray(rounded_CD, np.float32)).all(axis=1).tolist() == [
    True,
    False,
  ]
  assert not np.isfinite(half_precision(values_CD, bits(2, 3))[0, 1])
