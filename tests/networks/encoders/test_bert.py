"""BERT encoders: padding, packing, dropout, recomputation."""

import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import DATA, LABEL
from xjax.networks.encoders.bert import Bert, BertConfig
from xjax.networks.encoders.unpacking import unpack_documents
from xjax.networks.pretrained.architecture import Activation, BertArchitecture

ARCHITECTURE = BertArchitecture(
  vocab_size=50,
  dim=16,
  layers=2,
  heads=4,
  inner=24,
  positions=12,
  token_types=2,
  activation=Activation.GELU,
  norm_eps=1e-12,
  pad_id=0,
  position_offset=0,
)
LENGTHS = [7, 3, 5, 1, 4]
NO_DROPOUT = BertConfig(dropout=0.0, attention_dropout=0.0)


def run(bert, ids_TB, segments_TB, key=None):
  """Compiled as a whole: operations one by one take longer to compile."""
  return _run(*nnx.split(bert), ids_TB, segments_TB, key)


@functools.partial(jax.jit, static_argnums=0)
def _run(graphdef, params, ids_TB, segments_TB, key):
  rngs = None if key is None else nnx.Rngs(dropout=key)
  return nnx.merge(graphdef, params)(ids_TB, segments_TB, rngs)


def bert_of(config=NO_DROPOUT, **options):
  bert = Bert(ARCHITECTURE, config, rngs=nnx.Rngs(0), **options)
  # Biases and norms as random as all else, so that none can be left out.
  key = jax.random.key(1)
  graphdef, params = nnx.split(bert)
  leaves, structure = jax.tree.flatten(params)
  keys = jax.random.split(key, len(leaves))
  leaves = [
    leaf + 0.2 * jax.random.normal(k, leaf.shape)
    for leaf, k in zip(leaves, keys)
  ]
  return nnx.merge(graphdef, jax.tree.unflatten(structure, leaves))


def documents(width=8, seed=0):
  rng = np.random.default_rng(seed)
  ids = rng.integers(5, 50, (len(LENGTHS), 8)).astype(np.int32)
  real = np.arange(8) < np.array(LENGTHS)[:, None]
  ids, real = np.where(real, ids, 0), real
  more = [(0, 0), (0, width - 8)]
  return np.pad(ids, more).T, np.pad(real, more).T


def packed():
  """The same documents in three rows of eight."""
  ids_TB, _ = documents()
  rows = [[0], [2, 1], [4, 3]]
  ids = np.zeros((3, 8), np.int32)
  segments = np.zeros((3, 8), np.int32)
  first = np.zeros(len(LENGTHS), np.int32)
  for row, members in enumerate(rows):
    at = 0
    for number, document in enumerate(members, 1):
      end = at + LENGTHS[document]
      ids[row, at:end] = ids_TB[: LENGTHS[document], document]
      segments[row, at:end] = number
      first[document] = row * 8 + at
      at = end
  return ids.T, segments.T, first


def close(a, b):
  np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def one_device():
  return jax.set_mesh(
    jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), (DATA, LABEL))
  )


def test_padding_is_zero_and_changes_nothing():
  bert = bert_of()
  short = run(bert, *documents(8))
  long = run(bert, *documents(12))
  ids_TB, real_TB = documents(8)
  assert (np.asarray(short)[~real_TB] == 0).all()
  close(short, long[:8])
  other = np.where(real_TB, ids_TB, 9)
  close(run(bert, other, real_TB), short)


def test_documents_do_not_see_one_another():
  bert = bert_of()
  ids_TB, real_TB = documents()
  together = run(bert, ids_TB, real_TB)
  for row in range(len(LENGTHS)):
    alone = run(bert, ids_TB[:, row : row + 1], real_TB[:, row : row + 1])
    close(together[:, row], alone[:, 0])


def test_packing_changes_nothing():
  bert = bert_of()
  apart = np.asarray(run(bert, *documents())).swapaxes(0, 1)
  ids, segments, first = packed()
  rows = run(bert, ids, segments)
  assert (np.asarray(rows)[segments == 0] == 0).all()
  with one_device():
    again = unpack_documents(
      rows.swapaxes(0, 1), jnp.asarray(first), jnp.array(LENGTHS)
    )
  close(again, apart)


def test_gradients_of_packed_documents():
  bert = bert_of()
  graphdef, params = nnx.split(bert)
  weight = np.random.default_rng(3).normal(size=(len(LENGTHS), 8, 16))

  def loss(params, ids, segments, first=None):
    h = nnx.merge(graphdef, params)(ids, segments, None).swapaxes(0, 1)
    if first is not None:
      h = unpack_documents(h, first, jnp.array(LENGTHS))
    return (h * weight).sum()

  with one_device():
    apart = jax.jit(jax.grad(loss))(params, *documents())
    together = jax.jit(jax.grad(loss))(params, *packed())
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
    apart,
    together,
  )


@pytest.mark.thorough
def test_recomputed_layers_are_the_same():
  inputs = [jnp.asarray(x) for x in documents()]
  rate = 0.3
  plain = bert_of(BertConfig(dropout=rate, attention_dropout=rate))
  again = bert_of(BertConfig(dropout=rate, attention_dropout=rate, remat=True))

  def loss(params, graphdef):
    bert = nnx.merge(graphdef, params)
    h = bert(*inputs, nnx.Rngs(dropout=jax.random.key(7)))
    return jnp.square(h).sum() + h[:, :, 0].sum()

  gradients = [
    jax.jit(jax.value_and_grad(loss), static_argnums=1)(*nnx.split(bert)[::-1])
    for bert in (plain, again)
  ]
  jax.tree.map(close, *gradients)


def test_states_are_of_every_layer():
  bert = bert_of()
  states = bert.states(*map(jnp.asarray, documents()), None)
  assert [s.shape for s in states] == [(len(LENGTHS), 8, 16)] * 3
  real = documents()[1].T
  last = np.asarray(run(bert, *documents())).swapaxes(0, 1)
  close(np.asarray(states[-1])[real], last[real])


@pytest.mark.parametrize('part', ['dropout', 'attention_dropout'])
def test_dropout_follows_from_the_key(part):
  bert = bert_of(
    BertConfig(**{'dropout': 0.0, 'attention_dropout': 0.0, part: 0.5})
  )

  first, again, other = (
    run(bert, *documents(), jax.random.key(seed)) for seed in (0, 0, 1)
  )
  assert (first == again).all()
  assert not np.allclose(first, other)
  assert not np.allclose(first, run(bert, *documents()))


def test_bfloat16_is_near():
  wide, narrow = bert_of(), bert_of(dtype=jnp.bfloat16)
  h = run(narrow, *documents())
  assert h.dtype == jnp.bfloat16
  exact = run(wide, *documents())
  assert np.abs(h - exact).max() < 0.1 * np.abs(exact).max()


def test_unpacking_stays_on_its_device():
  devices = np.array(jax.devices()[:4]).reshape(4, 1)
  mesh = jax.sharding.Mesh(devices, (DATA, LABEL))
  ids, segments, first = packed()
  # Four devices with the same three rows each.
  rows = np.tile(
    np.asarray(run(bert_of(), ids, segments)).swapaxes(0, 1), (4, 1, 1)
  )
  with jax.set_mesh(mesh):
    lowered = jax.jit(unpack_documents).lower(
      *(
        jax.device_put(x, jax.NamedSharding(mesh, jax.P(DATA)))
        for x in (rows, np.tile(first, 4), np.tile(LENGTHS, 4))
      )
    )
    assert 'all-gather' not in lowered.compile().as_text()
  with one_device():
    want = unpack_documents(*map(jnp.asarray, (rows[:3], first, LENGTHS)))
  with jax.set_mesh(mesh):
    got = jax.jit(unpack_documents)(
      rows, np.tile(first, 4), np.tile(LENGTHS, 4)
    )
  np.testing.assert_array_equal(got, np.tile(want, (4, 1, 1)))
