"""How linear classifiers are trained, of labels and of nodes of label trees."""

import dataclasses
from typing import Any, ClassVar

from xjax.config.run import TrainConfig
from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_1,
  POSITIVE,
  ConfigPart,
  field,
)
from xjax.score.config import LinearModel, TreeModel
from xjax.score.linear.config import Loss

_LIBLINEAR_ALONE = ('max_iter', 'batch_labels')


@dataclasses.dataclass
class SolverConfig(ConfigPart, abstract=True):
  """What trains one-vs-all classifiers.

  Attributes:
    processes: whether several processes can train together.
  """

  processes: ClassVar[bool] = False


@dataclasses.dataclass
class Blocks(SolverConfig):
  """LIBLINEAR's method, for sixteen labels at once, on CPUs."""

  earlier_kind = 'liblinear'  # a solver that earlier runs could have

  eps: float = field(0.1, "LIBLINEAR's tolerance.", POSITIVE)
  max_epochs: int = field(100, 'Visits of every document, at most.', AT_LEAST_1)
  workers: int = field(2, 'Threads.', AT_LEAST_1, may_change=True)

  @classmethod
  def from_earlier(cls, fields: dict[str, Any]) -> dict[str, Any]:
    """Leaves out the settings that only LIBLINEAR itself had."""
    return {k: v for k, v in fields.items() if k not in _LIBLINEAR_ALONE}


@dataclasses.dataclass
class OnDevices(SolverConfig):
  """Many labels at once, on the devices of the mesh (linear/batched.py)."""

  processes = True

  tolerance: float = field(
    1e-3,
    'How far above its minimum, relatively, the objective may be.',
    POSITIVE,
  )
  max_steps: int = field(200, 'Of a label.', AT_LEAST_1)
  chunk: int = field(
    256,
    'Labels at a time, over all devices; what a killed run loses.',
    AT_LEAST_1,
  )


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
