"""What every head promises, on any mesh and in any chunks: one battery."""

import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.head_programs import Program, attended, gold, lists
from tests.fixtures.heads import (
  ALL,
  FROZEN,
  HIDDEN,
  KINDS,
  LENGTHS,
  MEAN,
  REAL,
  SEEN,
  SLOW,
  L,
  hidden_states,
  one_vs_all,
)
from tests.fixtures.networks import (
  assert_close,
  equations,
  on_mesh,
  products,
  thorough,
)
from xjax.core.mesh import padded_labels
from xjax.core.types import PAD
from xjax.losses.bce import bce
from xjax.losses.focal import Focal
from xjax.losses.loss import Reduction
from xjax.losses.softmax import Softmax
from xjax.losses.squared_hinge import SquaredHinge, squared_hinge
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.shortlist import shortlist_logits
from xjax.networks.heads.streaming import head_loss
from xjax.networks.rows.storage import Storage, decode_weights
from xjax.networks.topk import head_topk

MESH = 2, 4
EACH = pytest.mark.parametrize(
  'name', [thorough(x) if x in SLOW else x for x in KINDS]
)
# 299 leaves one label for the last chunk.
LAYOUTS = pytest.mark.parametrize(
  ('name', 'mesh', 'chunk'),
  [thorough(x, MESH, 128) if x in SLOW else (x, MESH, 128) for x in KINDS]
  + [
    thorough(name, mesh, chunk)
    for name in ('one-vs-all', 'label attention', 'unified')
    for mesh, chunk in (
      *(((8, 1), 7), ((1, 8), 48)),
      *(((1, 1), 299), ((1, 1), 4000)),
    )
  ],
)


@functools.cache
def program(name, mesh=MESH, chunk=128):
  return Program(KINDS[name], mesh, chunk)


@functools.cache
def found(name, mesh=MESH, chunk=128):
  return program(name, mesh, chunk)()


@functools.cache
def dense(name):
  return program(name, (1, 1)).dense()


def by_document(kind):
  """The hidden states of each document in float64, without padding."""
  hidden_BTD = hidden_states().astype(np.float64)
  if kind.pooled:
    return hidden_BTD
  return [x[:n] for x, n in zip(hidden_BTD, LENGTHS)]


@LAYOUTS
def test_scores_are_those_of_the_equations(name, mesh, chunk):
  kind = KINDS[name]
  params = kind.params()
  expected = np.array([kind.by_equations(params, x) for x in by_document(kind)])
  scores_BL = found(name, mesh, chunk).scores_BL
  np.testing.assert_allclose(scores_BL, expected, atol=kind.atol)
  fewest, least = kind.spread
  spread_B = np.ptp(expected, axis=1)
  assert spread_B[LENGTHS >= fewest].min() > least
  assert spread_B[LENGTHS < fewest].max(initial=0) < 1e-9


@LAYOUTS
def test_losses_are_the_dense_ones_of_learnt_labels(name, mesh, chunk):
  """Over all labels, and over shortlists; labels and entries have weights."""
  results = found(name, mesh, chunk)
  for result, twin in zip((results.streamed, results.listed), dense(name)):
    np.testing.assert_allclose(result[0], twin[0], rtol=2e-6)
    assert_close(result[1:], twin[1:], 1e-5, 1e-5)
    assert twin[0] > 0.1


@LAYOUTS
def test_a_label_has_one_score_whichever_list_it_stands_in(name, mesh, chunk):
  results, ids_BA = found(name, mesh, chunk), lists().ids_BA
  real_BA = (ids_BA != PAD) & (ids_BA < L)
  assert (results.logits_BA[~real_BA] == -np.inf).all()
  scores_BA = np.take_along_axis(
    results.scores_BL, np.where(real_BA, ids_BA, 0), axis=1
  )
  np.testing.assert_allclose(
    results.logits_BA[real_BA], scores_BA[real_BA], 1e-6, 2e-6
  )


@LAYOUTS
def test_attention_weights_are_those_of_the_equations(name, mesh, chunk):
  kind, alpha_BKT = KINDS[name], found(name, mesh, chunk).attention_BKT
  if kind.pooled:
    assert alpha_BKT is None
    return
  params, sharpest = kind.params(), 0
  for alpha_KT, ids_K, hidden_TD in zip(
    alpha_BKT, attended(), by_document(kind)
  ):
    n, real_K = len(hidden_TD), ids_K != PAD
    expected_KT = kind.alpha(params, hidden_TD)[ids_K[real_K]]
    np.testing.assert_allclose(alpha_KT[real_K, :n], expected_KT, atol=1e-5)
    assert not alpha_KT[:, n:].any() and not alpha_KT[~real_K].any()
    sharpest = max(sharpest, expected_KT.max(initial=0) * (n > 1))
  assert sharpest > 0.6


@EACH
def test_what_is_learnt(name):
  kind, ((_, gradients, d_hidden_BTD), _) = KINDS[name], dense(name)
  assert np.abs(d_hidden_BTD).max() > 0.1 and not d_hidden_BTD[-1].any()
  weighted_L = np.arange(L) != 7  # the weights of this label are 0
  for path, gradient in jax.tree.leaves_with_path(gradients):
    is_learnt = np.abs(gradient).max() > kind.least
    assert is_learnt == (path[-1].key not in FROZEN), path
    if is_learnt and len(gradient.shape) and len(gradient) > L:  # label rows
      own_L = weighted_L & (SEEN if 'own' in gradients else ALL)
      assert gradient[:L][own_L].reshape(own_L.sum(), -1).any(axis=1).all()
      assert not gradient[:L][~own_L].any() and not gradient[L:].any()


def changed(params, **values):
  """The parameters of a program with other values."""
  flat = dict(nnx.to_flat_state(params))
  for name, value in values.items():
    old = flat[(name,)]
    # With another sharding, the program would be compiled again.
    new = jax.device_put(jnp.asarray(value), old[...].sharding)
    flat[(name,)] = old.replace(new)
  return nnx.from_flat_state(flat)


def padded(mask_L):
  return np.pad(mask_L, (0, padded_labels(L) - L)).astype(np.float32)


@pytest.mark.parametrize('name', ['zero-shot', 'unified'])
def test_labels_not_learnt_have_no_influence(name):
  run, positives_BP = program(name), gold()[0].copy()
  others = np.flatnonzero(~KINDS[name].learnt)
  params, moved = run.params, {}
  positives_BP[:, 3] = others[:8]
  before = run(params, positives_BP=positives_BP).streamed
  for row in {'descriptors', 'attention', 'output', 'bias'} & {*params}:
    rows = params[row][...]
    if len(rows) > L:
      moved[row] = rows.at[others].set(5 - 3 * rows[others])
  after = run(changed(params, **moved), positives_BP=positives_BP).streamed
  jax.tree.map(np.testing.assert_array_equal, after, before)
  every = {'seen': padded(ALL)}
  if name == 'unified':
    every = {'hidden': padded(~SEEN)}
  learnt = run(changed(params, **every), positives_BP=positives_BP)
  assert learnt.streamed[0] > before[0] + 0.1


CALIBRATION = 'unseen_scale', 'unseen_offset'


@pytest.mark.parametrize('name', ['unified', thorough('unified graph')])
def test_hidden_labels_teach_the_calibration_alone(name):
  run = program(name)
  (_, both, d_both_BTD), (_, alone, d_alone_BTD) = (
    run(changed(run.params, hidden=padded(hidden))).streamed
    for hidden in (HIDDEN, HIDDEN & False)
  )
  for parameter in CALIBRATION:
    assert alone.pop(parameter) == 0 and abs(both.pop(parameter)) > 0.1
  assert_close((alone, d_alone_BTD), (both, d_both_BTD), 1e-5, 1e-5)


@pytest.mark.parametrize('name', ['one-vs-all', 'label attention'])
def test_rows_that_only_fill_cost_nothing(name):
  noise_BTD = np.where(REAL[:, None, None], hidden_states(), 9)
  results, before = program(name)(hidden_BTD=noise_BTD), found(name)
  for result, twin in (
    (results.streamed, before.streamed),
    (results.listed, before.listed),
  ):
    assert_close(result, twin, 1e-5, 1e-5)
    assert not result[2][~REAL].any()


@pytest.mark.parametrize(
  ('streamed', 'listed'),
  [
    (MEAN, Softmax()),
    (Softmax(False), SquaredHinge(reduction=Reduction.MEAN_LABELS)),
    (Focal(2.0, 0.25), Softmax(False)),
    thorough(Softmax(), squared_hinge),
    thorough(bce, bce),
    thorough(squared_hinge, Focal(2.0, 0.25)),
    thorough(MEAN, Focal(2.0, 0.25, reduction=Reduction.MEAN_LABELS)),
  ],
  ids=str,
)
def test_losses_are_those_of_masked_logits(streamed, listed):
  run = Program(KINDS['one-vs-all'], (1, 1), 5, (streamed, listed))
  results = run()
  for result, twin in zip((results.streamed, results.listed), run.dense()):
    np.testing.assert_allclose(result[0], twin[0], rtol=2e-6)
    assert_close(result[1:], twin[1:], 1e-5, 1e-5)


@pytest.mark.parametrize(
  'storage', [thorough(Storage.BFLOAT16), Storage.FLOAT8]
)
def test_a_label_of_few_bytes_has_one_score(storage):
  """Its rows have no gradients; the fused pass trains them."""
  document_BD, ids_BA = hidden_states().sum(axis=1), lists().ids_BA
  with on_mesh(*MESH):
    graphdef, params = nnx.split(one_vs_all(48, storage=storage))

    @jax.jit
    def run(params, document_BD):
      head = nnx.merge(graphdef, params)
      listed_BA = shortlist_logits(head, document_BD, jnp.asarray(ids_BA))
      return *head_topk(head, document_BD, L), listed_BA

    found = jax.tree.map(np.asarray, run(params, document_BD))
  (ids,), (top,), listed_BA = found
  scores_BL = np.zeros_like(top)
  np.put_along_axis(scores_BL, ids, top, axis=1)
  rows = {name: x[...] for name, x in nnx.to_pure_dict(params).items()}
  kernel_LD = np.asarray(decode_weights(rows, jnp.float32), np.float64)[:L]
  exact_BL = document_BD @ kernel_LD.T + np.asarray(rows['bias'])[:L]
  np.testing.assert_allclose(scores_BL, exact_BL, atol=1e-5)
  real_BA = (ids_BA != PAD) & (ids_BA < L)
  expected = np.take_along_axis(scores_BL, np.where(real_BA, ids_BA, 0), 1)
  np.testing.assert_allclose(listed_BA[real_BA], expected[real_BA], 1e-6, 1e-6)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('name', [x for x in KINDS if KINDS[x].products])
def test_float32_products_are_exact_and_logits_are_float32(name, dtype):
  kind = KINDS[name]
  least, exact_of_vectors = kind.products
  with on_mesh():
    head = kind.make(48)
    rows = nnx.to_pure_dict(split_head(head).rows)

    def logits(hidden_BTD, rows):
      return head.logits(head.prepare(kind.features(hidden_BTD)), rows)

    given = jnp.asarray(hidden_states(), dtype), rows
    assert jax.eval_shape(logits, *given).dtype == jnp.float32
    run = jax.grad(lambda *x: logits(*x).sum(), (0, 1), allow_int=True)
    count, exact = products(run, *given)
  # Label vectors are computed in float32 with both types.
  assert count >= least
  assert exact == (count if dtype == 'float32' else exact_of_vectors)


def shapes(function, *args):
  """Shapes of every array that function makes."""
  return {
    variable.aval.shape
    for equation in equations(jax.make_jaxpr(function)(*args).jaxpr)
    for variable in equation.outvars
  }


def test_no_array_has_documents_and_all_labels():
  run, rows = program('label attention', (1, 1)), padded_labels(L)
  given = run.params, hidden_states()
  kind, positives_BP = run.kind, gold()[0]

  def loss(params, hidden_BTD):
    head = nnx.merge(run.graphdef, params, run.numbers)
    rest = jnp.asarray(positives_BP), jnp.asarray(REAL), bce
    return head_loss(head, kind.features(hidden_BTD), *rest)

  with on_mesh():
    ours = shapes(jax.value_and_grad(loss, (0, 1)), *given)
    control = shapes(run._logits, *given)

  def has_both(shape):
    return len(REAL) in shape and any(n in shape for n in (L, rows))

  assert any(map(has_both, control))
  assert not any(map(has_both, ours))
  assert rows in {shape[0] for shape in ours if shape}  # gradients of rows


def test_no_array_has_more_rows_of_shortlists_than_a_chunk():
  kind = KINDS['label attention']
  with on_mesh():
    run = Program(kind, chunk=5)
    ids_BA = jnp.asarray(lists().ids_BA)
    made = shapes(
      lambda params, x: shortlist_logits(
        run._head(params), kind.features(x), ids_BA
      ),
      *(run.params, hidden_states()),
    )
  gathered = {shape for shape in made if len(shape) == 3 and shape[2] == 6}
  assert (8, 5, 6) in gathered and (8, 13, 6) not in gathered
