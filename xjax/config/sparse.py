"""How linear classifiers are trained, of labels and of nodes of label trees."""

import dataclasses

from xjax.config.run import TrainConfig
from xjax.data.config import MAY_CHANGE
from xjax.score.linear.problem import Loss, SolverConfig
from xjax.score.trees.training import Blocks


@dataclasses.dataclass
class LinearTrain(TrainConfig):
  """Training one classifier per label.

  Attributes:
    loss: of a document.
    c: weight of the losses beside the regulariser (LIBLINEAR's C).
    threshold: weights of a smaller size become 0.
    solver: what trains.
  """

  loss: Loss = Loss.SQUARED_HINGE
  c: float = 1.0
  threshold: float = 0.01
  solver: SolverConfig = dataclasses.field(default_factory=Blocks)


@dataclasses.dataclass
class TreeTrain(TrainConfig):
  """Training the classifiers of a label tree, a node's children at a time.

  Attributes:
    loss: of a document.
    c: weight of the losses beside the regulariser (LIBLINEAR's C).
    eps: violation of the optimality conditions at which training ends, as of
      LIBLINEAR.
    max_epochs: visits of every document, at most.
    threshold: weights of a smaller size become 0.
    workers: threads.
  """

  loss: Loss = Loss.SQUARED_HINGE
  c: float = 1.0
  eps: float = 0.1
  max_epochs: int = 100
  threshold: float = 0.1
  workers: int = dataclasses.field(default=2, metadata=MAY_CHANGE)
