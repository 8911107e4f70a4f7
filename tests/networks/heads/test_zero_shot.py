"""Compares zero-shot attention with its equations, streamed and padded."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import make_mesh, padded_labels
from xjax.core.mesh_config import MeshConfig
from xjax.networks.heads.head import Frozen, TokenFeatures
from xjax.networks.heads.zero_shot import ZeroShot

D, E, L = 6, 4, 300
SEEN = np.arange(L) % 5 > 0
LAYOUTS = [
  *[(mesh, 48) for mesh in [(1, 1), (8, 1), (2, 4), (1, 8)]],
  *[((1, 1), chunk) for chunk in (1, 4000)],
]


def make(chunk, seen=SEEN):
  head = ZeroShot(L, D, E, chunk=chunk, seen=seen, rngs=nnx.Rngs(0))
  rng = np.random.default_rng(3)
  for name in ('descriptors', 'bias', 'offset'):
    param = getattr(head, name)
    param[...] = jnp.asarray(rng.normal(size=param.shape), jnp.float32)
  head.kernel[...] *= 2
  return head


def values():
  with jax.set_mesh(make_mesh(MeshConfig())):
    head = make(48)
  params = nnx.to_pure_dict(nnx.state(head))
  return {name: np.asarray(x, np.float64) for name, x in params.items()}


def by_equations(hidden_TD, params):
  """Returns one document's logits in loops, from h_t, W, b, e_l and c."""
  keys = [
    np.tanh(params['kernel'].T @ h_D + params['bias']) for h_D in hidden_TD
  ]
  logits = []
  for e_E in params['descriptors'][:L]:
    powers = [np.exp(k_E @ e_E) for k_E in keys]
    v_E = np.zeros(E)
    for power, k_E in zip(powers, keys):
      v_E += power / sum(powers) * k_E
    logits.append(v_E @ e_E + params['offset'])
  return np.array(logits)


@pytest.fixture(scope='module')
def trial(trial_of):
  return trial_of(make, SEEN)


@pytest.fixture(scope='module')
def expected(documents):
  features, _ = documents()
  hidden_BTD = np.asarray(features.hidden_BTD, np.float64)
  return np.array(
    [
      by_equations(hidden_TD[:n], values())
      for hidden_TD, n in zip(hidden_BTD, features.lengths_B)
    ]
  )


@pytest.fixture(scope='module')
def dense(trial):
  return trial.dense()


@pytest.mark.parametrize(('mesh', 'chunk'), LAYOUTS[2:])
def test_scores_are_those_of_the_equations(trial, expected, mesh, chunk):
  scores_BL = trial.scores(mesh, chunk)
  np.testing.assert_allclose(scores_BL, expected, atol=1e-5)
  assert np.ptp(expected, axis=1)[:-1].min() > 3


def test_a_document_of_no_token_has_the_offset(expected):
  np.testing.assert_allclose(expected[-1], values()['offset'])


@pytest.mark.parametrize(('mesh', 'chunk'), LAYOUTS)
def test_loss_is_the_dense_one_of_learnt_labels(trial, dense, mesh, chunk):
  value_and_gradients = trial.streamed(mesh, chunk)
  np.testing.assert_allclose(value_and_gradients[0], dense[0], rtol=1e-6)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5),
    value_and_gradients[1:],
    dense[1:],
  )


def test_what_is_learnt(dense):
  _, gradients, d_hidden_BTD = dense
  for name in ('kernel', 'bias', 'offset'):
    assert np.abs(gradients.pop(name)).max() > 0.1
  assert gradients.keys() == {'descriptors', 'seen'}
  assert not any(map(np.any, gradients.values()))
  assert np.abs(d_hidden_BTD).max() > 0.1 and not d_hidden_BTD[-1].any()


def test_labels_not_learnt_have_no_influence(trial, documents):
  _, positives_BP = documents()
  before = trial.streamed(positives_BP=positives_BP)
  unseen = np.flatnonzero(~SEEN)

  def move(head):
    rows_LE = head.descriptors[...]
    head.descriptors[...] = rows_LE.at[unseen].set(5 - 3 * rows_LE[unseen])

  positives_BP[:, 3] = unseen[:8]
  after = trial.streamed(change=move, positives_BP=positives_BP)
  jax.tree.map(np.testing.assert_array_equal, after, before)
  everything = trial_of_all(trial).streamed(positives_BP=positives_BP)
  assert everything[0] > before[0] + 0.1


def trial_of_all(trial):
  """Returns the trial of a head that learns from all labels."""
  return type(trial)(lambda chunk: make(chunk, SEEN | True), SEEN | True)


def test_padding_and_batch_mates_do_not_matter(trial, documents):
  before = trial.scores()
  longer = trial.scores(features=documents(tokens=9)[0])
  np.testing.assert_allclose(longer, before, atol=1e-5)
  features, _ = documents()
  few = np.array([3, 1])
  alone = TokenFeatures(features.hidden_BTD[few], features.lengths_B[few])
  scores_BL = trial.scores(features=alone)
  np.testing.assert_allclose(scores_BL, before[few], atol=1e-5)


@pytest.mark.parametrize('mesh', [(1, 1), (2, 4)])
def test_attention_weights_make_the_logit(trial, expected, documents, mesh):
  ids_BK = np.random.default_rng(2).integers(0, L, (8, 5))
  alpha_BKT = trial.attention(ids_BK, mesh)
  params, (features, _) = values(), documents()
  keys_BTE = np.tanh(
    np.asarray(features.hidden_BTD) @ params['kernel'] + params['bias']
  )
  logits_BK = np.einsum(
    'BKT,BTE,BKE->BK', alpha_BKT, keys_BTE, params['descriptors'][ids_BK]
  )
  np.testing.assert_allclose(
    logits_BK + params['offset'],
    np.take_along_axis(expected, ids_BK, axis=1),
    atol=1e-5,
  )
  assert alpha_BKT.max(axis=2)[features.lengths_B > 1].max() > 0.8


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_products(documents, dtype):
  """Checks that float32 products are exact, and that logits are float32."""
  features, _ = documents()
  with jax.set_mesh(make_mesh(MeshConfig())):
    head = make(48)
    rows = {'descriptors': head.descriptors[:], 'seen': head.seen[:]}

    def logits(hidden_BTD):
      inputs = features.replace(hidden_BTD=hidden_BTD)
      return head.logits(head.prepare(inputs), rows)

    hidden_BTD = features.hidden_BTD.astype(dtype)
    assert logits(hidden_BTD).dtype == jnp.float32
    run = jax.grad(lambda x: logits(x).sum())
    text = str(jax.make_jaxpr(run)(hidden_BTD))
  exact = text.count('Precision.HIGHEST, Precision.HIGHEST')
  products = text.count('dot_general[')
  assert products >= 5 and exact == (products if dtype == 'float32' else 0)


def test_descriptors_wait_to_be_put_in():
  with jax.set_mesh(make_mesh(MeshConfig())):
    head = ZeroShot(L, D, E, chunk=9, seen=SEEN, offset=-2.5, rngs=nnx.Rngs(0))
  assert isinstance(head.descriptors, Frozen) and isinstance(head.seen, Frozen)
  assert (
    head.descriptors.shape == (padded_labels(L), E)
    and not head.descriptors[...].any()
  )
  np.testing.assert_array_equal(
    head.seen[...], np.pad(SEEN, (0, padded_labels(L) - L))
  )
  assert head.offset[...] == -2.5
