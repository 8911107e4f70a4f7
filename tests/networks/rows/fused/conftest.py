"""A step of the fused pass, and the same step on whole float64 arrays."""

import dataclasses
import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import on_mesh
from xjax.core.mesh import padded_labels
from xjax.core.types import PAD
from xjax.losses.bce import bce
from xjax.losses.focal import Focal
from xjax.losses.loss import ChunkLoss, LabelWeights
from xjax.losses.softmax import Softmax
from xjax.losses.squared_hinge import squared_hinge
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.rows.fused import RowUpdate, StepScalars, fused_loss
from xjax.networks.rows.kahan import kahan_slots
from xjax.networks.rows.storage import Storage, decode_weights
from xjax.networks.rows.update import SGD, AdagradRow, RowRule

B, D, L, REAL = 16, 8, 307, 14  # no size of chunks or shards divides 307
RATE, DECAY = 6.0, 0.01  # changes as large as the weights
FREQUENT = np.arange(L) % 3 == 0


def draw():
  """Returns documents, their gold labels and the mask of real rows."""
  rng = np.random.default_rng(0)
  document_BD = rng.normal(size=(B, D)).astype(np.float32)
  positives_BP = rng.integers(0, L, (B, 4)).astype(np.int32)
  positives_BP[:, 3] = PAD
  positives_BP[0] = [306, 306, 0, L + 7]  # a repeated label; an id beyond L
  positives_BP[1] = PAD
  document_BD[REAL:] = 9  # padded rows may have any features
  return document_BD, positives_BP, np.arange(B) < REAL


def label_weights():
  draw = np.random.default_rng(5).uniform(0, 3, (2, padded_labels(L)))
  return LabelWeights(*draw.astype(np.float32))


@dataclasses.dataclass(frozen=True)
class Found:
  """The results of a step for L labels, as NumPy arrays.

  Attributes:
    loss: sum of the loss.
    d_document_BD: gradient of the loss by the documents.
    rows, slots: the arrays after the step.
  """

  loss: float
  d_document_BD: np.ndarray
  rows: dict[str, np.ndarray]
  slots: dict[str, np.ndarray]

  def kernel(self):
    """Returns the stored weights in float64."""
    rows = {name: jnp.asarray(row) for name, row in self.rows.items()}
    return np.asarray(decode_weights(rows, jnp.float32), np.float64)


@dataclasses.dataclass(frozen=True)
class Step:
  """A step on drawn documents.

  Attributes:
    loss, rule, storage, chunk, key: settings of the head and of the step.
    weighted: whether labels have weights.
    mesh: devices for documents and for labels.
    dtype: type of the documents' features.
  """

  loss: ChunkLoss = bce
  rule: RowRule = SGD()
  storage: Storage = Storage.FLOAT32
  weighted: bool = False
  mesh: tuple[int, int] = (1, 1)
  chunk: int = 48
  key: int = 0x9E3779B1
  dtype: str = 'float32'

  def at(self, **fields):
    """Returns this step with other fields."""
    return dataclasses.replace(self, **fields)

  def on_mesh(self):
    return on_mesh(*self.mesh)

  def start(self):
    """Returns a head, and slots as they are some steps after the start."""
    head = OneVsAllConfig(chunk=self.chunk, storage=self.storage).build(
      HeadInputs(D, L, bias_L=np.linspace(-1, 1, L)), nnx.Rngs(0)
    )
    rng = np.random.default_rng(3)
    slots = {
      name: jnp.asarray(rng.uniform(0, 0.1, slot.shape), jnp.float32)
      for name, slot in self.rule.slots(padded_labels(L), D).items()
    }
    if self.storage is Storage.COMPENSATED:
      slots |= kahan_slots(FREQUENT, D)
    return head, slots

  def before(self):
    """Returns the rows and slots before the step."""
    return _before(self.at(mesh=(1, 1), chunk=48))

  def fused(self):
    """Returns the results of the fused pass."""
    return _fused(self)

  def dense(self):
    """Returns the results on whole float64 arrays, with unrounded weights."""
    return _dense(self.at(mesh=(1, 1), chunk=48))


# These are no fields: the caches compare steps by their fields.
Step.frequent = FREQUENT
Step.rate, Step.decay, Step.real = RATE, DECAY, REAL
Step.draw = staticmethod(draw)


def cut(arrays):
  """Cuts arrays to L rows; the blocks of LEFT_OUT have one row each here."""
  # NumPy arrays keep types of 8 and 16 bits.
  return {name: np.asarray(array)[:L] for name, array in arrays.items()}


@functools.cache
def _before(step):
  with step.on_mesh():
    head, slots = step.start()
  rows = nnx.to_pure_dict(nnx.state(head))
  return Found(0.0, np.zeros(0), cut(rows), cut(slots))


@functools.cache
def program(step):
  """Returns the jitted step: (key, params, slots) -> results, d_document_BD."""
  graphdef = nnx.graphdef(step.start()[0])
  document_BD, *gold = map(jnp.asarray, draw())
  loss_weights = jax.tree.map(
    jnp.asarray, label_weights() if step.weighted else None
  )

  @jax.jit
  def run(key, params, slots):
    def total(document_BD):
      head = nnx.merge(graphdef, params)
      scalars = StepScalars(jnp.float32(RATE), jnp.float32(DECAY), key)
      taken = RowUpdate(step.rule, slots, scalars)
      return fused_loss(
        head, document_BD, *gold, step.loss, taken, loss_weights
      )

    given_BD = document_BD.astype(step.dtype)
    return jax.value_and_grad(total, has_aux=True)(given_BD)

  return run


@functools.cache
def _fused(step):
  with step.on_mesh():
    head, slots = step.start()
    run = program(step.at(key=0))
    results = run(jnp.uint32(step.key), nnx.state(head), slots)
    (loss, (rows, slots)), d_document_BD = jax.block_until_ready(results)
  rows = nnx.to_pure_dict(rows)
  return Found(float(loss), np.asarray(d_document_BD), cut(rows), cut(slots))


def sigmoid(z):
  return 1 / (1 + np.exp(-z))


def terms(loss, z_BL, gold_BL, weight_BL):
  """Returns the loss and its derivative by logits, both float64 [B, L]."""
  sign_BL = np.where(gold_BL, 1, -1)
  match loss:
    case Softmax():
      a_BL = np.where(gold_BL, weight_BL, 0)
      a_BL /= np.maximum(a_BL.sum(axis=1, keepdims=True), 1e-30)
      log_B1 = np.log(np.exp(z_BL).sum(axis=1, keepdims=True))
      share_BL = np.exp(z_BL - log_B1)
      total_B1 = a_BL.sum(axis=1, keepdims=True)
      return a_BL * (log_B1 - z_BL), total_B1 * share_BL - a_BL
    case Focal():
      p_BL = sigmoid(sign_BL * z_BL)
      a_BL = np.where(gold_BL, loss.alpha, 1 - loss.alpha) * weight_BL
      a_BL *= (1 - p_BL) ** loss.gamma
      slope_BL = loss.gamma * p_BL * -np.log(p_BL) + 1 - p_BL
      return -a_BL * np.log(p_BL), -sign_BL * a_BL * slope_BL
  if loss is squared_hinge:
    short_BL = np.maximum(0, 1 - sign_BL * z_BL)
    return weight_BL * short_BL**2, -2 * weight_BL * sign_BL * short_BL
  assert loss is bce
  cost_BL = np.logaddexp(0, z_BL) - gold_BL * z_BL
  return weight_BL * cost_BL, weight_BL * (sigmoid(z_BL) - gold_BL)


@functools.cache
def _dense(step):
  first = step.before()
  kernel_LD, bias_L = first.kernel(), first.rows['bias'].astype(np.float64)
  document_BD, positives_BP, mask_B = draw()
  x_BD = document_BD.astype(np.float64)
  gold_BL = (positives_BP[:, :, None] == np.arange(L)).any(axis=1)
  weight_BL = np.ones((B, L))
  if step.weighted:
    positive_L, negative_L = (x[:L] for x in jax.tree.leaves(label_weights()))
    weight_BL = np.where(gold_BL, positive_L, negative_L).astype(np.float64)
  loss_BL, dlogits_BL = (
    np.where(mask_B[:, None], x, 0)
    for x in terms(step.loss, x_BD @ kernel_LD.T + bias_L, gold_BL, weight_BL)
  )
  towards_LD, towards_L, slots = direction(
    step.rule,
    dlogits_BL.T @ x_BD / B,
    dlogits_BL.sum(axis=0) / B,
    {name: np.asarray(x, np.float64) for name, x in first.slots.items()},
  )
  kernel = kernel_LD - RATE * (towards_LD + DECAY * kernel_LD)
  rows = {'kernel': kernel, 'bias': bias_L - RATE * towards_L}
  return Found(loss_BL.sum(), dlogits_BL @ kernel_LD, rows, slots)


def direction(rule, d_kernel_LD, d_bias_L, slots):
  """Returns a rule's directions for kernel and biases, and its slots."""
  match rule:
    case SGD(momentum=0.0):
      return d_kernel_LD, d_bias_L, {}
    case SGD(momentum=momentum):
      d_kernel_LD = momentum * slots['kernel_momentum'] + d_kernel_LD
      d_bias_L = momentum * slots['bias_momentum'] + d_bias_L
      moments = {'kernel_momentum': d_kernel_LD, 'bias_momentum': d_bias_L}
      return d_kernel_LD, d_bias_L, moments
    case AdagradRow(eps=eps):
      squares_L = (d_kernel_LD**2).sum(axis=1) + d_bias_L**2
      squares_L = slots['squares'] + squares_L / (D + 1)
      scale_L = 1 / (np.sqrt(squares_L) + eps)
      moments = {'squares': squares_L}
      return d_kernel_LD * scale_L[:, None], d_bias_L * scale_L, moments


@pytest.fixture(scope='session')
def step_trial():
  return Step
