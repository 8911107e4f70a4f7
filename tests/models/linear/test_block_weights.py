"""Tests weights in blocks: their values, their files, and damaged arrays."""

import dataclasses

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from xjax.core.arrays import Arrays
from xjax.core.errors import DataError
from xjax.models.linear.block_weights import NARROW, BlockWeights
from xjax.models.linear.classifiers import Classifiers

COLUMNS = np.array([0, 3, 4, 9])
D, C = 12, 9


def some(seed=0, share=0.3, columns=COLUMNS):
  """Returns dense weights and biases; some blocks may have no weights."""
  rng = np.random.default_rng(seed)
  shape = D, columns[-1]
  weights_DC = rng.normal(size=shape) * (rng.random(shape) < share)
  bias_C = rng.normal(size=shape[1])
  return weights_DC.astype(np.float32), bias_C.astype(np.float32)


def laid_out(weights_DC, bias_C, columns=COLUMNS):
  classifiers = Classifiers.from_dense(weights_DC, bias_C, 0.0)
  return BlockWeights.of([classifiers], columns, classifiers.weights.nnz)


def dense(blocks):
  """Returns the dense weights, read as the attributes describe them."""
  dense_DC = np.zeros((blocks.n_features, len(blocks.bias)), np.float32)
  for block, first in enumerate(blocks.columns[:-1]):
    for row in range(blocks.rows[block], blocks.rows[block + 1]):
      for at in range(blocks.entries[row], blocks.entries[row + 1]):
        place = int(first) + int(blocks.places[at])
        assert place < blocks.columns[block + 1]
        dense_DC[blocks.features[row], place] = blocks.values[at]
  return dense_DC


@settings(max_examples=40)
@given(
  st.integers(0, 99),
  st.sampled_from([0, 0.05, 0.5, 1]),
  st.lists(st.integers(1, 5), min_size=1, max_size=6),
)
def test_they_are_the_classifiers(seed, share, widths):
  columns = np.cumsum([0, *widths])
  weights_DC, bias_C = some(seed, share, columns)
  blocks = laid_out(weights_DC, bias_C, columns)
  np.testing.assert_array_equal(dense(blocks), weights_DC)
  np.testing.assert_array_equal(blocks.bias, bias_C)
  for first, last in zip(blocks.rows, blocks.rows[1:]):
    assert (np.diff(blocks.features[first:last]) > 0).all()
  assert (np.diff(blocks.entries) > 0).all()  # every feature has a weight
  assert_same(taken(blocks.arrays(), columns), blocks)


def taken(arrays, columns=COLUMNS):
  file_arrays = {f'weights/{name}': array for name, array in arrays.items()}
  file = Arrays('model.npz', file_arrays)
  blocks = BlockWeights.take(file, 'weights', columns)
  file.finish()
  return blocks


def assert_same(one, other):
  assert one.n_features == other.n_features
  for field in dataclasses.fields(one)[1:]:
    have, wanted = getattr(one, field.name), getattr(other, field.name)
    assert have.tobytes() == wanted.tobytes(), field.name
    assert have.dtype == wanted.dtype, field.name


@pytest.mark.parametrize('widest', [NARROW, NARROW + 1])
def test_wide_blocks_have_wider_places(widest):
  columns = np.array([0, 2, 2 + widest])
  weights_DC = np.zeros((3, columns[-1]), np.float32)
  weights_DC[[0, 1, 2], [1, -1, 2]] = 5
  blocks = laid_out(weights_DC, np.zeros(columns[-1], np.float32), columns)
  kind = np.uint16 if widest == NARROW else np.int32
  assert blocks.places.dtype == kind
  assert blocks.places.tolist() == [1, widest - 1, 0]
  assert_same(taken(blocks.arrays(), columns), blocks)


def put(name, at, value):
  def change(arrays):
    arrays[name] = arrays[name].copy()
    arrays[name][at] = value

  return change


DAMAGE = {
  'weights/rows: missing': lambda a: a.pop('rows'),
  'weights/bias: is float32': lambda a: a.update(bias=a['bias'][1:]),
  'weights/row_lengths: should go': put('row_lengths', 0, 100),
  'weights/rows: falls': put('rows', 1, 100),
  'weights/n_features: is -5': lambda a: a.update(n_features=np.int64(-5)),
  'weights: features of a block do not': put('feature_steps', 2, 0),
  'weights: features .* are not in .0, n_features': put('feature_steps', 0, -1),
  'weights: .* classifier outside of the block': put('places', 0, 3),
  'weights: a weight is not finite': put('values', 3, np.nan),
  'weights/other: unknown': lambda a: a.update(other=a['bias']),
}


@pytest.mark.parametrize('says', DAMAGE)
def test_damaged_arrays(says):
  arrays = laid_out(*some()).arrays()
  DAMAGE[says](arrays)
  with pytest.raises(DataError, match=f'model.npz: {says}'):
    taken(arrays)


@settings(max_examples=150)
@given(st.data())
def test_whatever_is_damaged_is_safe_to_read(data):
  """Checks that dense reads all accepted arrays within their bounds."""
  arrays = laid_out(*some(share=0.5)).arrays()
  name = data.draw(st.sampled_from(['rows', 'feature_steps', 'row_lengths']))
  at = data.draw(st.integers(0, len(arrays[name]) - 1))
  value = data.draw(st.integers(-(2**31), 2**31 - 1) | st.integers(-5, 30))
  put(name, at, value)(arrays)
  try:
    blocks = taken(arrays)
  except DataError:
    return
  dense(blocks)


@settings(max_examples=60)
@given(
  st.integers(0, 99),
  st.sampled_from([0, 0.05, 0.5, 1]),
  st.lists(st.integers(1, 9), min_size=1, max_size=6),
  st.lists(st.integers(0, D - 1), unique=True),
  st.data(),
)
def test_single_weights_are_found(seed, share, widths, features, data):
  columns = np.cumsum([0, *widths])
  weights_DC, bias_C = some(seed, share, columns)
  blocks = laid_out(weights_DC, bias_C, columns)
  some_C = data.draw(st.lists(st.integers(0, int(columns[-1]) - 1)))
  features = np.array(sorted(features), np.int64)
  weights = blocks.lookup(features, np.array(some_C, np.int64))
  np.testing.assert_array_equal(weights, weights_DC[features][:, some_C])
