from flax import nnx
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from xjax.core.mesh import LABEL, make_mesh, padded_labels
from xjax.core.mesh_config import MeshConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.heads.descriptor_heads import UnifiedConfig, ZeroShotConfig
from xjax.networks.heads.head import Frozen
from xjax.networks.text_model import build, smoothed_priors


def small(**fields):
  config = NeuralModel()
  config.embedding.dim, config.encoder.units, config.head.chunk = 4, 3, 8
  for name, value in fields.items():
    part, field = name.split('__')
    setattr(getattr(config, part), field, value)
  return config


def built(config, **options):
  with jax.set_mesh(make_mesh(MeshConfig(data=2, label=4))):
    return build(
      config, vocab_size=9, n_labels=130, rngs=nnx.Rngs(0), **options
    )


def test_label_rows_are_sharded_and_all_else_is_not():
  model = built(small(encoder__layers=2))
  specs = nnx.to_pure_dict(nnx.get_partition_spec(nnx.state(model)))
  head = specs.pop('head')
  assert head.pop('bias') == P(LABEL)
  assert set(head.values()) == {P(LABEL, None)} and len(head) == 2
  rest = jax.tree.leaves(specs, is_leaf=lambda x: x is None or isinstance(x, P))
  assert len(rest) == 17 and not any(rest)
  assert all(v.dtype == jnp.float32 for v in jax.tree.leaves(nnx.state(model)))


def test_parameters_do_not_depend_on_the_mesh():
  ours = built(small())
  with jax.set_mesh(make_mesh(MeshConfig(data=8))):
    other = build(small(), vocab_size=9, n_labels=130, rngs=nnx.Rngs(0))
  jax.tree.map(np.testing.assert_array_equal, nnx.state(ours), nnx.state(other))


def test_biases_begin_at_the_priors():
  counts = np.arange(130)
  priors = smoothed_priors(counts, 200)
  model = built(small(), label_priors=priors)
  bias = np.asarray(model.head.bias[...], np.float64)
  np.testing.assert_allclose(
    1 / (1 + np.exp(-bias[:130])), (counts + 0.5) / 201, rtol=1e-5
  )
  np.testing.assert_array_equal(bias[130:], 0)
  assert model.head.attention.shape == (ROWS_OF_130, 6)
  assert model.head.output.shape == (ROWS_OF_130, 6)
  np.testing.assert_array_equal(built(small()).head.bias[...], 0)
  with pytest.raises(ValueError, match='between 0 and 1'):
    built(small(), label_priors=counts / 200)


ROWS_OF_130 = padded_labels(130)
FROZEN = {'descriptors', 'seen', 'own', 'hidden'}
ROWS = {  # of heads with descriptors
  ZeroShotConfig: {'descriptors', 'seen'},
  UnifiedConfig: FROZEN | {'attention', 'output', 'bias'},
}


def described(kind, **options):
  config = small()
  config.head = kind(chunk=8)
  return built(config, **options)


@pytest.mark.parametrize('kind', ROWS)
def test_heads_with_descriptors(kind):
  head = described(kind).head
  params = nnx.state(head)
  specs = nnx.to_pure_dict(nnx.get_partition_spec(params))
  assert {name for name, spec in specs.items() if spec} == ROWS[kind]
  for name, x in nnx.to_pure_dict(params).items():
    if name in ROWS[kind]:
      assert len(x) == ROWS_OF_130
      assert specs[name] == P(LABEL, *[None] * (x.ndim - 1)), name
    assert isinstance(getattr(head, name), Frozen) == (name in FROZEN), name
  assert head.chunk == 8 and not head.descriptors[...].any()
  if kind is UnifiedConfig:
    assert not head.attention[...].any() and not head.output[...].any()
    assert head.unseen_scale[...] == 1 and head.unseen_offset[...] == 0


def masks():
  """Labels 1, 6, ... have no training documents, 2, 7, ... calibrate."""
  kind = np.arange(130) % 5
  return {'unseen': kind == 1, 'hidden': kind == 2}


def test_which_labels_are_seen():
  head = described(UnifiedConfig, **masks()).head
  unseen, hidden = masks().values()
  seen = ~(unseen | hidden)
  for name, row in (('seen', seen), ('own', seen), ('hidden', hidden)):
    np.testing.assert_array_equal(
      getattr(head, name)[...],
      np.pad(row, (0, ROWS_OF_130 - 130)),
      err_msg=name,
    )
  assert head.row_dropout == UnifiedConfig.row_dropout
  # Nothing calibrates a head without rows: it is asked for none.
  zero_shot = described(ZeroShotConfig, unseen=unseen).head
  np.testing.assert_array_equal(zero_shot.seen[:130], ~unseen)
  np.testing.assert_array_equal(described(ZeroShotConfig).head.seen[:130], 1)


def test_offsets_are_the_mean_of_the_seen():
  priors = smoothed_priors(np.arange(130), 200)
  logits = np.log(priors / (1 - priors))
  keywords = masks() | {'label_priors': priors}
  seen = ~(keywords['unseen'] | keywords['hidden'])
  for kind in ROWS:
    head = described(kind, **keywords).head
    np.testing.assert_allclose(head.offset[...], logits[seen].mean(), rtol=1e-5)
  np.testing.assert_allclose(
    head.bias[:130] + head.offset[...], logits, rtol=1e-5
  )
  none = {'unseen': seen | True, 'label_priors': priors}
  for kind in ROWS:
    assert described(kind, **none).head.offset[...] == 0
