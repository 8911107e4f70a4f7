"""Defines how linear models and label trees are trained."""

import dataclasses
from typing import ClassVar

from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_0,
  AT_LEAST_1,
  POSITIVE,
  ConfigPart,
  at_most,
  field,
)
from xjax.models.linear.dual import Solver
from xjax.models.linear.problem import Loss, SolverConfig
from xjax.models.model_configs import (
  AutoModel,
  LinearModel,
  ModelConfig,
  NodesModel,
  UntrainedModel,
)
from xjax.models.trees.training import Blocks


@dataclasses.dataclass
class TrainConfig(ConfigPart, abstract=True):
  """Configures one way to train models.

  Attributes:
    trains: the kinds of models that can be trained in this way.
    processes: whether several processes can train one model together.
    steps: number of optimizer steps; 0 if training takes no such steps.
    best_metric: the 'slice/metric' that chooses the best checkpoint; empty if
      there is only one checkpoint.
  """

  trains: ClassVar[tuple[type[ModelConfig], ...]] = ()
  processes: ClassVar[bool] = True
  steps = 0
  best_metric = ''


@dataclasses.dataclass
class NoTrain(TrainConfig):
  """Skips training, for models that have nothing to learn."""

  earlier_kind = 'none'
  trains = (UntrainedModel,)


@dataclasses.dataclass
class AutoTrain(TrainConfig):
  """Stands for the training of the model that is chosen for AutoModel."""

  trains = (AutoModel,)


@dataclasses.dataclass
class LinearTrain(TrainConfig):
  """Configures the training of linear models (one classifier per label)."""

  trains = (LinearModel,)

  loss: Loss = field(Loss.SQUARED_HINGE, 'The loss of one document.')
  c: float = field(
    1.0,
    'Factor of the sum of all document losses (C in LIBLINEAR). The '
    'regulariser has the factor 1.',
    POSITIVE,
  )
  threshold: float = field(
    0.01, 'Weights with a smaller absolute value are set to 0.', AMOUNT
  )
  solver: SolverConfig = field(Blocks, 'The training algorithm.')

  @property
  def processes(self) -> bool:
    return self.solver.processes


@dataclasses.dataclass
class TreeTrain(TrainConfig):
  """Configures the training of label trees.

  A node of a tree has one classifier for each of its children.
  """

  trains = (NodesModel,)
  processes = False

  loss: Loss = field(Loss.SQUARED_HINGE, 'The loss of one document.')
  c: float = field(
    1.0,
    'Factor of the sum of all document losses (C in LIBLINEAR). The '
    'regulariser has the factor 1.',
    POSITIVE,
  )
  positive_weight: float = field(
    1.0,
    'Factor of c for the documents that have the label, or a label below the '
    'node.',
    POSITIVE,
  )
  eps: float = field(
    0.1,
    'Training ends when the optimality conditions are violated by at most this '
    'number, as in LIBLINEAR.',
    POSITIVE,
  )
  max_epochs: int = field(
    100, 'Largest number of passes over the documents.', AT_LEAST_1
  )
  threshold: float = field(
    0.1, 'Weights with a smaller absolute value are set to 0.', AMOUNT
  )
  matched: int = field(
    0,
    'Number of deepest clusters that the clusters above the labels predict for '
    'a training document. The labels of these clusters learn from the document '
    'too (matcher-aware negatives). With 0, only the labels of clusters with a '
    'gold label learn from the document.',
    AT_LEAST_0,
    tiny=at_most(2),
  )
  workers: int = field(2, 'Number of threads.', AT_LEAST_1, may_change=True)

  @property
  def solver(self) -> Solver:
    """Returns the objective of the classifiers, and when training stops."""
    stop = self.eps, self.max_epochs
    return Solver(self.loss, self.c, *stop, self.positive_weight)
