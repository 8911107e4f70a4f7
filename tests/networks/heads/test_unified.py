"""Compares the unified head with its equations, also streamed and padded."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import make_mesh, padded_labels
from xjax.core.mesh_config import MeshConfig
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import Frozen, TokenFeatures
from xjax.networks.heads.unified import Unified

D, E, L = 6, 4, 300
# Three labels in five are seen, one calibrates, one is never learnt from.
KIND = np.arange(L) % 5
SEEN, HIDDEN = KIND < 3, KIND == 3
LEARNT = SEEN | HIDDEN
CALIBRATION = {'unseen_scale', 'unseen_offset'}
FROZEN = {'descriptors', 'seen', 'own', 'hidden'}
LAYOUTS = [
  *[(mesh, 48) for mesh in [(1, 1), (8, 1), (2, 4), (1, 8)]],
  *[((1, 1), chunk) for chunk in (1, 4000)],
]


def make(chunk, seen=SEEN, hidden=HIDDEN, row_dropout=0.3):
  """Returns a head with drawn parameters; label 7 has an empty descriptor."""
  head = Unified(
    L,
    D,
    E,
    chunk=chunk,
    seen=seen,
    hidden=hidden,
    row_dropout=row_dropout,
    rngs=nnx.Rngs(0),
  )
  rng = np.random.default_rng(3)
  for name in sorted(nnx.to_pure_dict(nnx.state(head))):
    if name not in FROZEN - {'descriptors'}:
      param = getattr(head, name)
      param[...] = jnp.asarray(rng.normal(size=param.shape), jnp.float32)
  head.descriptors[...] = head.descriptors[...].at[7].set(0)
  return head


def head_of(**fields):
  with jax.set_mesh(make_mesh(MeshConfig())):
    return make(48, **fields)


def values(head=None):
  params = nnx.to_pure_dict(nnx.state(head or head_of()))
  return {name: np.asarray(x, np.float64) for name, x in params.items()}


def vectors(params, label):
  """Returns u_l, w_l and b_l of one label."""
  e_E = params['descriptors'][label]
  e_E = e_E / (np.linalg.norm(e_E) or 1)
  u_D = params['attention_kernel'].T @ e_E
  w_D = params['output_kernel'].T @ e_E
  b = params['bias_kernel'] @ e_E + params['offset']
  if SEEN[label]:
    u_D = u_D + params['attention'][label]
    w_D = w_D + params['output'][label]
    b = b + params['bias'][label]
  return u_D, w_D, b


def logit(params, label, z):
  """Returns the logit: z, which is calibrated if the label is not seen."""
  if SEEN[label]:
    return z
  return params['unseen_scale'] * z + params['unseen_offset']


def by_equations(hidden_TD, params):
  """Returns one document's logits, computed in loops."""
  logits = []
  for label in range(L):
    u_D, w_D, b = vectors(params, label)
    powers = [np.exp(h_D @ u_D) for h_D in hidden_TD]
    v_D = np.zeros(D)
    for power, h_D in zip(powers, hidden_TD):
      v_D += power / sum(powers) * h_D
    logits.append(logit(params, label, v_D @ w_D + b))
  return np.array(logits)


@pytest.fixture(scope='module')
def trial(trial_of):
  return trial_of(make, LEARNT)


@pytest.fixture(scope='module')
def expected(documents):
  features, _ = documents()
  hidden_BTD = np.asarray(features.hidden_BTD, np.float64)
  params = values()
  return np.array(
    [
      by_equations(hidden_TD[:n], params)
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
  assert np.ptp(expected, axis=1).min() > 3


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
  assert np.abs(d_hidden_BTD).max() > 0.1 and not d_hidden_BTD[-1].any()
  for name, gradient in gradients.items():
    assert (np.abs(gradient).max() > 0.01) == (name not in FROZEN), name
  for name in ('attention', 'output', 'bias'):
    assert gradients[name][:L][SEEN].any(axis=-1).all()
    assert not gradients[name][:L][~SEEN].any()
    assert not gradients[name][L:].any()


def test_hidden_labels_teach_the_calibration_alone(trial_of, dense):
  def without(chunk):
    return make(chunk, hidden=HIDDEN & False)

  _, seen_alone, d_hidden_BTD = trial_of(without, SEEN).streamed()
  _, gradients, expected_BTD = dense
  np.testing.assert_allclose(d_hidden_BTD, expected_BTD, 1e-5, 1e-5)
  for name in gradients.keys() - CALIBRATION:
    np.testing.assert_allclose(
      seen_alone[name], gradients[name], 1e-5, 1e-5, err_msg=name
    )
  for name in CALIBRATION:
    assert seen_alone[name] == 0 and abs(gradients[name]) > 0.1


def test_labels_not_learnt_have_no_influence(trial, trial_of, documents):
  _, positives_BP = documents()
  before = trial.streamed(positives_BP=positives_BP)
  others = np.flatnonzero(~LEARNT)

  def move(head):
    for name in ('descriptors', 'attention', 'output', 'bias'):
      param = getattr(head, name)
      rows = param[...]
      param[...] = rows.at[others].set(5 - 3 * rows[others])

  positives_BP[:, 3] = others[:8]
  after = trial.streamed(change=move, positives_BP=positives_BP)
  jax.tree.map(np.testing.assert_array_equal, after, before)
  every = trial_of(lambda chunk: make(chunk, hidden=~SEEN), SEEN | True)
  assert every.streamed(positives_BP=positives_BP)[0] > before[0] + 0.1


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
  hidden_BTD = np.asarray(features.hidden_BTD)
  for document, ids_K in enumerate(ids_BK):
    for alpha_T, label in zip(alpha_BKT[document], ids_K):
      _, w_D, b = vectors(params, label)
      z = alpha_T @ hidden_BTD[document] @ w_D + b
      assert logit(params, label, z) == pytest.approx(
        expected[document, label], abs=1e-5
      )
  assert alpha_BKT.max(axis=2)[features.lengths_B > 1].max() > 0.8


def thinned(head, seed):
  return head.with_dropout(nnx.Rngs(dropout=jax.random.key(seed)))


def test_a_thinned_head_lacks_rows_of_its_own():
  head = head_of()
  before = values(head)
  rows_of = [values(thinned(head, seed)) for seed in (0, 0, 1)]
  jax.tree.map(np.testing.assert_array_equal, rows_of[0], rows_of[1])
  own_SL = np.array([params.pop('own') for params in rows_of])
  # The head does not change, and a thinned head differs in `own` alone.
  jax.tree.map(np.testing.assert_array_equal, values(head), before)
  own_L = before.pop('own')
  for params in rows_of:
    jax.tree.map(np.testing.assert_array_equal, params, before)
  assert set(np.unique(own_SL)) == {0, 1}
  assert not own_SL[:, own_L == 0].any()
  kept_SX = own_SL[:, own_L == 1]
  assert kept_SX.shape == (3, SEEN.sum())
  dropped = 1 - kept_SX.mean(axis=1)
  np.testing.assert_allclose(dropped, 0.3, atol=4 * np.sqrt(0.21 / 180))
  assert 0.2 < (kept_SX[0] != kept_SX[2]).mean() < 0.65


def test_a_label_without_its_rows_is_scored_by_its_descriptor(documents):
  features, _ = documents()
  head = head_of()
  thin = thinned(head, 5)
  bare_L = (thin.own[:L] == 0) & SEEN

  def logits(head):
    rows = nnx.to_pure_dict(split_head(head).rows)
    return np.asarray(head.logits(features, rows)[:, :L])

  whole_BL, thin_BL = logits(head), logits(thin)
  np.testing.assert_array_equal(thin_BL[:, ~bare_L], whole_BL[:, ~bare_L])
  for name in ('attention', 'output', 'bias'):
    param = getattr(head, name)
    param[...] = param[...].at[np.flatnonzero(bare_L)].set(0)
  zeroed_BL = logits(head)
  np.testing.assert_allclose(thin_BL, zeroed_BL, atol=1e-6)
  assert np.abs(thin_BL - whole_BL)[:, bare_L].max() > 1


def test_without_row_dropout_nothing_is_drawn():
  head = head_of(row_dropout=0.0)
  assert head.with_dropout(nnx.Rngs(0)) is head


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_products(documents, dtype):
  """Checks that float32 products are exact, and that logits are float32."""
  features, _ = documents()
  with jax.set_mesh(make_mesh(MeshConfig())):
    head = make(48)
    rows = nnx.to_pure_dict(nnx.state(head))

    def logits(hidden_BTD):
      inputs = features.replace(hidden_BTD=hidden_BTD)
      return head.logits(inputs, rows)

    hidden_BTD = features.hidden_BTD.astype(dtype)
    assert logits(hidden_BTD).dtype == jnp.float32
    run = jax.grad(lambda x: logits(x).sum())
    text = str(jax.make_jaxpr(run)(hidden_BTD))
  exact = text.count('Precision.HIGHEST, Precision.HIGHEST')
  products = text.count('dot_general[')
  # Label vectors are computed in float32 with both types.
  assert products >= 7 and exact == (products if dtype == 'float32' else 3)


def test_own_rows_begin_at_zero_and_biases_at_the_priors():
  bias = np.linspace(-6, -1, L)
  with jax.set_mesh(make_mesh(MeshConfig())):
    head = Unified(
      L,
      D,
      E,
      chunk=9,
      seen=SEEN,
      hidden=HIDDEN,
      row_dropout=0.3,
      bias=bias,
      rngs=nnx.Rngs(0),
    )
  assert not head.attention[...].any() and not head.output[...].any()
  assert not head.descriptors[...].any()
  for name, row in (('seen', SEEN), ('own', SEEN), ('hidden', HIDDEN)):
    param = getattr(head, name)
    assert isinstance(param, Frozen)
    np.testing.assert_array_equal(
      param[...], np.pad(row, (0, padded_labels(L) - L))
    )
  np.testing.assert_allclose(head.offset[...], bias[SEEN].mean(), rtol=1e-6)
  np.testing.assert_allclose(head.bias[:L] + head.offset[...], bias, rtol=1e-5)
  assert head.unseen_scale[...] == 1 and head.unseen_offset[...] == 0
