"""Chooses the labels of documents by a strategy, with a finished run."""

from collections.abc import Sequence
import dataclasses
import enum
import math
from typing import Any

from absl import logging
import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.progress import Progress
from xjax.core.types import AS_LOGITS, ScoreKind
from xjax.data.documents import Documents
from xjax.data.schema import Split, propensity_weights
from xjax.judge.calibration import Method
from xjax.judge.criteria import Criteria
from xjax.judge.label_lists import LabelLists, list_length
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions
from xjax.models.contract import DEV
from xjax.run.open_run import OpenRun
from xjax.run.strategies.strategies import (
  RankedDocuments,
  Selection,
  select_by_coverage,
  select_by_weight,
)


class StrategyKind(enum.Enum):
  """Defines the values of the flag --strategy; see strategies.py."""

  PROPENSITY = 'propensity'
  COVERAGE = 'coverage'


@dataclasses.dataclass(frozen=True)
class StrategyRequest:
  kind: StrategyKind  # PROPENSITY uses the run's eval.propensity
  k: int  # number of labels of each document
  beta: float = 0.0  # of COVERAGE
  seed: int = 0  # of COVERAGE

  def __post_init__(self) -> None:
    if self.k < 1:
      raise ConfigError(f'--strategy_k={self.k}: must be at least 1')
    if not 0 <= self.beta < math.inf:
      raise ConfigError(f'--beta={self.beta}: must be a number of at least 0')

  def check_cut_offs(self, ks: Sequence[int]) -> None:
    if max(ks, default=0) > self.k:
      raise ConfigError(
        f'--ks={max(ks)}: must be at most --strategy_k={self.k}, the number of '
        'chosen labels'
      )

  def parameters(self) -> dict[str, Any]:
    settings = {'strategy': self.kind.value, 'k': self.k}
    if self.kind is StrategyKind.COVERAGE:
      settings |= {'beta': self.beta, 'seed': self.seed}
    return settings

  def criteria(self, usual: Criteria) -> Criteria:
    """Returns the usual criteria with the cut-offs up to k, or else with k."""
    ks = [k for k in usual.ks if k <= self.k] or [self.k]
    return dataclasses.replace(usual, ks=tuple(ks))


@dataclasses.dataclass(frozen=True, eq=False)
class StrategyRunner:
  """Chooses labels by a strategy, with the scores of a model.

  Logits are used without calibration, even if the run has a calibration. A
  score z has the probability sigmoid(a z + b), where (a, b) is `sigmoid`.
  """

  request: StrategyRequest
  run: OpenRun
  sigmoid: tuple[float, float]
  weights_L: np.ndarray | None  # of PROPENSITY; None: COVERAGE

  @classmethod
  def of(cls, request: StrategyRequest, run: OpenRun) -> 'StrategyRunner':
    """Makes a runner, and finds all faults before any document is scored."""
    weights_L, space = None, run.space
    if request.kind is StrategyKind.PROPENSITY:
      a_b = run.config.eval.propensity
      weights_L = propensity_weights(space.train_counts, space.n_train, *a_b)
    return cls(request, run, _sigmoid(run, request), weights_L)

  def select(self, documents: RankedDocuments, k: int) -> Selection:
    if self.weights_L is not None:
      return select_by_weight(documents, k, self.weights_L)
    return select_by_coverage(
      documents, k, float(self.request.beta), self.request.seed
    )

  def choose(
    self, predictions: Predictions, split: Split
  ) -> tuple[Predictions, LabelLists]:
    """Chooses labels, the same ones on all processes, from lists by score.

    Returns predictions whose lists `all` hold the chosen labels, and the same
    lists with the scores of the scorer.
    """
    by_score, title = predictions.lists[ALL], self.request.kind.value
    k = list_length(self.request.k, self.run.n_labels)
    with Progress(title, unit='document') as shown:
      documents = RankedDocuments(
        self.run,
        Documents.of_split(split),
        self.sigmoid,
        (by_score.ids, by_score.scores),
        shown.update,
      )
      chosen = self.select(documents, k)
    lists = LabelLists(chosen.ids_NK, chosen.ranks_NK.astype(np.float32))
    predictions = _with_lists(predictions, self.request, lists)
    logging.info('labels chosen by %s', predictions.strategy)
    return predictions, LabelLists(chosen.ids_NK, chosen.scores_NK)


def _with_lists(
  predictions: Predictions, request: StrategyRequest, lists: LabelLists
) -> Predictions:
  """Replaces the lists `all` of predictions and adds the strategy's name."""
  settings = request.parameters()
  name = settings.pop('strategy')
  return dataclasses.replace(
    predictions,
    lists={**predictions.lists, ALL: lists},
    score_kind=ScoreKind.MARGIN,
    assigned_above=None,
    strategy=f'{name}({", ".join(f"{n}={v}" for n, v in settings.items())})',
  )


def _sigmoid(run: OpenRun, request: StrategyRequest) -> tuple[float, float]:
  """Returns a and b, which turn the model's scores into probabilities."""
  calibration = run.calibration
  if run.score_kind is not ScoreKind.MARGIN:
    return AS_LOGITS
  if calibration is None or calibration.method is Method.NONE:
    if calibration:
      advice = f'They could not be calibrated on dev ({calibration.reason})'
    elif DEV in run.workdir.digests():
      advice = (
        'xjax evaluate --split=dev calibrates the margins, unless '
        'eval.calibration is none'
      )
    else:
      advice = (
        'The run has no dev split, which calibration needs. A run with a '
        'logistic loss needs no calibration'
      )
    raise ConfigError(
      f'--strategy={request.kind.value} needs probabilities, but the scores of '
      f'this run are margins. {advice}'
    )
  return float(calibration.a), float(calibration.b)
