from flax import nnx
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from xjax.core.errors import ConfigError
from xjax.core.mesh import LABEL, MeshConfig, make_mesh
from xjax.models.build import build, smoothed_priors
from xjax.models.config import NeuralModel


def small(**fields):
  config = NeuralModel()
  config.embedding.dim, config.encoder.units, config.head.chunk = 4, 3, 8
  for name, value in fields.items():
    part, field = name.split('__')
    setattr(getattr(config, part), field, value)
  return config


def made(config, **given):
  with jax.set_mesh(make_mesh(MeshConfig(data=2, label=4))):
    return build(config, vocab_size=9, n_labels=130, rngs=nnx.Rngs(0), **given)


def test_label_rows_are_sharded_and_all_else_is_not():
  model = made(small(encoder__layers=2))
  specs = nnx.to_pure_dict(nnx.get_partition_spec(nnx.state(model)))
  head = specs.pop('head')
  assert head.pop('bias') == P(LABEL)
  assert set(head.values()) == {P(LABEL, None)} and len(head) == 2
  rest = jax.tree.leaves(specs, is_leaf=lambda x: x is None or isinstance(x, P))
  assert len(rest) == 17 and not any(rest)
  assert all(v.dtype == jnp.float32 for v in jax.tree.leaves(nnx.state(model)))


def test_parameters_do_not_depend_on_the_mesh():
  ours = made(small())
  with jax.set_mesh(make_mesh(MeshConfig(data=8))):
    other = build(small(), vocab_size=9, n_labels=130, rngs=nnx.Rngs(0))
  jax.tree.map(np.testing.assert_array_equal, nnx.state(ours), nnx.state(other))


def test_biases_begin_at_the_priors():
  counts = np.arange(130)
  priors = smoothed_priors(counts, 200)
  model = made(small(), label_priors=priors)
  bias = np.asarray(model.head.bias[...], np.float64)
  np.testing.assert_allclose(
    1 / (1 + np.exp(-bias[:130])), (counts + 0.5) / 201, rtol=1e-5
  )
  np.testing.assert_array_equal(made(small()).head.bias[...], 0)
  with pytest.raises(ValueError, match='between 0 and 1'):
    made(small(), label_priors=counts / 200)


def test_unknown_parts():
  config = small()
  config.encoder = config.embedding
  with pytest.raises(ConfigError, match='no encoder'):
    made(config)
