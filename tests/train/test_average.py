import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.train.optimizer_config import EMAConfig, NoAverage, SWAConfig
from xjax.train.step import update_mean

STEPS = 12


def means(config):
  """The mean after each of some steps whose parameters are drawn."""
  drawn = np.random.default_rng(0).normal(size=(STEPS + 1, 3))
  drawn = drawn.astype(np.float32)

  @jax.jit
  def take(mean, newest, step):
    return update_mean(mean, newest, config.newest_share(step))

  found = [drawn[0]]
  for step in range(1, STEPS + 1):
    found.append(np.asarray(take(found[-1], drawn[step], jnp.int32(step))))
  return drawn, found


@pytest.mark.parametrize(
  ('start', 'every'), [(0, 1), (0, 5), (3, 2), (4, 4), (11, 3)]
)
def test_swa_is_the_plain_mean(start, every):
  drawn, found = means(SWAConfig(start, every))
  for step in range(STEPS + 1):
    taken = drawn[start : step + 1 : every] if step > start else drawn[[step]]
    np.testing.assert_allclose(found[step], taken.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize('start', [0, 4])
def test_ema_is_the_weighted_mean(start):
  drawn, found = means(EMAConfig(0.75, start))
  expected = drawn[start].astype(np.float64)
  for step in range(start + 1, STEPS + 1):
    expected = 0.75 * expected + 0.25 * drawn[step]
    np.testing.assert_allclose(found[step], expected, atol=1e-6)


@pytest.mark.parametrize('config', [SWAConfig(4, 2), EMAConfig(0.9, 4)])
def test_up_to_the_start_it_is_the_parameters(config):
  drawn, found = means(config)
  assert config.averages
  for step in range(STEPS + 1):
    assert config.differs(step) == (step > 4)
    if step <= 4:
      np.testing.assert_array_equal(found[step], drawn[step])
    else:
      assert (found[step] != drawn[step]).all()


def test_none():
  assert not NoAverage().averages and not NoAverage().differs(9)
  assert NoAverage().newest_share(jnp.int32(1)) == 1
