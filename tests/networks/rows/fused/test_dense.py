"""The fused pass against a dense float64 step, on any mesh, in any chunks."""

import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.losses.bce import BCE, bce
from xjax.losses.focal import Focal
from xjax.losses.loss import Reduction
from xjax.losses.softmax import Softmax
from xjax.losses.squared_hinge import squared_hinge
from xjax.networks.heads.streaming import head_loss
from xjax.networks.rows.kahan import LEFT_OUT, PLACE
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import SGD, AdagradRow


def off(actual, expected):
  """The length of the difference, relative to that of what is expected."""
  difference = np.asarray(actual, np.float64) - expected
  return np.linalg.norm(difference) / np.linalg.norm(expected)


OF_MESHES = {'loss': Softmax(), 'rule': AdagradRow(), 'weighted': True}


@pytest.mark.parametrize(
  'fields',
  [
    *(
      {'loss': loss, 'weighted': True}
      for loss in (bce, squared_hinge, Softmax(), Focal(2.0, 0.25))
    ),
    *({'rule': rule} for rule in (SGD(momentum=0.9), AdagradRow())),
    *({'chunk': chunk} for chunk in (1, 7, 48, 307, 4000)),
    *(OF_MESHES | {'mesh': mesh} for mesh in ((2, 4), (1, 8), (8, 1))),
    # With weights in fewer bytes, the rest is as exact as ever.
    *(
      {'storage': storage, 'rule': AdagradRow()}
      for storage in (Storage.BFLOAT16, Storage.COMPENSATED, Storage.FLOAT8)
    ),
  ],
  ids=str,
)
def test_a_step_is_the_dense_one(step_trial, fields):
  step = step_trial(**fields)
  result, expected, first = step.fused(), step.dense(), step.before()
  assert result.loss == pytest.approx(expected.loss, rel=1e-6)
  assert off(result.d_document_BD, expected.d_document_BD) <= 1e-6
  np.testing.assert_array_equal(result.d_document_BD[step.real :], 0)
  exact = ['bias'] if step.storage is not Storage.FLOAT32 else first.rows
  for name in exact:
    new, after, old = (x.rows[name] for x in (result, expected, first))
    assert np.linalg.norm(after - old) > 0.5
    assert off(new.astype(np.float64) - old, after - old) <= 1e-6, name
  for name in result.slots.keys() - {PLACE, LEFT_OUT}:
    assert off(result.slots[name], expected.slots[name]) <= 1e-6, name


def test_the_mean_over_labels(step_trial):
  mean, total = (
    step_trial(loss, SGD(momentum=0.9))
    for loss in (BCE(reduction=Reduction.MEAN_LABELS), bce)
  )
  results, sums, first = mean.fused(), total.dense(), mean.before()
  labels = len(sums.rows['bias'])
  assert results.loss * labels == pytest.approx(sums.loss, rel=1e-6)
  assert off(results.d_document_BD * labels, sums.d_document_BD) <= 1e-6
  for name, slot in results.slots.items():
    kept = 0.9 * first.slots[name].astype(np.float64)
    assert off(slot, kept + (sums.slots[name] - kept) / labels) <= 1e-6, name


def test_documents_in_bfloat16(step_trial):
  step = step_trial(storage=Storage.FLOAT8, mesh=(2, 4), dtype='bfloat16')
  result, expected = step.fused(), step.dense()
  assert result.d_document_BD.dtype == jnp.bfloat16
  assert result.loss == pytest.approx(expected.loss, rel=1e-2)
  assert off(result.d_document_BD, expected.d_document_BD) < 1e-2
  assert off(result.rows['bias'], expected.rows['bias']) < 1e-2


@pytest.mark.parametrize('loss', [bce, Softmax()])
def test_gradients_are_those_of_the_streamed_loss(step_trial, loss):
  step = step_trial(loss)
  document_BD, positives_BP, mask_B = map(jnp.asarray, step.draw())
  with step.on_mesh():
    graphdef, params = nnx.split(step.start()[0])

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def streamed(params, document_BD):
      head = nnx.merge(graphdef, params)
      return head_loss(head, document_BD, positives_BP, mask_B, loss)

    total, (d_rows, d_document_BD) = streamed(params, document_BD)
  result, first = step.fused(), step.before()
  assert result.loss == pytest.approx(float(total), rel=1e-6)
  assert off(result.d_document_BD, np.asarray(d_document_BD)) <= 1e-6
  for name, d in nnx.to_pure_dict(d_rows).items():
    old, decay = first.rows[name], step.decay if name == 'kernel' else 0
    mean = np.asarray(d)[: len(old)] / len(mask_B)
    exact = -step.rate * (mean + decay * old)
    assert off(result.rows[name] - old, exact) <= 1e-6, name
