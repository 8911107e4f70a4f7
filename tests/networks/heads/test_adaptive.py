"""Tests the adaptive head against the paper's equations, written in NumPy."""

import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.dense_lists import dense_topk
from tests.fixtures.networks import assert_close, on_mesh
from xjax.core.errors import ConfigError
from xjax.core.types import PAD
from xjax.data.label_trees.label_tree import by_frequency
from xjax.losses.bce import BCE, bce
from xjax.losses.loss import Reduction
from xjax.networks.heads.adaptive import AdaptiveConfig, logit_of_product
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.shortlist import shortlist_logits
from xjax.networks.topk import head_topk

B, D, L = 8, 8, 300
MEAN = BCE(reduction=Reduction.MEAN_LABELS)
CUTOFFS = 100, 180
STARTS, STOPS = (0, *CUTOFFS), (*CUTOFFS, L)

COUNTS = np.random.default_rng(1).integers(0, 40, L)
ORDER = sorted(range(L), key=lambda x: (-COUNTS[x], x))
# Documents with gold labels in the head, in tails, in both, and nowhere; the
# last row only fills the batch.
PARTS = (0,), (0, 1, 1), (0, 0), (1,), (), (0,), (0,), (0, 1)


def draw(parts=PARTS):
  """Returns documents, gold labels, and the mask of a batch."""
  rng = np.random.default_rng(0)
  document_BD = rng.normal(size=(B, D)).astype(np.float32)
  positives = np.full((B, 5), PAD, np.int32)
  for row, of_row in enumerate(parts):
    gold = [ORDER[rng.integers(STARTS[i], STOPS[i])] for i in of_row]
    positives[row, : len(gold)] = gold
  positives[2, 3:] = positives[2, 0], L + 3  # a second time; not of this head
  mask_B = np.arange(B) < B - 1
  return tuple(map(jnp.asarray, (document_BD, positives, mask_B)))


@functools.cache
def make(mesh=(1, 1), n_labels=L, **fields):
  config = AdaptiveConfig(**{'chunk': 48, 'cutoffs': CUTOFFS} | fields)
  inputs = HeadInputs(D, n_labels, counts_L=COUNTS[:n_labels])
  with on_mesh(*mesh):
    return config.build(inputs, nnx.Rngs(0))


def weights_of(head):
  return nnx.to_pure_dict(nnx.state(head, nnx.Not(is_place)))


def reference(params, document_BD):
  """Returns the roots' probabilities, and [B, labels] of each part."""
  sigmoid = jax.nn.sigmoid
  parts = [sigmoid(document_BD @ params['frequent'].T)]
  roots = sigmoid(document_BD @ params['roots'].T)
  for i, tail in params['tails'].items():
    x = document_BD @ tail['reduce']
    x = (x - x.mean(1, keepdims=True)) / (x.var(1, keepdims=True) + 1e-5) ** 0.5
    x = x * tail['norm']['scale'] + tail['norm']['bias']
    below = sigmoid(jnp.maximum(x, 0) @ tail['rows'].T)
    parts.append(roots[:, i : i + 1] * below)
  return roots, parts


def in_float64(function):
  """function(weights, documents) of the head and the documents."""
  arrays = weights_of(make()), draw()[0]
  with jax.enable_x64(True):
    arrays = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), arrays)
    return jax.tree.map(np.asarray, jax.jit(function)(*arrays))


def reference_loss(positives_BP, mask_B, is_mean, params, document_BD):
  """Returns the loss of Ye et al., Section 3.3, document by document."""
  roots, parts = reference(params, document_BD)
  total = 0.0
  for row in np.flatnonzero(mask_B):
    gold_L = np.isin(ORDER, positives_BP[row])
    right = []
    for i, part in enumerate(parts):
      gold = gold_L[STARTS[i] : STOPS[i]]
      if i and not gold.any():
        right.append(1 - roots[row, i - 1 : i])
      else:
        right.append(jnp.where(gold, part[row], 1 - part[row]))
    terms = -jnp.log(jnp.concatenate(right))
    total += terms.mean() if is_mean else terms.sum()
  return total


@functools.cache
def program(mesh, rule):
  """(parameters, documents, gold, mask) -> the loss and its gradients."""
  graphdef, params, frozen = nnx.split(make(mesh), nnx.Not(is_place), ...)

  def loss(params, document_BD, positives_BP, mask_B):
    head = nnx.merge(graphdef, params, frozen)
    return head.loss(head.prepare(document_BD), positives_BP, mask_B, rule)

  return jax.jit(jax.value_and_grad(loss, (0, 1))), params


def run(mesh=(1, 1), parts=PARTS, rule=MEAN, spoilt=False):
  """Returns the loss, and its gradients by parameters and documents."""
  loss, params = program(mesh, rule)
  if spoilt:
    flat = dict(nnx.to_flat_state(params))
    rows = flat['tails', 1, 'rows']
    flat['tails', 1, 'rows'] = rows.replace(rows[...] * np.nan)
    params = nnx.from_flat_state(flat)
  with on_mesh(*mesh):
    total, grads = jax.block_until_ready(loss(params, *draw(parts)))
  return float(total), nnx.to_pure_dict(grads[0]), np.asarray(grads[1])


def is_place(path, variable):
  return path[-1] == 'place'


def scored(mesh):
  with on_mesh(*mesh):
    graphdef, params = nnx.split(make(mesh))

    @jax.jit
    def topk(params, document_BD):
      head = nnx.merge(graphdef, params)
      return head_topk(head, head.prepare(document_BD), L)

    lists = jax.block_until_ready(topk(params, draw()[0]))
  return jax.tree.map(np.asarray, lists)


@functools.cache
def dense_logits():
  head = make()
  rows = {'place': head.place[:L]}
  score = jax.jit(lambda x: head.logits(head.prepare(x), rows))
  return np.asarray(score(draw()[0]))


def test_scores_are_logits_of_the_paper_s_probabilities():
  _, parts = in_float64(reference)
  p_BL = np.concatenate(parts, axis=1)[:, np.argsort(ORDER)]
  np.testing.assert_allclose(dense_logits(), np.log(p_BL / (1 - p_BL)), 1e-4)


def test_logits_of_products_neither_overflow_nor_are_rounded():
  at = np.array([-200, -60, -3, 0.0, 4, 60, 200])
  a, b = map(np.ravel, np.meshgrid(at, at))
  logits = logit_of_product(*(jnp.asarray(x, jnp.float32) for x in (a, b)))
  against = np.logaddexp(np.logaddexp(-a, -b), -a - b)
  np.testing.assert_allclose(logits, -against, rtol=1e-5, atol=1e-6)
  grad = jax.vmap(jax.grad(logit_of_product, (0, 1)))
  slopes = np.array(grad(*(jnp.asarray(x, jnp.float32) for x in (a, b))))
  assert np.isfinite(slopes).all() and (slopes >= 0).all()


@pytest.mark.parametrize('rule', [MEAN, bce])
def test_the_loss_and_its_gradients_are_the_paper_s(rule):
  """The paper takes the mean; a sum has the same terms."""
  results, gold = run(rule=rule), map(np.asarray, draw()[1:])
  loss = functools.partial(reference_loss, *gold, rule is MEAN)
  total, grads = in_float64(jax.value_and_grad(loss, (0, 1)))
  np.testing.assert_allclose(results[0], total, rtol=1e-5)
  assert_close(results[1:], grads, 1e-4, 1e-5)
  assert not results[2][-1].any()  # this row only fills the batch


def test_a_tail_that_no_document_needs_is_not_computed():
  """Its rows could be NaN: only its root is read."""
  parts = (*PARTS[:-1], (0, 2))  # the last row only fills the batch
  total, grads, _ = run(parts=parts, spoilt=True)
  plain = run(parts=parts)
  assert total == plain[0]
  assert not grads['tails'][1]['rows'].any()
  assert grads['tails'][0]['rows'].any() and grads['roots'].all()
  needed = run(parts=(*PARTS[:-2], (2,), ()), spoilt=True)
  assert np.isnan(needed[0])


def test_a_mesh_gives_the_same_loss():
  sharded, alone = run((2, 4)), run()
  np.testing.assert_allclose(sharded[0], alone[0], rtol=1e-6)
  assert_close(sharded[1:], alone[1:], 1e-5, 1e-6)


def test_streaming_selects_what_all_logits_do():
  ids, scores = scored((2, 4))
  wanted_ids, wanted = dense_topk(jnp.asarray(dense_logits()), L)
  np.testing.assert_allclose(scores, wanted, 1e-5, 1e-5)
  near = np.abs(np.diff(wanted, axis=-1, append=-np.inf)) < 1e-4
  near |= np.roll(near, 1, axis=-1)
  np.testing.assert_array_equal(ids[~near], np.asarray(wanted_ids)[~near])


def test_a_label_has_one_score_whichever_list_it_stands_in():
  ids_BA = np.random.default_rng(5).integers(0, L, (B, 7)).astype(np.int32)
  with on_mesh():
    head, (document_BD, _, _) = make(), draw()
    listed = jnp.asarray(ids_BA)
    run = jax.jit(lambda x: shortlist_logits(head, head.prepare(x), listed))
    scores = run(document_BD)
  wanted = np.take_along_axis(dense_logits(), ids_BA, axis=1)
  np.testing.assert_allclose(scores, wanted, 1e-5, 1e-5)


def test_rare_labels_have_shorter_rows():
  head = make()
  assert [x.rows.shape for x in head.tails] == [(80, D // 2), (120, D // 4)]
  assert head.frequent.shape == (100, D) and head.roots.shape == (2, D)
  weights = sum(x.size for x in jax.tree.leaves(weights_of(head)))
  assert weights < 0.6 * L * D  # one-vs-all: L D, and L biases
  rows = split_head(head).rows
  assert list(nnx.to_pure_dict(rows)) == ['place']
  assert make(last_width=6).tails[-1].rows.shape == (120, 6)
  assert make(cutoffs=()).starts == (0, 150)


def test_labels_are_sorted_by_frequency_and_then_by_index():
  assert by_frequency(np.array([1, 5, 0, 5])).tolist() == [1, 3, 0, 2]
  assert by_frequency(COUNTS).tolist() == ORDER
  assert make().place[:L].tolist() == np.argsort(ORDER).tolist()


def test_a_single_label_has_no_tail():
  head = make(n_labels=1, cutoffs=())
  assert len(head.tails) == 0 and head.frequent.shape == (1, D)
  rows = {'place': head.place[:1]}
  assert head.logits(head.prepare(draw()[0]), rows).shape == (B, 1)


def test_cutoffs_beyond_the_labels():
  AdaptiveConfig(cutoffs=(4, 299)).check_labels(300)
  with pytest.raises(ConfigError, match='less than the number of labels, 300;'):
    AdaptiveConfig(cutoffs=(4, 300)).check_labels(300)
  with pytest.raises(ConfigError, match='less than the number of labels, 300;'):
    make(cutoffs=(4, 300))
