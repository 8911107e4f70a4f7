"""Nearest documents, against NumPy in float64."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
from scipy import sparse

from xjax.core.types import PAD
from xjax.models.lookup.neighbours import NearestDocuments

ROUTES = [
  {},
  {'share': 0.0},
  {'share': 1.0},
  {'threads': 2},
  {'threads': 2, 'block': 7},
  {'block': 1},
]


def small_numbers(seed, n, dim, density=0.4, lowest=0):
  """Returns rows of few small numbers: many cosines are equal."""
  rng = np.random.default_rng(seed)
  values = rng.integers(lowest, 4, (n, dim)) * (rng.random((n, dim)) < density)
  return values.astype(np.float32)


def by_definition(documents, rows, k, exclude=None):
  a, b = documents.astype(np.float64), rows.astype(np.float64)
  lengths = np.outer(np.linalg.norm(b, axis=1), np.linalg.norm(a, axis=1))
  cosines = (b @ a.T / np.where(lengths > 0, lengths, 1)).astype(np.float32)
  ids = np.full((len(rows), k), PAD, np.int32)
  sims = np.full((len(rows), k), -np.inf, np.float32)
  for i, row in enumerate(cosines):
    # Cosines are rounded in different orders, but differ by more if not equal.
    order = np.lexsort((np.arange(len(row)), -np.round(row, 6)))
    order = [x for x in order if row[x] > 0]
    if exclude is not None:
      order = [x for x in order if x != exclude[i]]
    ids[i, : len(order[:k])] = order[:k]
    sims[i, : len(order[:k])] = row[order[:k]]
  return ids, sims


def assert_same_lists(found, expected):
  """Lists may differ where cosines differ by rounding only."""
  np.testing.assert_array_equal(found[0] == PAD, expected[0] == PAD)
  np.testing.assert_allclose(found[1], expected[1], atol=2e-7)


def assert_equal(found, expected):
  np.testing.assert_array_equal(found[0], expected[0])
  np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize('lowest', [0, -3])
def test_threads_blocks_and_storage_change_no_bit(lowest):
  documents = sparse.csr_array(small_numbers(3, 90, 30, 0.3, lowest))
  rows = sparse.csr_array(small_numbers(4, 25, 30, 0.3, lowest))
  exclude = np.arange(25) - 1
  expected = NearestDocuments(documents).nearest(rows, 8, exclude)
  for options in ROUTES:
    search = NearestDocuments(documents, **options)
    assert_equal(search.nearest(rows, 8, exclude), expected)
    alone = [
      search.nearest(rows[i : i + 1], 8, exclude[[i]]) for i in range(25)
    ]
    assert_equal([np.concatenate(x) for x in zip(*alone)], expected)


@pytest.mark.parametrize('options', ROUTES)
def test_equal_documents_are_in_order_and_have_the_cosine_one(options):
  rng = np.random.default_rng(7)
  row = rng.random((1, 40), np.float32)
  documents = np.concatenate([row] * 9 + [rng.random((3, 40), np.float32)])
  search = NearestDocuments(sparse.csr_array(documents), **options)
  ids, sims = search.nearest(sparse.csr_array(row), 5, np.array([1]))
  assert ids.tolist() == [[0, 2, 3, 4, 5]] and (sims == 1).all()
  scaled = search.nearest(sparse.csr_array(row * np.float32(2**60)), 5)
  assert scaled[0].tolist() == [[0, 1, 2, 3, 4]] and (scaled[1] == 1).all()


def test_only_cosines_above_zero_are_listed():
  documents = np.float32([[0, 0, 0], [1, 0, 0], [-1, 0, 0], [0, 1e-8, 1]])
  rows = np.float32([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, -1], [1, 1, 0]])
  search = NearestDocuments(sparse.csr_array(documents))
  ids, sims = search.nearest(sparse.csr_array(rows), 3)
  rest = [PAD, PAD]
  assert ids.tolist() == [
    [PAD, *rest],
    [1, *rest],
    [3, *rest],  # a cosine of 1e-8 is far below the errors of float32 sums
    [PAD, *rest],
    [1, 3, PAD],
  ]
  np.testing.assert_allclose(sims[2:, 0], [1e-8, -np.inf, 0.5**0.5], rtol=1e-6)
  assert (np.isneginf(sims) == (ids == PAD)).all()


@hypothesis.given(
  st.integers(0, 2**32 - 1),
  st.integers(1, 40),
  st.integers(1, 12),
  st.sampled_from([1, 2, 5, 9, 70]),
  st.sampled_from([0, -3]),
  st.sampled_from(ROUTES),
  st.booleans(),
)
@hypothesis.settings(max_examples=50)
def test_lists_are_those_of_the_definition(
  seed, n, dim, k, lowest, options, excludes
):
  documents = small_numbers(seed, n, dim, lowest=lowest)
  rows = small_numbers(seed + 1, 5, dim, lowest=lowest)
  exclude = None
  if excludes:
    exclude = np.random.default_rng(seed + 2).integers(-1, n, 5)
  expected = by_definition(documents, rows, k, exclude)
  search = NearestDocuments(sparse.csr_array(documents), **options)
  found = search.nearest(sparse.csr_array(rows), k, exclude)
  assert found[0].dtype == np.int32 and found[1].dtype == np.float32
  assert found[0].shape == found[1].shape == (5, k)
  assert_same_lists(found, expected)
  listed = found[0] != PAD
  for ids, sims, real in zip(*found, listed):
    order = np.lexsort((ids[real], -sims[real]))
    assert (order == np.arange(real.sum())).all()


@pytest.mark.parametrize('lowest', [0, -3])
def test_lengths_of_rows_change_nothing(lowest):
  documents = small_numbers(0, 60, 12, lowest=lowest)
  rows = small_numbers(1, 20, 12, lowest=lowest)
  expected = NearestDocuments(sparse.csr_array(documents)).nearest(
    sparse.csr_array(rows), 9
  )
  rng = np.random.default_rng(2)
  sizes = (np.float32(2) ** rng.integers(-100, 100, n) for n in (60, 20))
  documents, rows = (x * y[:, None] for x, y in zip((documents, rows), sizes))
  search = NearestDocuments(sparse.csr_array(documents))
  assert_equal(search.nearest(sparse.csr_array(rows), 9), expected)
