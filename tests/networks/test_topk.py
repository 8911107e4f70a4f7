from flax import nnx, struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.dense_lists import dense_topk
from tests.fixtures.networks import on_mesh
from xjax.core.mesh import LABEL, padded_labels
from xjax.core.types import AS_LOGITS, PAD
from xjax.networks.heads.chunks import ALL_DEVICES
from xjax.networks.heads.head import Head, HeadInputs
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.topk import head_topk, restricted_topk

B, L, K = 8, 300, 7


@struct.dataclass
class Row:
  at_B: jax.Array


class Given(Head):
  """A head that knows all scores; padded rows have the highest scores."""

  def __init__(self, scores_BL, chunk):
    self.n_labels, self.chunk = scores_BL.shape[1], chunk
    rows = padded_labels(self.n_labels) - self.n_labels
    padded = np.pad(scores_BL.T, [(0, rows), (0, 0)], constant_values=99)
    sharding = self.axes if len(self.axes) > 1 else LABEL
    self.scores_LB = nnx.Param(
      jnp.asarray(padded), out_sharding=(sharding, None)
    )

  def logits(self, features, chunk):
    return chunk['scores_LB'][:, features.at_B].T


class GivenEverywhere(Given):
  """The rows of its labels are divided over all devices."""

  axes = ALL_DEVICES


@struct.dataclass
class Chosen:
  at_B: jax.Array
  label_B: jax.Array


class GivenOne(Given):
  """Scores only the best label of those that may be in a list."""

  shortlist_size = 1

  def __init__(self, scores_BL, chunk):
    super().__init__(scores_BL, chunk)
    ids_L = jnp.arange(padded_labels(self.n_labels))
    self.ids_L = nnx.Param(ids_L, out_sharding=(LABEL,))

  def narrowed(self, features, logs):
    scores_BL = self.scores_LB[: self.n_labels, features.at_B].T
    weighted_BL = jax.nn.log_sigmoid(scores_BL) + logs[..., : self.n_labels]
    return Chosen(features.at_B, weighted_BL.argmax(axis=1))

  def logits(self, features, chunk):
    chosen_BC = chunk['ids_L'] == features.label_B[:, None]
    return jnp.where(chosen_BC, super().logits(features, chunk), -jnp.inf)


def draw(n_labels=L, kinds=12):
  """Returns scores with many ties."""
  rng = np.random.default_rng(0)
  return rng.integers(-kinds, kinds, (B, n_labels)).astype(np.float32) / 4


def streamed(
  scores_BL,
  k=K,
  mesh=(1, 1),
  chunk=48,
  sigmoid=AS_LOGITS,
  kind=Given,
  **filters,
):
  with on_mesh(*mesh):
    graphdef, params = nnx.split(kind(scores_BL, chunk))

    @jax.jit
    def run(params, at_B, filters):
      head = nnx.merge(graphdef, params)
      return head_topk(head, Row(at_B), k, sigmoid=sigmoid, **filters)

    best = run(params, jnp.arange(B), jax.tree.map(jnp.asarray, filters))
    return jax.tree.map(np.asarray, jax.block_until_ready(best))


def by_definition(scores_BL, k, may_BL):
  """Sorts all labels, best first; the lower index wins ties."""
  ids = np.full((B, k), PAD, np.int32)
  scores = np.full((B, k), -np.inf, np.float32)
  for i in range(B):
    order = np.argsort(-scores_BL[i], kind='stable')
    order = order[may_BL[i, order] & (scores_BL[i, order] > -np.inf)][:k]
    ids[i, : len(order)] = order
    scores[i, : len(order)] = scores_BL[i, order]
  return ids, scores


def assert_same(found, expected):
  np.testing.assert_array_equal(found[0], expected[0])
  np.testing.assert_array_equal(found[1], expected[1])


EVERYTHING = np.ones((B, L), bool)


@pytest.mark.parametrize('chunk', [1, 299, 5000])
def test_chunks_change_nothing(chunk):
  scores = draw()
  ids, found = streamed(scores, chunk=chunk)
  assert ids.shape == found.shape == (1, B, K)
  assert_same((ids[0], found[0]), by_definition(scores, K, EVERYTHING))


@pytest.mark.parametrize(
  ('mesh', 'kind'),
  [((8, 1), Given), ((2, 4), Given), ((2, 4), GivenEverywhere)],
)
def test_meshes_and_filters(mesh, kind):
  scores = draw()
  rng = np.random.default_rng(1)
  slices = tuple(rng.random((2, L)) < 0.5)
  allowed_BL = rng.random((B, L)) < 0.7
  filters = {'slices': slices, 'allowed': allowed_BL}
  ids, found = streamed(scores, mesh=mesh, kind=kind, **filters)
  for g, may in enumerate([EVERYTHING, *slices]):
    expected = by_definition(scores, K, may & allowed_BL)
    assert_same((ids[g], found[g]), expected)
  dense = dense_topk(
    jnp.asarray(scores),
    K,
    slices=tuple(map(jnp.asarray, slices)),
    allowed=jnp.asarray(allowed_BL),
  )
  assert_same((ids, found), dense)


def test_fewer_labels_than_k():
  scores = draw(n_labels=5)
  allowed = np.array([True, True, False, True, False])
  ids, found = streamed(scores, mesh=(2, 4), allowed=allowed)
  np.testing.assert_array_equal(np.sort(ids[0])[:, 4:], [[0, 1, 3]] * B)
  np.testing.assert_array_equal(ids[0, :, 3:], PAD)
  np.testing.assert_array_equal(found[0, :, 3:], -np.inf)


def test_filters_longer_than_the_head():
  scores = draw()
  long = np.ones(L + 40, bool)
  ids, found = streamed(scores, slices=(long,), allowed=long)
  assert_same((ids[1], found[1]), by_definition(scores, K, EVERYTHING))
  with pytest.raises(
    ValueError,
    match='the last axis of allowed has the length 299, which is less than '
    'the number of labels, 300',
  ):
    streamed(scores, allowed=long[:299])


@pytest.mark.parametrize(
  ('mesh', 'sigmoid'), [((1, 1), AS_LOGITS), ((2, 4), (1.7, -0.4))]
)
def test_weights_multiply_probabilities(mesh, sigmoid):
  scores, (a, b) = draw(), sigmoid
  weights = np.random.default_rng(2).random(L).astype(np.float32)
  weights[::3] = 0
  given = {'weights': weights, 'sigmoid': sigmoid}
  ids, found = streamed(scores, mesh=mesh, **given)
  gains = weights / (1 + np.exp(-(a * scores.astype(np.float64) + b)))
  product = np.take_along_axis(gains, ids[0], axis=1)
  best = -np.sort(-gains, axis=1)[:, :K]
  np.testing.assert_allclose(product, best, rtol=1e-5)
  np.testing.assert_allclose(found[0], np.log(best), atol=1e-5)
  assert (ids[0] % 3 > 0).all()
  given['weights'] = jnp.asarray(weights)
  dense_ids, _ = dense_topk(jnp.asarray(scores), K, **given)
  np.testing.assert_array_equal(dense_ids, ids)
  if sigmoid != AS_LOGITS:
    assert (ids != streamed(scores, mesh=mesh, weights=weights)[0]).any()


def test_weights_rank_where_probabilities_saturate():
  scores = np.zeros((B, L), np.float32)
  scores[:, 3], scores[:, 7] = 30, 31
  ids, _ = streamed(scores, k=2, weights=np.ones(L, np.float32))
  np.testing.assert_array_equal(ids[0], [[7, 3]] * B)


@pytest.mark.parametrize(
  ('n_labels', 'n_slices'), [(3_000_000, 0), (3_000_100, 4)]
)
def test_no_more_than_two_chunks_of_logits(n_labels, n_slices):
  documents, dim, chunk, k = 32, 4, 8192, 50

  def run(params, document_BD, slices, allowed_BL):
    head = nnx.merge(graphdef, params)
    return head_topk(head, document_BD, k, slices=slices, allowed=allowed_BL)

  def make():
    return OneVsAllConfig(chunk=chunk).build(
      HeadInputs(dim, n_labels), nnx.Rngs(0)
    )

  with on_mesh():
    graphdef, params = nnx.split(nnx.eval_shape(make))
    mask_L = jax.ShapeDtypeStruct((n_labels,), bool)
    given = (
      jax.ShapeDtypeStruct((documents, dim), jnp.float32),
      (mask_L,) * n_slices,
      jax.ShapeDtypeStruct((documents, n_labels), bool),
    )
    program = jax.jit(run).lower(params, *given).compile()
  logits = 4 * documents * chunk
  lists = (1 + n_slices) * documents * k * (4 + 4)
  # The program holds the lists so far, the new lists, and copies of both.
  held = program.memory_analysis().temp_size_in_bytes
  assert logits < held < 2 * logits + 4 * lists


@pytest.mark.parametrize(('mesh', 'rows'), [((1, 1), 1), ((2, 4), B)])
def test_each_list_has_the_labels_that_the_head_chooses_for_it(mesh, rows):
  """The filters have different lengths."""
  rng, scores = np.random.default_rng(2), draw()
  weights = rng.random(padded_labels(L)).astype(np.float32)
  slices = tuple(rng.random((2, padded_labels(L))) < 0.5)
  allowed = rng.random((rows, L)) < 0.7
  filters = {
    'weights': weights,
    'slices': slices,
    'allowed': allowed if rows > 1 else allowed[0],
  }
  with on_mesh(*mesh):
    graphdef, params = nnx.split(GivenOne(scores, 48))

    @jax.jit
    def run(params, at_B, filters):
      head = nnx.merge(graphdef, params)
      return restricted_topk(head, Row(at_B), 2, **filters)

    best = run(params, jnp.arange(B), jax.tree.map(jnp.asarray, filters))
    ids, values = jax.tree.map(np.asarray, jax.block_until_ready(best))
  weighted = np.array(jax.nn.log_sigmoid(scores) + np.log(weights[:L]))
  for g, may in enumerate([np.ones(L, bool), *slices]):
    want = by_definition(
      weighted, 1, may[:L] & np.broadcast_to(allowed, (B, L))
    )
    np.testing.assert_array_equal(ids[g, :, :1], want[0])
    np.testing.assert_allclose(values[g, :, :1], want[1], 1e-6)
    assert (ids[g, :, 1] == PAD).all()


def test_weight_0_is_never_selected():
  weights = np.zeros(L, np.float32)
  weights[[4, 200]] = 1e-30
  ids, _ = streamed(draw(), weights=weights)
  np.testing.assert_array_equal(np.sort(ids[0])[:, -2:], [[4, 200]] * B)
  np.testing.assert_array_equal(ids[0, :, 2:], PAD)
