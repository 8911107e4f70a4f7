import re

import jax
from jax import P
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
import numpy as np
import pytest

from xjax.core.mesh import DATA, LABEL
from xjax.networks.encoders import attention
from xjax.networks.encoders.attention import self_attention
from xjax.networks.encoders.layers import kept_entries

B, T, H, D = 3, 6, 4, 12
SEEDS = jnp.array([7, 11], jnp.uint32)
SEGMENTS = {
  'padded': np.arange(T) < np.array([T, 3, 1])[:, None],
  'packed': np.array(
    [[1] * 6, [1, 1, 1, 2, 2, 0], [1, 2, 2, 2, 3, 3]], np.int32
  ),
}


def drawn(scale=1.0):
  rng = np.random.default_rng(0)
  inputs = rng.normal(size=(B, T, 3 * D)) * scale
  return inputs.astype(np.float32), rng.normal(size=(B, T, D))


def plain(inputs, segments, kept=1.0):
  """By the definition, in the dtype given; kept scales weights [B, H, T, T]."""
  q, k, v = jnp.moveaxis(inputs.reshape(B, T, 3, H, D // H), (2, 3), (0, 2))
  score = jnp.einsum('BHTD,BHSD->BHTS', q, k) / (D // H) ** 0.5
  seen = segments[:, None, :, None] == segments[:, None, None, :]
  score = jnp.where(seen, score, -jnp.inf)
  mixed = jnp.einsum('BHTS,BHSD->BTHD', jax.nn.softmax(score) * kept, v)
  return mixed.reshape(B, T, D)


def expected(inputs, segments, direction, kept=1.0):
  """Result and gradient in float64, 0 where there is padding.

  There it attends to padding alone, and the direction is 0: as if not there.
  """

  def both(x, d):
    out, pull = jax.vjp(lambda x: plain(x, segments, kept), x)
    return out, pull(d)[0]

  with jax.enable_x64(True):
    given = jnp.asarray(inputs, jnp.float64), jnp.asarray(direction)
    return jax.tree.map(np.asarray, jax.jit(both)(*given))


def with_gradient(inputs, segments, direction, rate=0.0, seeds=None):

  @jax.jit
  def both(x, segments, d):
    out, pull = jax.vjp(
      lambda x: self_attention(x, segments, H, rate, seeds), x
    )
    return out, pull(d.astype(out.dtype))[0]

  return jax.tree.map(np.asarray, both(inputs, segments, direction))


@pytest.mark.parametrize(
  ('kind', 'at_once', 'backend'),
  [
    ('padded', 1, 'cpu'),
    ('packed', 2 * B * T**2, 'cpu'),
    ('padded', 2**21, 'gpu'),  # there the library's function computes it
    ('packed', 2**21, 'gpu'),
  ],
)
def test_by_definition(kind, at_once, backend, monkeypatch):
  monkeypatch.setattr(attention, '_MOST_WEIGHTS', at_once)
  monkeypatch.setattr(attention, 'platform', lambda: backend)
  segments, (inputs, direction) = SEGMENTS[kind], drawn()
  real = segments != 0
  direction *= real[:, :, None]
  out, gradient = with_gradient(inputs, segments, direction)
  out_, gradient_ = expected(inputs, segments, direction)
  np.testing.assert_allclose(out[real], out_[real], atol=1e-6)
  np.testing.assert_allclose(gradient, gradient_, atol=2e-6)
  assert np.isfinite(out).all()


def test_the_librarys_products_are_exact(monkeypatch):
  monkeypatch.setattr(attention, 'platform', lambda: 'gpu')
  segments, (inputs, direction) = jnp.asarray(SEGMENTS['packed']), drawn()

  def gradient(x):
    return jax.vjp(lambda x: self_attention(x, segments, H), x)[1](
      jnp.asarray(direction, x.dtype)
    )

  text = str(jax.make_jaxpr(gradient)(inputs))
  exact = re.findall(r'precision=\(Precision.HIGHEST', text)
  # Two forward, three back at least.
  assert len(exact) == text.count('dot_general[') >= 5


def test_flash_is_asked_for(monkeypatch):
  asked = []

  def noted(query, *_, **arguments):
    asked.append(arguments)
    return query

  monkeypatch.setattr(attention, 'platform', lambda: 'gpu')
  monkeypatch.setattr(jax.nn, 'dot_product_attention', noted)
  inputs = jnp.zeros((B, T, 3 * 8 * H), jnp.bfloat16)
  for segments in SEGMENTS.values():
    self_attention(inputs, jnp.asarray(segments), H, 0.1)
  self_attention(inputs.astype(jnp.float32), jnp.asarray(segments), H)
  self_attention(inputs[:, 1:], jnp.asarray(segments)[:, 1:], H)
  by_length, by_mask, *others = asked
  assert by_length['implementation'] == by_mask['implementation'] == 'cudnn'
  np.testing.assert_array_equal(by_length['key_value_seq_lengths'], [6, 3, 1])
  assert by_mask['mask'].shape == (B, 1, T, T)
  assert [x['implementation'] for x in others] == ['xla', 'xla']


def test_dropout_of_weights(monkeypatch):
  """The backward pass drops what the forward pass did."""
  group = 2
  monkeypatch.setattr(attention, '_MOST_WEIGHTS', group * B * T**2)
  segments, (inputs, direction) = SEGMENTS['padded'] | True, drawn()
  kept = np.concatenate(
    [
      kept_entries((B, group, T, T), 0.25, SEEDS, turn) / 0.75
      for turn in range(H // group)
    ],
    axis=1,
  )
  assert 0.6 < kept.mean() * 0.75 < 0.9
  out, gradient = with_gradient(inputs, segments, direction, 0.25, SEEDS)
  out_, gradient_ = expected(inputs, segments, direction, kept)
  np.testing.assert_allclose(out, out_, atol=2e-6)
  np.testing.assert_allclose(gradient, gradient_, atol=4e-6)


def test_extremes():
  """Scores of 10^4, one token, none at all."""
  segments, (inputs, direction) = SEGMENTS['padded'].copy(), drawn(100.0)
  segments[2] = False
  out, gradient = with_gradient(inputs, segments, direction)
  out_, _ = expected(inputs, segments, direction)
  np.testing.assert_allclose(out[0], out_[0], rtol=1e-4, atol=1e-4)
  assert np.isfinite(out).all()
  assert np.isfinite(gradient).all()


def test_sixteen_bits():
  segments, (inputs, direction) = SEGMENTS['packed'], drawn()
  direction *= (segments != 0)[:, :, None]
  narrow = jnp.asarray(inputs, jnp.bfloat16)
  out, gradient = with_gradient(narrow, segments, direction)
  assert out.dtype == gradient.dtype == jnp.bfloat16
  out_, gradient_ = expected(narrow.astype(jnp.float32), segments, direction)
  real = segments != 0
  np.testing.assert_allclose(
    out[real].astype(np.float32), out_[real], atol=0.02
  )
  np.testing.assert_allclose(gradient.astype(np.float32), gradient_, atol=0.04)


def test_documents_stay_on_their_devices():
  """Rows over the data axis: no device needs what another has."""
  mesh = jax.make_mesh((4, 2), (DATA, LABEL), axis_types=(AxisType.Auto,) * 2)
  rows = NamedSharding(mesh, P(DATA))
  inputs = jax.ShapeDtypeStruct((8, T, 3 * D), jnp.float32, sharding=rows)
  segments = jax.ShapeDtypeStruct((8, T), jnp.int32, sharding=rows)

  def gradient(inputs, segments):
    def total(x):
      return self_attention(x, segments, H, 0.1, SEEDS).sum()

    return jax.grad(total)(inputs)

  compiled = jax.jit(gradient).lower(inputs, segments).compile()
  assert compiled.output_shardings.is_equivalent_to(rows, 3)
  assert not re.search('all-|permute|reduce-scatter', compiled.as_text())
