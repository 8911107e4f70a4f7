"""Balanced k-means: sizes, what is found, and what decides it."""

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest
from scipy import sparse

from xjax.data.label_trees.clustering import kmeans


def points(rng, n, d=6):
  dense = rng.random((n, d)) * (rng.random((n, d)) < 0.6)
  return sparse.csr_array(dense.astype(np.float32))


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.data(), st.booleans())
def test_sizes_differ_by_at_most_one(seed, data, spherical):
  """Also of rows of zeros, and of few members of many rows."""
  n = data.draw(st.integers(1, 40))
  k = data.draw(st.integers(1, n))
  rng = np.random.default_rng(seed)
  members = rng.permutation(50)[:n]
  part = kmeans(points(rng, 50), members, k, 0, spherical=spherical)
  assert part.shape == (n,) and part.dtype == np.int64
  sizes = np.bincount(part, minlength=k)
  assert len(sizes) == k and sizes.max() - sizes.min() <= 1


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.data(), st.booleans())
def test_without_a_limit_no_cluster_is_empty(seed, data, round_):
  """Checks clusters whose numbers have no gap, and rows of zeros as well."""
  n = data.draw(st.integers(1, 40))
  k = data.draw(st.integers(1, n))
  rows = points(np.random.default_rng(seed), n)
  options = {'balanced': False, 'spherical': round_}
  part = kmeans(rows, np.arange(n), k, 0, **options)
  assert part.shape == (n,) and part.dtype == np.int64
  sizes = np.bincount(part)
  assert len(sizes) <= k and sizes.min() >= 1 and sizes.sum() == n
  again = kmeans(rows, np.arange(n), k, 0, **options, workers=3)
  np.testing.assert_array_equal(part, again)


@pytest.mark.parametrize('seed', range(2))
def test_near_and_far_groups_are_told_apart(seed):
  """By distance: by products alone the far ones would draw all others."""
  for draw in (0, 2, 4):
    rng = np.random.default_rng(draw)
    group = rng.permutation(np.arange(60) % 6)
    centres = rng.random((6, 8)) * rng.choice([1, 3, 9], 6)[:, None]
    dense = centres[group] + 0.3 * rng.random((60, 8))
    rows = sparse.csr_array(dense.astype(np.float32))
    part = kmeans(rows, np.arange(60), 6, seed, spherical=False)
    assert len(set(zip(part.tolist(), group.tolist(), strict=True))) == 6


def test_those_stay_to_whom_it_matters_most():
  """Six are nearest to the first of two clusters, which has room for four."""
  angles = np.array([0, 0.02, 0.04, 0.3, 0.5, 0.6, 1.5, 1.55])
  dense = np.stack([np.cos(angles), np.sin(angles)], axis=1)
  rows = sparse.csr_array(dense.astype(np.float32))
  for seed in range(5):
    part = kmeans(rows, np.arange(8), 2, seed)
    assert (part[:4] == part[0]).all() and (part[4:] == 1 - part[0]).all()


@pytest.mark.parametrize('spherical', [True, False])
def test_the_seed_alone_decides(spherical):
  rows = points(np.random.default_rng(0), 200, 20)
  members = np.arange(150)
  clusterings = [
    kmeans(rows, members, 7, seed, spherical=spherical, workers=n)
    for seed, n in [(1, 1), (1, 1), (1, 2), (1, 16), (2, 1)]
  ]
  for same in clusterings[1:4]:
    np.testing.assert_array_equal(same, clusterings[0])
  assert (clusterings[4] != clusterings[0]).any()
