"""All labels of a chunk minimised at once: steps, each label its own.

Conjugate gradients on 0.5 |w|^2 + C sum_i loss(y_i w.x_i), directly on the
objective (Polak and Ribiere 1969, with restarts), divided by a preconditioner,
each step as long as Newton's method on its line finds best. Two products with
the documents a step: the scores along a direction make the line's objective,
and the scores of all weights, cheap.

The preconditioner is what the labels' second derivatives have in common. The
Hessian of a label is I + X'AX, A being the curvatures of its documents' losses.
The first eigenvalues of X'X are many times the others: all labels share them,
and with the label's mean curvature for A they make the Hessian nearly round (a
low-rank preconditioner, as in Frangella, Tropp and Udell 2023; the eigenvectors
by subspace iteration, Halko, Martinsson and Tropp 2011).
"""

import functools
from typing import NamedTuple

from flax import struct
import jax
from jax import lax
import jax.numpy as jnp

from xjax.core.numerics import column_sums
from xjax.score.linear.problem import Loss
from xjax.score.linear.tiles import Tiles, product

RANK = 256  # of the preconditioner
_LINE_STEPS, _BIAS_STEPS = 5, 30
_SLACK = 1e-4  # of a length
_TINY = 1e-30  # a divisor instead of 0

_matmul = functools.partial(jnp.matmul, precision='highest')


@struct.dataclass
class Preconditioner:
  """The leading eigenvectors of X'X.

  Attributes:
    vectors_DK: float32, orthonormal.
    values_K: their eigenvalues, ascending.
  """

  vectors_DK: jax.Array
  values_K: jax.Array

  def divide(self, x_DC: jax.Array, curvature_C: jax.Array) -> jax.Array:
    """Columns divided by their labels' approximate Hessians.

    Args:
      x_DC: float32, a column for each label.
      curvature_C: the mean over documents of their losses' curvatures.
    """
    # All other eigenvalues are taken to be as the least of these.
    rest_C = 1 + curvature_C * self.values_K[0]
    value_KC = 1 + curvature_C * self.values_K[:, None]
    part_KC = (rest_C / value_KC - 1) * _matmul(self.vectors_DK.T, x_DC)
    return (x_DC + _matmul(self.vectors_DK, part_KC)) / rest_C


@functools.partial(jax.jit, static_argnames='rank')
def make_preconditioner(
  rows: Tiles, columns: Tiles, rank: int = RANK
) -> Preconditioner:
  """Of documents: X and its transpose."""
  n_docs, n_features = rows.n_rows, columns.n_rows
  rank = min(rank, n_docs, n_features)
  start_DK = jax.random.normal(jax.random.key(0), (n_features, rank))
  spanned_DK = product(columns, product(rows, start_DK))
  basis_DK, _ = jnp.linalg.qr(spanned_DK)
  image_NK = product(rows, basis_DK)
  values_K, turn_KK = jnp.linalg.eigh(_matmul(image_NK.T, image_NK))
  return Preconditioner(_matmul(basis_DK, turn_KK), jnp.maximum(values_K, 0))


@struct.dataclass
class TrainingRows:
  """All documents; the last feature is 1, its weight the bias.

  Attributes:
    rows: X.
    columns: X transposed.
    preconditioner: of X.
  """

  rows: Tiles
  columns: Tiles
  preconditioner: Preconditioner


@struct.dataclass
class DescentState:
  """Labels on their way; all arrays have labels last.

  Attributes:
    positive_NC: bool, which documents have the label.
    label_C: int32, the label; PAD where only filled.
    done_C: bool, whether it is near enough to its minimum.
    weights_DC: the last row is the bias.
    scores_NC: of the documents.
    direction_DC: of the last step.
    gradient_DC: before it.
    decrement_C: of that gradient, its squared length by the preconditioner.
  """

  positive_NC: jax.Array
  label_C: jax.Array
  done_C: jax.Array
  weights_DC: jax.Array
  scores_NC: jax.Array
  direction_DC: jax.Array
  gradient_DC: jax.Array
  decrement_C: jax.Array


class Terms(NamedTuple):
  """A loss of margins, times C: values, first and second derivatives."""

  value: jax.Array
  slope: jax.Array
  curvature: jax.Array


@struct.dataclass
class Objective:
  """The sum of losses.

  Attributes:
    loss: of a document.
    c: its weight.
  """

  loss: Loss = struct.field(pytree_node=False)
  c: jax.Array

  def terms(self, margin: jax.Array) -> Terms:
    """Of margins y (w.x + b)."""
    match self.loss:
      case Loss.SQUARED_HINGE:
        short = jnp.maximum(0, 1 - margin)
        terms = Terms(short * short, -2 * short, 2.0 * (margin < 1))
      case Loss.LOGISTIC:
        wrong = jax.nn.sigmoid(-margin)
        value = jnp.logaddexp(0, -margin)
        terms = Terms(value, -wrong, wrong * (1 - wrong))
    return Terms(*(self.c * x for x in terms))


def start(
  n_features: int, positive_NC: jax.Array, label_C: jax.Array, goal: Objective
) -> DescentState:
  """Labels with the best bias that weights of 0 have; fillers are done."""
  n_docs, n_labels = positive_NC.shape
  bias_C = _best_bias(positive_NC.sum(axis=0), n_docs, goal)
  none_DC = jnp.zeros((n_features, n_labels))
  return DescentState(
    positive_NC=positive_NC,
    label_C=label_C,
    done_C=label_C < 0,
    weights_DC=none_DC.at[-1].set(bias_C),
    scores_NC=jnp.broadcast_to(bias_C, (n_docs, n_labels)),
    direction_DC=none_DC,
    gradient_DC=none_DC,
    decrement_C=jnp.ones(n_labels),
  )


def _best_bias(count_C: jax.Array, n_docs: int, goal: Objective) -> jax.Array:
  """By Newton's method, for labels that so many documents have."""

  def improve(_: int, bias_C: jax.Array) -> jax.Array:
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
  tolerance: jax.Array,
) -> DescentState:
  """One step of every label that is not done.

  Half the decrement is about how far the objective is above its minimum, if
  the preconditioner is about the Hessian: a label is done where that is less
  than a quarter of the tolerance.
  """
  sign_NC = jnp.where(state.positive_NC, 1.0, -1.0)
  terms = goal.terms(sign_NC * state.scores_NC)
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
  gradient_DC: jax.Array,
  divided_DC: jax.Array,
  decrement_C: jax.Array,
) -> jax.Array:
  """Downhill, and conjugate to the last one."""
  change_C = _dot(divided_DC, gradient_DC - state.gradient_DC)
  kept_C = jnp.maximum(0, change_C / jnp.maximum(state.decrement_C, _TINY))
  direction_DC = kept_C * state.direction_DC - divided_DC
  downhill_C = _dot(direction_DC, gradient_DC) < 0
  return jnp.where(downhill_C, direction_DC, -divided_DC)


def _line_minimum(
  state: DescentState,
  direction_DC: jax.Array,
  along_NC: jax.Array,
  sign_NC: jax.Array,
  goal: Objective,
) -> jax.Array:
  """How far to go: Newton's method within bounds that draw together."""
  start_C = _dot(state.weights_DC, direction_DC)
  square_C = _dot(direction_DC, direction_DC)

  def improve(
    _: int, bounds: tuple[jax.Array, jax.Array, jax.Array]
  ) -> tuple[jax.Array, jax.Array, jax.Array]:
    at_C, low_C, high_C = bounds
    terms = goal.terms(sign_NC * (state.scores_NC + at_C * along_NC))
    slope_C = start_C + at_C * square_C
    slope_C += _dot(sign_NC * terms.slope, along_NC)
    curve_C = square_C + _dot(terms.curvature, along_NC * along_NC)
    low_C = jnp.where(slope_C < 0, at_C, low_C)
    high_C = jnp.where(slope_C < 0, high_C, at_C)
    next_C = at_C - slope_C / jnp.maximum(curve_C, _TINY)
    middle_C = jnp.where(jnp.isinf(high_C), 2 * low_C, (low_C + high_C) / 2)
    # At the minimum rounding may put it outside, or bounds the wrong way.
    slack_C = _SLACK * at_C
    inside_C = (next_C >= low_C - slack_C) & (next_C <= high_C + slack_C)
    return jnp.where(inside_C, next_C, middle_C), low_C, high_C

  one_C = jnp.ones(start_C.shape)
  bounds = one_C, 0 * one_C, jnp.inf * one_C
  return lax.fori_loop(0, _LINE_STEPS, improve, bounds)[0]


def halve(state: DescentState) -> DescentState:
  """The half of the labels that is done least: all that are not, if it can."""
  n_kept = len(state.label_C) // 2
  kept = jnp.argsort(state.done_C, stable=True)[:n_kept]
  return jax.tree.map(functools.partial(jnp.take, indices=kept, axis=-1), state)


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
  """Of each label."""
  return column_sums(a * b)
