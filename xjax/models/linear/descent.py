"""Trains the linear classifiers of many labels together, step by step.

The labels that are trained together are a chunk. Each label has its own
sequence of steps, and its own objective, 0.5 |w|^2 + C sum_i loss(y_i w.x_i):

- w are the weights of the label, and x_i are the features of document i.
- y_i is 1 if document i has the label, else -1.

The method is nonlinear conjugate gradients (Polak and Ribiere 1969) with
restarts and a preconditioner. Newton's method finds the best length of each
step along the step's direction.

The rows of the matrix X are the documents. A step takes two matrix products:

- The product with X' (X transposed) gives the gradient.
- The product of X and the direction gives the change of the scores for a step
  of length 1. With this product, it is cheap to compute the objective for any
  length of the step, and to compute the new scores.

The preconditioner approximates the Hessian of a label's objective, I + X'AX.
The matrix A is diagonal, and holds the curvatures (second derivatives) of the
documents' losses. There are two approximations:

- The mean of a label's curvatures replaces A. So all labels share the matrix
  X'X.
- Only the leading eigenvectors of X'X are used, because the largest eigenvalues
  are many times larger than the other eigenvalues (a low-rank preconditioner,
  as in Frangella, Tropp and Udell 2023). Subspace iteration finds these
  eigenvectors (Halko, Martinsson and Tropp 2011).
"""

import functools
from typing import NamedTuple, no_type_check

from flax import struct
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int, Int32
import numpy as np

from xjax.core.numerics import column_sums
from xjax.models.linear.problem import Loss
from xjax.models.linear.tiles import Tiles, product

RANK = 256  # eigenvectors of the preconditioner
_LINE_STEPS, _BIAS_STEPS = 5, 30  # steps of Newton's method
_SLACK = 1e-4  # tolerance of the bounds, relative to the length of a step
_TINY = 1e-30  # replaces a divisor of 0

# TPUs and GPUs otherwise round factors to bfloat16 or TF32, and the directions
# are then no longer conjugate.
_matmul = functools.partial(jnp.matmul, precision='highest')

# The length of a step, and the lower bound and upper bound of this length.
_Bounds = tuple[
  Float32[Array, ' C'], Float32[Array, ' C'], Float32[Array, ' C']
]


# Types are not checked at run time, because within JAX the fields may also hold
# specs or None.
@no_type_check
@struct.dataclass
class Preconditioner:
  """Holds the leading eigenvectors of X'X."""

  vectors: Float32[Array, 'D rank']  # orthonormal columns
  values: Float32[Array, ' rank']  # the eigenvalues of the vectors, ascending

  def divide(
    self, x_DC: Float32[Array, 'D C'], curvature_C: Float32[Array, ' C']
  ) -> Float32[Array, 'D C']:
    """Multiplies x_DC by the inverse of each label's approximate Hessian."""
    # All other eigenvalues of X'X are approximated by the smallest of `values`.
    rest_C = 1 + curvature_C * self.values[0]
    scale = 1 + curvature_C * self.values[:, None]
    # The inverse is (I + V (rest / scale - 1) V') / rest, so no matrix of
    # features times features is made.
    part = (rest_C / scale - 1) * _matmul(self.vectors.T, x_DC)
    return (x_DC + _matmul(self.vectors, part)) / rest_C


@functools.partial(jax.jit, static_argnames='rank')
def make_preconditioner(
  rows: Tiles, columns: Tiles, rank: int = RANK
) -> Preconditioner:
  """Finds at most `rank` leading eigenvectors of X'X, from X and X'."""
  n_docs, n_features = rows.n_rows, columns.n_rows
  rank = min(rank, n_docs, n_features)
  start = jax.random.normal(jax.random.key(0), (n_features, rank))
  # One power step with X'X brings random vectors close to the leading
  # eigenvectors. QR makes them orthonormal.
  basis, _ = jnp.linalg.qr(product(columns, product(rows, start)))
  image = product(rows, basis)
  values, rotation = jnp.linalg.eigh(_matmul(image.T, image))
  # Rounding can make the smallest eigenvalues slightly negative.
  return Preconditioner(_matmul(basis, rotation), jnp.maximum(values, 0))


@no_type_check
@struct.dataclass
class TrainingRows:
  """Holds the training documents, whose last feature is 1, for the bias."""

  rows: Tiles  # X, [N, D]
  columns: Tiles  # X transposed
  preconditioner: Preconditioner


@no_type_check
@struct.dataclass
class DescentState:
  """Holds the state of the labels of a chunk during training."""

  positive_NC: Bool[Array, 'N C']  # whether the document has the label
  label_C: Int32[Array, ' C']  # PAD in columns that only fill the chunk
  done_C: Bool[Array, ' C']  # whether the objective is close to its minimum
  weights_DC: Float32[Array, 'D C']  # the last row is the bias
  scores_NC: Float32[Array, 'N C']
  direction_DC: Float32[Array, 'D C']  # of the last step
  gradient_DC: Float32[Array, 'D C']  # g, before the last step
  decrement_C: Float32[Array, ' C']  # g' inv(M) g; M approximates the Hessian


class Terms(NamedTuple):
  """Holds losses and their first two derivatives, all multiplied by c."""

  value: Float32[Array, '...']
  slope: Float32[Array, '...']
  curvature: Float32[Array, '...']


@no_type_check
@struct.dataclass
class Objective:
  """Defines the sum of the documents' losses, without the regulariser."""

  loss: Loss = struct.field(pytree_node=False)
  c: Float32[Array, ''] | np.float32  # weight of the losses

  def terms(self, margin: Float32[Array, '...']) -> Terms:
    """Returns the losses and derivatives at the margins y (w.x + b)."""
    match self.loss:
      case Loss.SQUARED_HINGE:
        short = jnp.maximum(0, 1 - margin)
        terms = Terms(short * short, -2 * short, 2.0 * (margin < 1))
      case Loss.LOGISTIC:
        wrong = jax.nn.sigmoid(-margin)
        # log(1 + exp(-m)) overflows for very negative margins.
        value = jnp.logaddexp(0, -margin)
        terms = Terms(value, -wrong, wrong * (1 - wrong))
    return Terms(*(self.c * x for x in terms))


def start(
  n_features: int,  # D, with the constant feature of the bias
  positive_NC: Bool[Array, 'N C'],
  label_C: Int32[Array, ' C'],  # PAD in columns that only fill the chunk
  goal: Objective,
) -> DescentState:
  """Returns the state with weights of 0 and the best bias for these weights."""
  n_docs, n_labels = positive_NC.shape
  bias_C = _best_bias(positive_NC.sum(axis=0), n_docs, goal)
  zeros_DC = jnp.zeros((n_features, n_labels))
  return DescentState(
    positive_NC=positive_NC,
    label_C=label_C,
    # Columns that only fill the chunk are done from the start.
    done_C=label_C < 0,
    weights_DC=zeros_DC.at[-1].set(bias_C),
    scores_NC=jnp.broadcast_to(bias_C, (n_docs, n_labels)),
    direction_DC=zeros_DC,
    gradient_DC=zeros_DC,
    decrement_C=jnp.ones(n_labels),
  )


def _best_bias(
  count_C: Int[Array, ' C'], n_docs: int, goal: Objective
) -> Float32[Array, ' C']:
  """Finds the best bias of each label by Newton's method, for weights of 0."""

  def improve(
    _: Int[Array, ''], bias_C: Float32[Array, ' C']
  ) -> Float32[Array, ' C']:
    have, lack = goal.terms(bias_C), goal.terms(-bias_C)
    others_C = n_docs - count_C
    slope_C = bias_C + count_C * have.slope - others_C * lack.slope
    curve_C = 1 + count_C * have.curvature + others_C * lack.curvature
    return bias_C - slope_C / curve_C

  return lax.fori_loop(0, _BIAS_STEPS, improve, jnp.zeros(count_C.shape))


def step(
  documents: TrainingRows,
  state: DescentState,
  goal: Objective,
  tolerance: Float[Array, ''],
) -> DescentState:
  """Makes one step for every label that is not done.

  If the preconditioner is close to the Hessian, decrement_C / 2 is an estimate
  of the objective minus its minimum. A label is done if this estimate is at
  most tolerance / 4 times the objective.
  """
  sign_NC = jnp.where(state.positive_NC, 1.0, -1.0)
  terms = goal.terms(sign_NC * state.scores_NC)
  # The scores are carried along with the weights, so a step needs no product
  # for them.
  gradient_DC = state.weights_DC + product(
    documents.columns, sign_NC * terms.slope
  )
  divided_DC = documents.preconditioner.divide(
    gradient_DC, column_sums(terms.curvature) / len(sign_NC)
  )
  decrement_C = _dot(gradient_DC, divided_DC)
  objective_C = _dot(state.weights_DC, state.weights_DC) / 2
  objective_C += column_sums(terms.value)
  done_C = state.done_C | (decrement_C <= tolerance / 2 * objective_C)
  direction_DC = _direction(state, gradient_DC, divided_DC, decrement_C)
  # Labels that are done stay in the arrays until they are halved, but no longer
  # move.
  direction_DC = jnp.where(done_C, 0, direction_DC)
  along_NC = product(documents.rows, direction_DC)
  length_C = _line_minimum(state, direction_DC, along_NC, sign_NC, goal)
  return state.replace(
    done_C=done_C,
    weights_DC=state.weights_DC + length_C * direction_DC,
    scores_NC=state.scores_NC + length_C * along_NC,
    direction_DC=direction_DC,
    gradient_DC=gradient_DC,
    decrement_C=decrement_C,
  )


def _direction(
  state: DescentState,
  gradient_DC: Float32[Array, 'D C'],
  divided_DC: Float32[Array, 'D C'],
  decrement_C: Float32[Array, ' C'],
) -> Float32[Array, 'D C']:
  """Returns a direction of descent, if possible conjugate to the last one."""
  change_C = _dot(divided_DC, gradient_DC - state.gradient_DC)
  # At 0, the direction is that of steepest descent again (a restart).
  kept_C = jnp.maximum(0, change_C / jnp.maximum(state.decrement_C, _TINY))
  direction_DC = kept_C * state.direction_DC - divided_DC
  downhill_C = _dot(direction_DC, gradient_DC) < 0
  # Rounding can spoil the direction; the preconditioned gradient always leads
  # down.
  return jnp.where(downhill_C, direction_DC, -divided_DC)


def _line_minimum(
  state: DescentState,
  direction_DC: Float32[Array, 'D C'],
  along_NC: Float32[Array, 'N C'],  # change of scores for a step of length 1
  sign_NC: Float32[Array, 'N C'],  # 1 where the document has the label, else -1
  goal: Objective,
) -> Float32[Array, ' C']:
  """Returns the best length of each label's step, by Newton's method."""
  start_C = _dot(state.weights_DC, direction_DC)
  square_C = _dot(direction_DC, direction_DC)

  def improve(_: Int[Array, ''], bounds: _Bounds) -> _Bounds:
    at_C, low_C, high_C = bounds
    # Scores are linear in the length, so no product with X is needed here.
    terms = goal.terms(sign_NC * (state.scores_NC + at_C * along_NC))
    slope_C = start_C + at_C * square_C
    slope_C += _dot(sign_NC * terms.slope, along_NC)
    curve_C = square_C + _dot(terms.curvature, along_NC * along_NC)
    # The objective is convex: where its slope is negative, the minimum is
    # further on, otherwise it is not.
    low_C = jnp.where(slope_C < 0, at_C, low_C)
    high_C = jnp.where(slope_C < 0, high_C, at_C)
    next_C = at_C - slope_C / jnp.maximum(curve_C, _TINY)
    middle_C = jnp.where(jnp.isinf(high_C), 2 * low_C, (low_C + high_C) / 2)
    # At the minimum, rounding may move the length out of the bounds, or swap
    # the bounds.
    slack_C = _SLACK * at_C
    inside_C = (next_C >= low_C - slack_C) & (next_C <= high_C + slack_C)
    return jnp.where(inside_C, next_C, middle_C), low_C, high_C

  one_C = jnp.ones(start_C.shape)
  bounds = one_C, 0 * one_C, jnp.inf * one_C
  return lax.fori_loop(0, _LINE_STEPS, improve, bounds)[0]


def halve(state: DescentState) -> DescentState:
  """Keeps half of the labels, preferably labels that are not done."""
  n_kept = len(state.label_C) // 2
  # False sorts before True. Columns keep their order otherwise, as the sort is
  # stable.
  kept = jnp.argsort(state.done_C, stable=True)[:n_kept]
  return jax.tree.map(functools.partial(jnp.take, indices=kept, axis=-1), state)


def _dot(
  a: Float32[Array, 'rows C'], b: Float32[Array, 'rows C']
) -> Float32[Array, ' C']:
  return column_sums(a * b)
