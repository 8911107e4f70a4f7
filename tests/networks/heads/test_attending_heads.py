"""What heads promise whose labels attend to tokens: one battery for all."""

import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.attending_heads import (
  FROZEN,
  KINDS,
  SEEN,
  SLOW,
  UNIFIED,
  L,
  built,
)
from tests.fixtures.networks import assert_close, on_mesh, products, thorough
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import TokenFeatures
from xjax.networks.heads.zero_shot import ZeroShotConfig

MESH = 2, 4
LAYOUTS = pytest.mark.parametrize(
  ('mesh', 'chunk'),
  [(MESH, 48)]
  + [thorough(mesh, 48) for mesh in ((8, 1), (1, 8))]
  + [thorough((1, 1), chunk) for chunk in (1, 7, 4000)],
)


@pytest.fixture(
  params=[thorough(x) if x in SLOW else x for x in KINDS], scope='module'
)
def kind(request):
  return KINDS[request.param]


@pytest.fixture(scope='module')
def trial(kind, trial_of):
  return trial_of(kind.make, kind.learnt)


@pytest.fixture(scope='module')
def by_document(documents):
  """The hidden states of each document in float64, without padding."""
  features, _ = documents()
  hidden_BTD = np.asarray(features.hidden_BTD, np.float64)
  return [x[:n] for x, n in zip(hidden_BTD, features.lengths_B)]


@pytest.fixture(scope='module')
def expected(kind, by_document):
  params = kind.params()
  return np.array([kind.by_equations(params, x) for x in by_document])


@pytest.fixture(scope='module')
def dense(trial):
  return trial.dense()


@pytest.fixture(scope='module')
def scores(trial):
  return functools.cache(trial.scores)


@LAYOUTS
def test_scores_are_those_of_the_equations(
  kind, scores, expected, documents, mesh, chunk
):
  scores_BL = scores(mesh, chunk)
  np.testing.assert_allclose(scores_BL, expected, atol=kind.atol)
  fewest, least = kind.spread
  differ_B = np.asarray(documents()[0].lengths_B) >= fewest
  spread_B = np.ptp(expected, axis=1)
  assert spread_B[differ_B].min() > least
  assert spread_B[~differ_B].max(initial=0) < 1e-9


@LAYOUTS
def test_the_loss_is_the_dense_one_of_learnt_labels(trial, dense, mesh, chunk):
  streamed = trial.streamed(mesh, chunk)
  np.testing.assert_allclose(streamed[0], dense[0], rtol=1e-6)
  assert_close(streamed[1:], dense[1:], 1e-5, 1e-5)


def test_what_is_learnt(kind, dense):
  _, gradients, d_hidden_BTD = dense
  assert np.abs(d_hidden_BTD).max() > 0.1 and not d_hidden_BTD[-1].any()
  for path, gradient in jax.tree.leaves_with_path(gradients):
    is_learnt = np.abs(gradient).max() > kind.least
    assert is_learnt == (path[-1].key not in FROZEN), path
    if is_learnt and len(gradient.shape) and len(gradient) > L:  # label rows
      own_L = SEEN if 'own' in gradients else np.ones(L, bool)
      assert gradient[:L][own_L].reshape(own_L.sum(), -1).any(axis=1).all()
      assert not gradient[:L][~own_L].any() and not gradient[L:].any()


@pytest.mark.parametrize(
  ('name', 'config', 'all_labels'),
  [
    ('zero-shot', ZeroShotConfig(), {'seen': SEEN | True}),
    ('unified', UNIFIED, {'hidden': ~SEEN}),
  ],
)
def test_labels_not_learnt_have_no_influence(
  trial_of, documents, name, config, all_labels
):
  trial = trial_of(KINDS[name].make, KINDS[name].learnt)
  _, positives_BP = documents()
  before = trial.streamed(positives_BP=positives_BP)
  others = np.flatnonzero(~KINDS[name].learnt)

  def move(head):
    for row in ('descriptors', 'attention', 'output', 'bias'):
      param = getattr(head, row, None)
      if param is not None and len(param) > L:
        rows = param[...]
        param[...] = rows.at[others].set(5 - 3 * rows[others])

  positives_BP[:, 3] = others[:8]
  after = trial.streamed(change=move, positives_BP=positives_BP)
  jax.tree.map(np.testing.assert_array_equal, after, before)
  every = trial_of(
    lambda chunk: built(config, chunk, **all_labels), SEEN | True
  )
  assert every.streamed(positives_BP=positives_BP)[0] > before[0] + 0.1


def test_padding_and_batch_mates_do_not_matter(trial, scores, documents):
  features, _ = documents(tokens=9)
  few = np.array([3, 1])
  alone = TokenFeatures(features.hidden_BTD[few], features.lengths_B[few])
  scores_BL = trial.scores(MESH, features=alone)
  np.testing.assert_allclose(scores_BL, scores(MESH, 48)[few], atol=1e-5)


@pytest.mark.parametrize(
  'mesh', [MESH, *map(thorough, ((1, 1), (8, 1), (1, 8)))]
)
def test_attention_weights_are_those_of_the_equations(
  kind, trial, by_document, mesh
):
  ids_BK = np.random.default_rng(2).integers(0, L, (8, 5))
  alpha_BKT, params, sharpest = trial.attention(ids_BK, mesh), kind.params(), 0
  for alpha_KT, ids_K, hidden_TD in zip(alpha_BKT, ids_BK, by_document):
    n, expected = len(hidden_TD), kind.alpha(params, hidden_TD)[ids_K]
    np.testing.assert_allclose(alpha_KT[:, :n], expected, atol=1e-5)
    assert not alpha_KT[:, n:].any()
    sharpest = max(sharpest, expected.max(initial=0) * (n > 1))
  assert sharpest > (0.8 if kind.products else 0.6)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('name', [x for x in KINDS if KINDS[x].products])
def test_float32_products_are_exact_and_logits_are_float32(
  name, dtype, documents
):
  features, (least, exact_of_vectors) = documents()[0], KINDS[name].products
  with on_mesh():
    head = KINDS[name].make(48)
    rows = nnx.to_pure_dict(split_head(head).rows)

    def logits(hidden_BTD):
      inputs = features.replace(hidden_BTD=hidden_BTD)
      return head.logits(head.prepare(inputs), rows)

    hidden_BTD = features.hidden_BTD.astype(dtype)
    assert logits(hidden_BTD).dtype == jnp.float32
    count, exact = products(jax.grad(lambda x: logits(x).sum()), hidden_BTD)
  # Label vectors are computed in float32 with both types.
  assert count >= least
  assert exact == (count if dtype == 'float32' else exact_of_vectors)
