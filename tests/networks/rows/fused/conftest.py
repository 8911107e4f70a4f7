"""A step of the fused pass, and the same step on whole float64 arrays."""

from collections.abc import Callable
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
from xjax.losses.bce import BCE, bce
from xjax.losses.focal import Focal
from xjax.losses.loss import ChunkLoss, LabelWeights, Reduction
from xjax.losses.softmax import Softmax
from xjax.losses.squared_hinge import SquaredHinge
from xjax.networks.batch import Shortlist
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.rows.fused import RowUpdate, StepScalars, fused_loss
from xjax.networks.rows.kahan import kahan_slots
from xjax.networks.rows.storage import Storage, decode_weights
from xjax.networks.rows.update import (
  FusedAdagrad,
  FusedAdam,
  FusedRowsConfig,
  FusedSGD,
)

B, D, L, REAL = 16, 8, 307, 14  # no size of chunks or shards divides 307
RATE, DECAY = 6.0, 0.01  # changes as large as the weights
NUMBER = 3  # steps before
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


def all_labels():
  """Shortlists of all labels, each in an order of its own."""
  rng = np.random.default_rng(2)
  ids_BA = np.stack([rng.permutation(L) for _ in range(B)]).astype(np.int32)
  positives_BP = draw()[1]
  gold_BA = (ids_BA[:, :, None] == positives_BP[:, None]).any(axis=2)
  return Shortlist(ids_BA, gold_BA)


def some_labels():
  """Shortlists of unequal lengths, one of them empty; entries have weights."""
  rng = np.random.default_rng(1)
  few = rng.permutation(L - 1)[:60]
  ids_BA = np.stack([rng.permutation(few)[:11] for _ in range(B)])
  ids_BA = np.where(rng.random(ids_BA.shape) < 0.3, PAD, ids_BA)
  ids_BA[3], ids_BA[REAL:, 0] = PAD, L - 1  # real documents have no L - 1
  gold_BA = (rng.random(ids_BA.shape) < 0.2) & (ids_BA != PAD)
  weights_BA = rng.uniform(0, 3, ids_BA.shape).astype(np.float32)
  return Shortlist(ids_BA.astype(np.int32), gold_BA, weights_BA=weights_BA)


def label_weights():
  draw = np.random.default_rng(5).uniform(0, 3, (2, padded_labels(L)))
  return LabelWeights(*draw.astype(np.float32))


@dataclasses.dataclass(frozen=True)
class PassResults:
  """The results of a step for L labels, as NumPy arrays."""

  loss: float  # summed
  d_document_BD: np.ndarray
  rows: dict[str, np.ndarray]  # after the step, as the slots
  slots: dict[str, np.ndarray]

  def kernel(self):
    """Returns the stored weights in float64."""
    rows = {name: jnp.asarray(row) for name, row in self.rows.items()}
    return np.asarray(decode_weights(rows, jnp.float32), np.float64)


@dataclasses.dataclass(frozen=True)
class Step:
  """A step on drawn documents."""

  loss: ChunkLoss = bce
  rule: FusedRowsConfig = dataclasses.field(default_factory=FusedSGD)
  storage: Storage = Storage.FLOAT32
  weighted: bool = False  # whether labels have weights
  mesh: tuple[int, int] = (1, 1)
  chunk: int = 48
  key: int = 0x9E3779B1
  dtype: str = 'float32'  # of documents
  lists: Callable[[], Shortlist] | None = None  # None: gold among all labels

  def __hash__(self):
    return hash(repr(self))  # a rule is a config, which has none

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


def cut(arrays):
  """Cuts arrays to L rows; the blocks of LEFT_OUT have one row each here."""
  # NumPy arrays keep types of 8 and 16 bits.
  return {name: np.asarray(array)[:L] for name, array in arrays.items()}


@functools.cache
def _before(step):
  with step.on_mesh():
    head, slots = step.start()
  rows = nnx.to_pure_dict(nnx.state(head))
  return PassResults(0.0, np.zeros(0), cut(rows), cut(slots))


def given(step):
  """Gold labels or shortlists, and the mask of documents."""
  _, positives_BP, mask_B = draw()
  labels = step.lists() if step.lists else positives_BP
  return jax.tree.map(jnp.asarray, (labels, mask_B))


@functools.cache
def program(step):
  """The jitted step: (key, params, slots, given) -> results, d_document_BD."""
  graphdef = nnx.graphdef(step.start()[0])
  document_BD = jnp.asarray(draw()[0], step.dtype)
  weights = label_weights() if step.weighted else None
  weights = jax.tree.map(jnp.asarray, weights)

  @jax.jit
  def run(key, params, slots, given):
    def total(document_BD):
      head = nnx.merge(graphdef, params)
      sizes = jnp.float32(RATE), jnp.float32(DECAY)
      scalars = StepScalars(*sizes, key, jnp.int32(NUMBER))
      taken = RowUpdate(step.rule, slots, scalars)
      return fused_loss(head, document_BD, *given, step.loss, taken, weights)

    return jax.value_and_grad(total, has_aux=True)(document_BD)

  return run


@functools.cache
def _fused(step):
  with step.on_mesh():
    head, slots = step.start()
    run = program(step.at(key=0))
    state = jnp.uint32(step.key), nnx.state(head), slots
    results = jax.block_until_ready(run(*state, given(step)))
  (loss, (rows, slots)), d_document_BD = results
  rows = nnx.to_pure_dict(rows)
  return PassResults(
    float(loss), np.asarray(d_document_BD), cut(rows), cut(slots)
  )


def sigmoid(z):
  return 1 / (1 + np.exp(-z))


def terms(loss, z_BL, gold_BL, weight_BL, asked_BL):
  """Returns the loss and its derivative by logits, both float64 [B, L]."""
  sign_BL = np.where(gold_BL, 1, -1)
  match loss:
    case Softmax():
      a_BL = np.where(gold_BL, weight_BL, 0)
      a_BL /= np.maximum(a_BL.sum(axis=1, keepdims=True), 1e-30)
      share_BL = np.where(asked_BL, np.exp(z_BL), 0)
      sum_B1 = np.maximum(share_BL.sum(axis=1, keepdims=True), 1e-30)
      total_B1 = a_BL.sum(axis=1, keepdims=True)
      slope_BL = total_B1 * share_BL / sum_B1 - a_BL
      return a_BL * (np.log(sum_B1) - z_BL), slope_BL
    case Focal():
      p_BL = sigmoid(sign_BL * z_BL)
      a_BL = np.where(gold_BL, loss.alpha, 1 - loss.alpha) * weight_BL
      a_BL *= (1 - p_BL) ** loss.gamma
      slope_BL = loss.gamma * p_BL * -np.log(p_BL) + 1 - p_BL
      return -a_BL * np.log(p_BL), -sign_BL * a_BL * slope_BL
    case SquaredHinge():
      short_BL = np.maximum(0, 1 - sign_BL * z_BL)
      return weight_BL * short_BL**2, -2 * weight_BL * sign_BL * short_BL
    case BCE():
      cost_BL = np.logaddexp(0, z_BL) - gold_BL * z_BL
      return weight_BL * cost_BL, weight_BL * (sigmoid(z_BL) - gold_BL)


def asked_labels(step):
  """Which labels of documents are asked for, gold ones, and their weights."""
  _, positives_BP, _ = draw()
  gold_BL = (positives_BP[:, :, None] == np.arange(L)).any(axis=1)
  asked_BL, weight_BL = np.ones((B, L), bool), np.ones((B, L))
  if step.lists is not None:
    lists = step.lists()
    real_BA = lists.ids_BA != PAD
    at = np.nonzero(real_BA)[0], lists.ids_BA[real_BA]
    asked_BL, gold_BL = np.zeros((2, B, L), bool)
    asked_BL[at], gold_BL[at] = True, lists.gold_BA[real_BA]
    if lists.weights_BA is not None:
      weight_BL[at] = lists.weights_BA[real_BA]
  if step.weighted:
    positive_L, negative_L = (x[:L] for x in jax.tree.leaves(label_weights()))
    weight_BL *= np.where(gold_BL, positive_L, negative_L)
  if step.loss.reduction is Reduction.MEAN_LABELS:
    weight_BL /= np.maximum(asked_BL.sum(axis=1, keepdims=True), 1)
  return asked_BL & (np.arange(B) < REAL)[:, None], gold_BL, weight_BL


@functools.cache
def _dense(step):
  first = step.before()
  kernel_LD, bias_L = first.kernel(), first.rows['bias'].astype(np.float64)
  x_BD = draw()[0].astype(np.float64)
  asked_BL, gold_BL, weight_BL = asked_labels(step)
  z_BL = x_BD @ kernel_LD.T + bias_L
  loss_BL, dlogits_BL = (
    np.where(asked_BL, x, 0)
    for x in terms(step.loss, z_BL, gold_BL, weight_BL, asked_BL)
  )
  slots = {name: np.asarray(x, np.float64) for name, x in first.slots.items()}
  d = dlogits_BL.T @ x_BD / B, dlogits_BL.sum(axis=0) / B
  towards_LD, towards_L, after = direction(step.rule, *d, slots)
  kernel = kernel_LD - RATE * (towards_LD + DECAY * kernel_LD)
  bias = bias_L - RATE * towards_L
  used_L = asked_BL.any(axis=0)
  changes = {'kernel': (kernel, kernel_LD), 'bias': (bias, bias_L)}
  changes |= {name: (after[name], slots[name]) for name in after}
  kept = {
    name: np.where(used_L if new.ndim == 1 else used_L[:, None], new, old)
    for name, (new, old) in changes.items()
  }
  rows = {name: kept.pop(name) for name in ('kernel', 'bias')}
  return PassResults(loss_BL.sum(), dlogits_BL @ kernel_LD, rows, kept)


def direction(rule, d_kernel_LD, d_bias_L, slots):
  """Returns a rule's directions for kernel and biases, and its slots."""
  match rule:
    case FusedSGD(momentum=0.0):
      return d_kernel_LD, d_bias_L, {}
    case FusedSGD(momentum=momentum):
      d_kernel_LD = momentum * slots['kernel_momentum'] + d_kernel_LD
      d_bias_L = momentum * slots['bias_momentum'] + d_bias_L
      moments = {'kernel_momentum': d_kernel_LD, 'bias_momentum': d_bias_L}
      return d_kernel_LD, d_bias_L, moments
    case FusedAdagrad(eps=eps):
      squares_L = (d_kernel_LD**2).sum(axis=1) + d_bias_L**2
      squares_L = slots['squares'] + squares_L / (D + 1)
      scale_L = 1 / (np.sqrt(squares_L) + eps)
      moments = {'squares': squares_L}
      return d_kernel_LD * scale_L[:, None], d_bias_L * scale_L, moments
    case FusedAdam(b1=b1, b2=b2, eps=eps):
      moments, towards = {}, []
      for part, d in (('kernel', d_kernel_LD), ('bias', d_bias_L)):
        mean = b1 * slots[f'{part}_mean'] + (1 - b1) * d
        squares = b2 * slots[f'{part}_squares'] + (1 - b2) * d**2
        moments |= {f'{part}_mean': mean, f'{part}_squares': squares}
        root = np.sqrt(squares / (1 - b2 ** (NUMBER + 1)))
        towards.append(mean / (1 - b1 ** (NUMBER + 1)) / (root + eps))
      return *towards, moments


# These are no fields: the caches compare steps by their fields.
Step.frequent, Step.real = FREQUENT, REAL
Step.draw, Step.given = staticmethod(draw), given
Step.program, Step.asked_labels = program, asked_labels
Step.all_labels = staticmethod(all_labels)
Step.some_labels = staticmethod(some_labels)


@pytest.fixture(scope='session')
def step_trial():
  return Step
