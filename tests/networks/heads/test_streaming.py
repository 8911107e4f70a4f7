import functools

from flax import nnx, struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.attending_heads import D, L, label_attention
from tests.fixtures.networks import assert_close, equations, on_mesh
from xjax.core.mesh import LABEL, padded_labels
from xjax.losses.bce import BCE, bce
from xjax.losses.loss import LabelWeights, Reduction
from xjax.networks.heads.head import Head
from xjax.networks.heads.streaming import head_loss

B = 8
MESHES = [(8, 1), (2, 4)]


@pytest.fixture(scope='module')
def trial(trial_of):
  return trial_of(label_attention, np.ones(L, bool))


@pytest.fixture(scope='module')
def dense(trial):
  return trial.dense()


@pytest.mark.parametrize('chunk', [100, 299])
def test_chunks_that_leave_no_label_or_one(trial, dense, chunk):
  streamed = trial.streamed(chunk=chunk)
  np.testing.assert_allclose(streamed[0], dense[0], rtol=1e-6)
  assert_close(streamed[1:], dense[1:], 1e-5, 1e-5)


def test_the_mean_over_labels(trial, dense):
  mean = BCE(reduction=Reduction.MEAN_LABELS)
  streamed = trial.streamed(
    (2, 4), total=lambda *given: head_loss(*given[:-1], mean)
  )
  assert_close(jax.tree.map(lambda x: x * L, streamed), dense, 1e-5, 1e-5)


def label_weights():
  """Other ones for every label; what pads them is no reason to count it."""
  rng = np.random.default_rng(5)
  draw = rng.uniform(0, 3, (2, padded_labels(L))).astype(np.float32)
  draw[:, 7] = 0
  return LabelWeights(*map(jnp.asarray, draw))


@pytest.mark.parametrize(('mesh', 'chunk'), [((2, 4), 48), ((1, 1), 299)])
def test_weights_are_cut_and_sharded_as_label_rows(trial, dense, mesh, chunk):
  with on_mesh(*mesh):
    weights = jax.device_put(label_weights(), jax.P(LABEL))
  sharded = trial.streamed(
    mesh, chunk, total=lambda *given: head_loss(*given, weights)
  )
  twin = trial.dense(label_weights())
  assert abs(twin[0] - dense[0]) > 1 / 64
  np.testing.assert_allclose(sharded[0], twin[0], rtol=1e-6)
  assert_close(sharded[1:], twin[1:], 1e-5, 1e-5)
  for gradient in sharded[1].values():
    np.testing.assert_array_equal(gradient[7], 0)


def test_without_gradients_it_is_the_same(documents, dense):
  features, positives_BP = documents()
  with on_mesh(2, 4):
    given = jnp.asarray(positives_BP), features.lengths_B > 0, bce
    head = label_attention(48)
    total = jax.jit(lambda f: head_loss(head, f, *given))(features)
  np.testing.assert_allclose(total / 64, dense[0], rtol=1e-6)


def test_rows_that_only_fill_cost_nothing(trial, documents, dense):
  features, _ = documents()
  real_B = np.asarray(features.lengths_B > 0)
  hidden_BTD = jnp.where(real_B[:, None, None], features.hidden_BTD, 9.0)
  other = features.replace(hidden_BTD=hidden_BTD)
  streamed = trial.streamed(features=other)
  assert_close(streamed, dense, 1e-5, 1e-5)
  np.testing.assert_allclose(streamed[0], dense[0], rtol=1e-6)
  np.testing.assert_array_equal(streamed[2][~real_B], 0)
  all_real = trial.streamed(features=other, mask_B=real_B | True)
  assert all_real[0] > streamed[0] + 1 / 64


def shapes(function, *args):
  """Shapes of every array that function makes."""
  return {
    variable.aval.shape
    for equation in equations(jax.make_jaxpr(function)(*args).jaxpr)
    for variable in equation.outvars
  }


def test_no_array_has_documents_and_all_labels(documents):
  features, positives_BP = documents()
  gold = jnp.asarray(positives_BP), jnp.ones(B, bool)
  with on_mesh():
    graphdef, params = nnx.split(label_attention(48))

    def loss(params, features):
      return head_loss(nnx.merge(graphdef, params), features, *gold, bce)

    def logits(params, features):
      rows = nnx.to_pure_dict(params)
      return nnx.merge(graphdef, params).logits(features, rows)

    ours = jax.value_and_grad(loss, allow_int=True, argnums=(0, 1))
    own_shapes = shapes(ours, params, features)
    control = shapes(logits, params, features)

  def has_both(shape):
    return B in shape and any(n in shape for n in (L, padded_labels(L)))

  assert any(map(has_both, control))
  assert not any(map(has_both, own_shapes))
  assert (padded_labels(L), D) in own_shapes  # the rows' gradients were seen


@struct.dataclass
class Bag:
  """Features with floats and integers side by side."""

  ids_B: jax.Array
  x_BD: jax.Array


class Cosine(Head):
  """A head with a parameter that all labels share."""

  def __init__(self, chunk):
    self.n_labels, self.chunk = 20, chunk
    rows = padded_labels(20)
    key = jax.random.key(0)
    self.rows = nnx.Param(
      jax.random.normal(key, (rows, D)), out_sharding=(LABEL, None)
    )
    self.scale = nnx.Param(jnp.float32(1.5))

  def logits(self, features, chunk):
    product = features.x_BD @ chunk['rows'].T
    return self.scale[...] * product + features.ids_B[:, None]


def cosine(mesh, chunk):
  with on_mesh(*mesh):
    graphdef, params = nnx.split(Cosine(chunk))
    x_BD = jax.random.normal(jax.random.key(1), (B, D))
    ids_B = jnp.arange(B) % 2

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def run(params, x_BD):
      return head_loss(
        nnx.merge(graphdef, params),
        Bag(ids_B, x_BD),
        jnp.arange(B, dtype=jnp.int32)[:, None],
        jnp.ones(B, bool),
        bce,
      )

    loss, (d_params, d_x) = jax.block_until_ready(run(params, x_BD))
    return float(loss), np.asarray(d_params['scale'][...]), d_x


@pytest.mark.parametrize('mesh', MESHES)
def test_shared_parameters_and_any_features(mesh):
  sharded, twin = cosine(mesh, 3), cosine((1, 1), 20)
  np.testing.assert_allclose(sharded[0], twin[0], rtol=1e-6)
  assert_close(sharded[1:], twin[1:], 1e-5, 1e-5)
  assert np.abs(twin[1]) > 0.1
