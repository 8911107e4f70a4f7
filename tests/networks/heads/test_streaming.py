import dataclasses
import functools

from flax import nnx, struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import DATA, LABEL, padded_labels
from xjax.core.types import PAD
from xjax.losses.bce import BCE, bce
from xjax.losses.loss import LabelWeights, Reduction
from xjax.networks.heads.head import Head, TokenFeatures
from xjax.networks.heads.label_attention import LabelAttention
from xjax.networks.heads.streaming import head_loss

B, T, D, L = 8, 5, 6, 300
MESHES = [(1, 1), (8, 1), (2, 4), (1, 8)]


def mesh_of(data, label):
  devices = np.array(jax.devices()[: data * label]).reshape(data, label)
  return jax.sharding.Mesh(devices, (DATA, LABEL))


def draw():
  rng = np.random.default_rng(0)
  lengths = np.array([5, 4, 1, 2, 5, 3, 1, 0], np.int32)
  hidden = rng.normal(size=(B, T, D)).astype(np.float32)
  positives = rng.integers(0, L, (B, 4)).astype(np.int32)
  positives[:, 3] = PAD
  positives[0] = [299, 299, 0, L + 7]  # twice the same; none of this head
  return (
    TokenFeatures(jnp.asarray(hidden), jnp.asarray(lengths)),
    jnp.asarray(positives),
    jnp.asarray(lengths > 0),
  )


def dense_loss(head, features, positives_BP, mask_B, weights=None):
  rows = {
    name: getattr(head, name)[:L] for name in ('attention', 'output', 'bias')
  }
  logits_BL = head.logits(features, rows)
  targets_BL = (positives_BP[:, :, None] == jnp.arange(L)).any(axis=1)
  loss_BL, _ = bce(logits_BL, targets_BL)
  if weights is not None:
    positive_L, negative_L = (x[:L] for x in jax.tree.leaves(weights))
    loss_BL *= jnp.where(targets_BL, positive_L, negative_L)
  return jnp.where(mask_B, loss_BL.sum(axis=1), 0).sum()


def value_and_gradients(loss, head, features, mask_B):
  """The loss and its gradients by parameters and hidden states, jitted."""
  graphdef, params = nnx.split(head)

  @jax.jit
  @functools.partial(jax.value_and_grad, argnums=(0, 1))
  def run(params, hidden_BTD):
    inputs = features.replace(hidden_BTD=hidden_BTD)
    return 3 * loss(nnx.merge(graphdef, params), inputs, mask_B)

  results = jax.block_until_ready(run(params, features.hidden_BTD))
  return jax.tree.map(np.asarray, results)


@functools.cache
def expected():
  features, positives_BP, mask_B = draw()
  with jax.set_mesh(mesh_of(1, 1)):
    head = LabelAttention(L, D, chunk=L, rngs=nnx.Rngs(0))
    return value_and_gradients(
      lambda head, f, m: dense_loss(head, f, positives_BP, m),
      head,
      features,
      mask_B,
    )


@pytest.mark.parametrize(
  ('mesh', 'chunk'),
  [(mesh, 48) for mesh in MESHES]
  + [((1, 1), chunk) for chunk in (1, 100, 299, 4000)],
)
def test_is_the_dense_loss(mesh, chunk):
  features, positives_BP, mask_B = draw()
  with jax.set_mesh(mesh_of(*mesh)):
    head = LabelAttention(L, D, chunk=chunk, rngs=nnx.Rngs(0))
    streamed = value_and_gradients(
      lambda head, f, m: head_loss(head, f, positives_BP, m, bce),
      head,
      features,
      mask_B,
    )
  np.testing.assert_allclose(streamed[0], expected()[0], rtol=1e-6)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5),
    streamed[1],
    expected()[1],
  )


def test_the_mean_over_labels():
  features, positives_BP, mask_B = draw()
  loss = BCE(reduction=Reduction.MEAN_LABELS)
  with jax.set_mesh(mesh_of(2, 4)):
    head = LabelAttention(L, D, chunk=48, rngs=nnx.Rngs(0))
    streamed = value_and_gradients(
      lambda head, f, m: head_loss(head, f, positives_BP, m, loss),
      head,
      features,
      mask_B,
    )
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a * L, b, 1e-5, 1e-5),
    streamed,
    expected(),
  )


def label_weights():
  """Other ones for every label; what pads them is no reason to count it."""
  rng = np.random.default_rng(5)
  draw = rng.uniform(0, 3, (2, padded_labels(L))).astype(np.float32)
  draw[:, 7] = 0
  return LabelWeights(*map(jnp.asarray, draw))


@functools.cache
def weighted(mesh, chunk, total):
  """The leaves of the weighted loss and its gradients."""
  features, positives_BP, mask_B = draw()
  extra = (bce,) if total is head_loss else ()
  with jax.set_mesh(mesh_of(*mesh)):
    head = LabelAttention(L, D, chunk=chunk, rngs=nnx.Rngs(0))
    weights = jax.device_put(label_weights(), jax.P(LABEL))
    streamed = value_and_gradients(
      lambda head, f, m: total(head, f, positives_BP, m, *extra, weights),
      head,
      features,
      mask_B,
    )
  return jax.tree.leaves(streamed)


@pytest.mark.parametrize(
  ('mesh', 'chunk'), [((2, 4), 48), ((1, 8), 48), ((1, 1), 299)]
)
def test_weights_are_cut_and_sharded_as_label_rows(mesh, chunk):
  sharded, twin = (
    weighted(mesh, chunk, head_loss),
    weighted((1, 1), L, dense_loss),
  )
  assert abs(twin[0] - expected()[0]) > 1
  np.testing.assert_allclose(sharded[0], twin[0], rtol=1e-6)
  for a, b in zip(sharded[1:], twin[1:], strict=True):
    np.testing.assert_allclose(a, b, 1e-5, 1e-5)
    if len(a) == padded_labels(L):
      np.testing.assert_array_equal(a[7], 0)


def test_without_gradients_it_is_the_same():
  features, positives_BP, mask_B = draw()
  with jax.set_mesh(mesh_of(2, 4)):
    head = LabelAttention(L, D, chunk=48, rngs=nnx.Rngs(0))
    total = jax.jit(
      lambda f: head_loss(head, f, positives_BP, mask_B, bce),
    )(features)
  np.testing.assert_allclose(3 * total, expected()[0], rtol=1e-6)


def test_rows_that_only_fill_cost_nothing():
  features, positives_BP, mask_B = draw()
  other = features.replace(
    hidden_BTD=jnp.where(mask_B[:, None, None], features.hidden_BTD, 9.0)
  )
  with jax.set_mesh(mesh_of(1, 1)):
    head = LabelAttention(L, D, chunk=48, rngs=nnx.Rngs(0))

    def run(features, mask_B):
      return value_and_gradients(
        lambda head, f, m: head_loss(head, f, positives_BP, m, bce),
        head,
        features,
        mask_B,
      )

    loss, (d_params, d_hidden) = run(other, mask_B)
    all_real = run(other, jnp.ones_like(mask_B))
  np.testing.assert_allclose(loss, expected()[0], rtol=1e-6)
  np.testing.assert_array_equal(d_hidden[~np.asarray(mask_B)], 0)
  assert all_real[0] > loss + 1
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5),
    d_params,
    expected()[1][0],
  )


def equations(jaxpr):
  for equation in jaxpr.eqns:
    yield equation
    for value in equation.params.values():
      for inner in jax.tree.leaves(
        value, is_leaf=lambda v: hasattr(v, 'eqns') or hasattr(v, 'jaxpr')
      ):
        if hasattr(inner, 'jaxpr'):
          inner = inner.jaxpr
        if hasattr(inner, 'eqns'):
          yield from equations(inner)


def shapes(function, *args):
  """Shapes of every array that function makes."""
  return {
    variable.aval.shape
    for equation in equations(jax.make_jaxpr(function)(*args).jaxpr)
    for variable in equation.outvars
  }


def test_no_array_has_documents_and_all_labels():
  features, positives_BP, mask_B = draw()
  with jax.set_mesh(mesh_of(1, 1)):
    head = LabelAttention(L, D, chunk=48, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(head)

    def loss(params, features, head_loss):
      head = nnx.merge(graphdef, params)
      return head_loss(head, features, positives_BP, mask_B)

    def ours(params, features):
      return jax.value_and_grad(loss, allow_int=True, argnums=(0, 1))(
        params, features, functools.partial(head_loss, loss=bce)
      )

    own_shapes = shapes(ours, params, features)
    control = shapes(lambda p, f: loss(p, f, dense_loss), params, features)

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


@dataclasses.dataclass
class Found:
  loss: float
  scale: np.ndarray
  x: np.ndarray


def cosine(mesh, chunk):
  with jax.set_mesh(mesh_of(*mesh)):
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
    return Found(float(loss), np.asarray(d_params['scale'][...]), d_x)


@pytest.mark.parametrize('mesh', MESHES)
def test_shared_parameters_and_any_features(mesh):
  sharded, twin = cosine(mesh, 3), cosine((1, 1), 20)
  np.testing.assert_allclose(sharded.loss, twin.loss, rtol=1e-6)
  np.testing.assert_allclose(sharded.scale, twin.scale, 1e-5, 1e-5)
  np.testing.assert_allclose(sharded.x, twin.x, 1e-5, 1e-5)
  assert np.abs(twin.scale) > 0.1
