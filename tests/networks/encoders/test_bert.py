"""BERT encoders: documents that share a row, and the states of every layer."""

import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from tests.fixtures.networks import assert_close, mesh_of, on_mesh
from xjax.core.mesh import DATA
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


@functools.partial(jax.jit, static_argnums=0)
def _run(graphdef, params, ids_TB, segments_TB):
  return nnx.merge(graphdef, params)(ids_TB, segments_TB, None)


def run(bert, ids_TB, segments_TB):
  return _run(*nnx.split(bert), ids_TB, segments_TB)


def bert_of():
  """An encoder whose biases and norms are random as well."""
  bert = Bert(ARCHITECTURE, NO_DROPOUT, rngs=nnx.Rngs(0))
  graphdef, params = nnx.split(bert)
  rng = np.random.default_rng(1)
  params = jax.tree.map(
    lambda x: x + jnp.asarray(rng.normal(0, 0.2, x.shape), x.dtype), params
  )
  return nnx.merge(graphdef, params)


def documents():
  rng = np.random.default_rng(0)
  ids = rng.integers(5, 50, (len(LENGTHS), 8)).astype(np.int32)
  real = np.arange(8) < np.array(LENGTHS)[:, None]
  return np.where(real, ids, 0).T, real.T


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


def test_packing_changes_nothing():
  bert = bert_of()
  apart = np.asarray(run(bert, *documents())).swapaxes(0, 1)
  ids, segments, first = packed()
  rows = run(bert, ids, segments)
  assert (np.asarray(rows)[segments == 0] == 0).all()
  with on_mesh():
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

  with on_mesh():
    apart = jax.jit(jax.grad(loss))(params, *documents())
    together = jax.jit(jax.grad(loss))(params, *packed())
  assert_close(apart, together, rtol=0.0001, atol=0.0001)


def test_states_are_of_every_layer():
  bert = bert_of()
  states = bert.states(*map(jnp.asarray, documents()), None)
  assert [s.shape for s in states] == [(len(LENGTHS), 8, 16)] * 3
  real = documents()[1].T
  last = np.asarray(run(bert, *documents())).swapaxes(0, 1)
  close(np.asarray(states[-1])[real], last[real])


def test_unpacking_stays_on_its_device():
  ids, segments, first = packed()
  rows = np.asarray(run(bert_of(), ids, segments)).swapaxes(0, 1)
  # Four devices with the same three rows each.
  tiled = [np.concatenate([x] * 4) for x in (rows, first, LENGTHS)]
  with on_mesh(4):
    sharding = jax.NamedSharding(mesh_of(4), jax.P(DATA))
    unpack = jax.jit(unpack_documents)
    lowered = unpack.lower(*(jax.device_put(x, sharding) for x in tiled))
    assert 'all-gather' not in lowered.compile().as_text()
    got = unpack(*tiled)
  with on_mesh():
    want = unpack_documents(*map(jnp.asarray, (rows, first, LENGTHS)))
  np.testing.assert_array_equal(got, np.concatenate([want] * 4))
