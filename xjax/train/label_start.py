"""What label rows begin with, put in once the arrays of a state are made.

Numbers of each label would be constants of the program that makes the arrays:
eight characters of its text for each.
"""

import dataclasses

import jax
import numpy as np

from xjax.core.mesh import put_labels
from xjax.score.heads.kahan import PLACE, kahan_places
from xjax.train.state import StatePlan, TrainState, by_path, from_paths

BIASES = 'head/bias'


def with_label_start(plan: StatePlan, biases: np.ndarray | None) -> StatePlan:
  """The plan of states whose label rows begin with numbers of their own.

  Args:
    plan: of the model, whose biases begin at 0 and whose labels have no places
      for what rounding leaves out.
    biases: [L] first biases of the head; None: they stay as they are.

  Returns:
    The plan; where labels have such places, its states have them.
  """

  def init(key: jax.Array) -> TrainState:
    state = plan.init(key)
    params = by_path(state.params)
    if biases is not None:
      first = np.asarray(biases, np.float32)
      params[BIASES] = put_labels(first, params[BIASES].sharding)
    slots = by_path(state.row_slots)
    if PLACE in slots:
      places = kahan_places(plan.rows.compensated)
      slots[PLACE] = put_labels(places, slots[PLACE].sharding)
    state = dataclasses.replace(
      state,
      params=from_paths(state.params, params),
      row_slots=from_paths(state.row_slots, slots),
    )
    return plan.begin_averages(state)

  return dataclasses.replace(plan, init=init)
