"""How linear classifiers are trained, of labels and of nodes of label trees."""

import dataclasses

from xjax.config.run import TrainConfig
from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_1,
  POSITIVE,
  field,
)
from xjax.score.config import LinearModel, TreeModel
from xjax.score.linear.problem import Loss, SolverConfig
from xjax.score.trees.training import Blocks


@dataclasses.dataclass
class LinearTrain(TrainConfig):
  """Training one classifier per label."""

  trains = (LinearModel,)

  loss: Loss = field(Loss.SQUARED_HINGE, 'Of a document.')
  c: float = field(
    1.0,
    "Weight of the losses beside the regulariser (LIBLINEAR's C).",
    POSITIVE,
  )
  threshold: float = field(0.01, 'Weights of a smaller size become 0.', AMOUNT)
  solver: SolverConfig = field(Blocks, 'What trains.')

  @property
  def processes(self) -> bool:
    return self.solver.processes


@dataclasses.dataclass
class TreeTrain(TrainConfig):
  """Training the classifiers of a label tree, a node's children at a time."""

  trains = (TreeModel,)
  processes = False

  loss: Loss = field(Loss.SQUARED_HINGE, 'Of a document.')
  c: float = field(
    1.0,
    "Weight of the losses beside the regulariser (LIBLINEAR's C).",
    POSITIVE,
  )
  eps: float = field(
    0.1,
    'Violation of the optimality conditions at which training ends, as of '
    'LIBLINEAR.',
    POSITIVE,
  )
  max_epochs: int = field(100, 'Visits of every document, at most.', AT_LEAST_1)
  threshold: float = field(0.1, 'Weights of a smaller size become 0.', AMOUNT)
  workers: int = field(2, 'Threads.', AT_LEAST_1, may_change=True)
