import jax
import jax.numpy as jnp
import numpy as np

from xjax.networks.encoders.layers import kept_entries, seeded_dropout, seeds_of

SHAPE = 8, 64, 256
SEEDS = seeds_of(jax.random.key(0))
BITS = np.array([[1, 0], [0, 1], [2**31, 0], [3, 3]], np.uint32)


def flipped(seeds=SEEDS, turn=0, rate=0.1, shape=SHAPE):
  return np.asarray(kept_entries(shape, rate, seeds, turn))


def correlation(a, b):
  return abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) * a.size**0.5


def test_how_often():
  """Checks the kept share: in all, in each row and in each column."""
  kept = flipped()
  for axes in [(0, 1, 2), 2, (0, 1)]:
    share = kept.mean(axis=axes)
    deviation = (0.1 * 0.9 * share.size / kept.size) ** 0.5
    assert np.abs(share - 0.9).max() < 4.5 * deviation
    if share.size > 1:  # shares vary as they do by chance
      np.testing.assert_allclose(share.std(), deviation, rtol=0.25)


def test_independence():
  """Checks neighbours along each axis, and other turns, seeds and keys."""
  kept = flipped(rate=0.5)
  pairs = [(kept[1:], kept[:-1]), (kept[:, 1:], kept[:, :-1])]
  pairs += [(kept[..., n:], kept[..., :-n]) for n in (1, 2, 3, 16, 128)]
  pairs += [(kept, flipped(turn=turn, rate=0.5)) for turn in (1, 2, 11)]
  other = seeds_of(jax.random.key(1))
  pairs += [(kept, flipped(other, rate=0.5))]
  pairs += [(kept, flipped(SEEDS ^ jnp.array(bits), rate=0.5)) for bits in BITS]
  assert max(correlation(a, b) for a, b in pairs) < 4.5


def test_pairs_of_rows_differ():
  """Checks that no two of 512 rows are equal, even if shifted by columns."""
  rows = flipped(rate=0.5).reshape(-1, SHAPE[-1])
  seen = [row[n : n + 192].tobytes() for row in rows for n in range(64)]
  assert len(set(seen)) == len(seen)


def test_of_the_seeds_alone():
  jitted = jax.jit(lambda seeds: kept_entries(SHAPE, 0.5, seeds, 1))
  np.testing.assert_array_equal(jitted(SEEDS), flipped(turn=1, rate=0.5))


def test_seeds_of_many_draws():
  seeds = np.asarray(seeds_of(jax.random.key(0), 4, 3))
  assert seeds.shape == (4, 3, 2)
  assert len(np.unique(seeds)) == seeds.size


def test_dropped():
  x = jnp.full((50, 40), 3.0)
  out = np.asarray(seeded_dropout(x, 0.25, SEEDS))
  np.testing.assert_allclose(np.unique(out), [0, 4])
  np.testing.assert_array_equal(out != 0, kept_entries(x.shape, 0.25, SEEDS))
  assert seeded_dropout(x, 0.0, SEEDS) is x
  assert seeded_dropout(x, 0.5, None) is x
  assert float(seeded_dropout(x, 1e-12, SEEDS).min()) == 3.0
