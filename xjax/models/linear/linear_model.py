"""Defines linear models: one linear classifier for each label."""

import dataclasses

from xjax.core.config_part import AMOUNT, POSITIVE, field
from xjax.data.files.faults import plural
from xjax.data.label_trees.label_tree import LabelTree, TreeData
from xjax.data.label_trees.simple_trees import complete_tree
from xjax.models.contract import Config, Run
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.linear.classifiers import PartFiles
from xjax.models.linear.problem import Loss, OneVsAllProblem, SolverConfig
from xjax.models.trees.sparse_model import SparseModel
from xjax.models.trees.training import Blocks
from xjax.train.train_config import TrainConfig


@dataclasses.dataclass
class LinearTrain(TrainConfig):
  """Configures the training of linear models (one classifier per label)."""

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


@dataclasses.dataclass
class LinearModel(SparseModel):
  """Trains one linear classifier for each label, all below a tree's root."""

  trained_by = LinearTrain
  several_processes = True  # if the solver can use several; see check
  chained = False

  def trained_together(self, config: Config) -> bool:
    return config.train.solver.processes

  def train_file(
    self, number: int, data: TreeData, parts: PartFiles, run: Run
  ) -> tuple[LabelTree, BlockWeights]:
    del number  # there is one file
    config, n_labels = run.config, data.space.n_trained
    train = config.train
    problem = OneVsAllProblem(
      data.rows,
      data.gold,
      n_labels,
      loss=train.loss,
      c=train.c,
      threshold=train.threshold,
      seed=config.seed,
      mesh=config.mesh,
      parts=parts,
      between=run.preemption.check,
    )
    flat = complete_tree(n_labels, max(2, n_labels))
    return flat, train.solver.fit(problem)

  def summary(self, tree: LabelTree) -> str:
    return plural(tree.n_labels, 'classifier')
