"""The labels that a finished run chooses by a strategy."""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import enum
import math
import time
from typing import Any

from absl import logging
import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.progress import progress
from xjax.core.types import AS_LOGITS, Batch, ScoreKind
from xjax.data.batches.feature_rows import FeatureRows
from xjax.data.batches.sparse import SparseDocuments
from xjax.data.schema import Document, LabelSpace, Split, propensity_weights
from xjax.judge.calibration import Method
from xjax.judge.criteria import Criteria
from xjax.judge.files.label_costs import read_label_costs
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Lists, Predictions
from xjax.run.judging import DEV
from xjax.run.predictor import Predictor
from xjax.select.ranked_documents import RankedDocuments
from xjax.select.strategies import (
  BoundedRandomStrategy,
  CoverageStrategy,
  StandardStrategy,
  Strategy,
  WeightedStrategy,
  choose,
)


class StrategyKind(enum.Enum):
  """Strategies, as users name them; see select.strategies."""

  STANDARD = 'standard'
  PROPENSITY = 'propensity'
  COVERAGE = 'coverage'
  BOUNDED_RANDOM = 'bounded_random'
  COST = 'cost'


@dataclasses.dataclass(frozen=True)
class StrategyRequest:
  """How a user asks for labels to be chosen.

  Attributes:
    kind: the strategy. PROPENSITY: with the run's eval.propensity.
    k: labels of a document.
    beta: of COVERAGE.
    seed: of COVERAGE and BOUNDED_RANDOM.
    costs: of COST: a file of label weights, as read_label_costs.
  """

  kind: StrategyKind
  k: int
  beta: float = 0.0
  seed: int = 0
  costs: str = ''

  def __post_init__(self) -> None:
    """Finds what is wrong before anything is read.

    Raises:
      ConfigError: something is impossible or missing.
    """
    if self.k < 1:
      raise ConfigError(f'--strategy_k={self.k}: must be at least 1')
    if not 0 <= self.beta < math.inf:
      raise ConfigError(f'--beta={self.beta}: a number of at least 0')
    if self.kind is StrategyKind.COST and not self.costs:
      raise ConfigError('--strategy=cost needs --costs=FILE')

  def check_cut_offs(self, ks: Sequence[int]) -> None:
    """Refuses cut-offs that the labels chosen are not enough for.

    Raises:
      ConfigError: there is one.
    """
    if max(ks, default=0) > self.k:
      raise ConfigError(
        f'--ks={max(ks)}: only --strategy_k={self.k} labels are chosen'
      )

  def parameters(self) -> dict[str, Any]:
    """What decides which labels are chosen, by name."""
    found = {'strategy': self.kind.value, 'k': self.k}
    match self.kind:
      case StrategyKind.COVERAGE:
        found |= {'beta': self.beta, 'seed': self.seed}
      case StrategyKind.BOUNDED_RANDOM:
        found |= {'b': BoundedRandomStrategy.b, 'seed': self.seed}
      case StrategyKind.COST:
        found |= {'costs': self.costs}
    return found

  def criteria(self, usual: Criteria) -> Criteria:
    """What chosen labels are judged by: cut-offs that they are enough for."""
    ks = [k for k in usual.ks if k <= self.k] or [self.k]
    return dataclasses.replace(usual, ks=tuple(ks))

  def strategy(
    self, space: LabelSpace, propensity: Sequence[float]
  ) -> Strategy:
    """The strategy for the labels of a run.

    Args:
      space: its labels.
      propensity: A and B of the formula.

    Raises:
      DataError: a fault in the file of weights, or too few training documents
        for propensities.
    """
    match self.kind:
      case StrategyKind.STANDARD:
        return StandardStrategy()
      case StrategyKind.BOUNDED_RANDOM:
        return BoundedRandomStrategy(seed=self.seed)
      case StrategyKind.COVERAGE:
        return CoverageStrategy(float(self.beta), self.seed)
      case StrategyKind.PROPENSITY:
        counts = space.train_counts
        return WeightedStrategy(
          propensity_weights(counts, space.n_train, *propensity)
        )
      case StrategyKind.COST:
        return WeightedStrategy(read_label_costs(self.costs, space.index))


@dataclasses.dataclass(frozen=True, eq=False)
class ChosenLabels:
  """What a strategy chose for N documents.

  Attributes:
    predictions: with the chosen labels as the lists of `all`.
    lists: the same labels in the same order, with the scorer's own scores.
    asked_again: of select.strategies.Chosen.
    seconds: that choosing took, making and scoring batches and perhaps
      compiling for them; without the lists of slices.
  """

  predictions: Predictions
  lists: Lists
  asked_again: int
  seconds: float

  def facts(self) -> dict[str, int | float]:
    """What choosing took, by name."""
    n = len(self.predictions)
    return {
      'documents': n,
      'asked_again': self.asked_again,
      'ms_per_document': 1000 * self.seconds / max(n, 1),
    }


@dataclasses.dataclass(frozen=True, eq=False)
class Chooser:
  """A strategy with a model that it was found to go with.

  Logits count as they are, whether or not they are calibrated for readers.

  Attributes:
    asked: how the user asks for it.
    strategy: for the labels of the model.
    predictor: the model.
    sigmoid: a and b of its margins' probabilities.
  """

  asked: StrategyRequest
  strategy: Strategy
  predictor: Predictor
  sigmoid: tuple[float, float]

  @classmethod
  def of(cls, asked: StrategyRequest, predictor: Predictor) -> 'Chooser':
    """Finds what is wrong before anything is scored.

    Raises:
      ConfigError: the strategy takes probabilities, and the run has none.
      DataError: as StrategyRequest.strategy.
    """
    propensity = predictor.config.eval.propensity
    strategy = asked.strategy(predictor.space, propensity)
    sigmoid = AS_LOGITS
    if isinstance(strategy, WeightedStrategy | CoverageStrategy):
      sigmoid = _sigmoid(predictor, asked)
    return cls(asked, strategy, predictor, sigmoid)

  def choose(
    self,
    predictions: Predictions,
    split: Split,
    features: FeatureRows | None = None,
  ) -> ChosenLabels:
    """Chooses labels for documents; several processes do so alike.

    Args:
      predictions: the predictor's lists by score.
      split: the documents.
      features: of the documents, where the run reads such.
    """
    by_score, what = predictions.lists[ALL], self.asked.kind.value
    documents = RankedDocuments(
      self.predictor,
      _batches_of(self.predictor, split, features, what),
      len(split),
      self.sigmoid,
      (by_score.ids, by_score.scores),
    )
    start = time.perf_counter()
    chosen = choose(self.strategy, documents, self.asked.k)
    seconds = time.perf_counter() - start
    lists = Lists(chosen.ids_NK, chosen.ranks_NK)
    found = ChosenLabels(
      _with_lists(predictions, self.asked, lists),
      Lists(chosen.ids_NK, chosen.scores_NK),
      chosen.asked_again,
      seconds,
    )
    _log(found)
    return found


def _with_lists(
  predictions: Predictions, asked: StrategyRequest, lists: Lists
) -> Predictions:
  lists = Lists(lists.ids, lists.scores.astype(np.float32))
  changed = dataclasses.replace(
    predictions, lists={**predictions.lists, ALL: lists}
  )
  if asked.kind is StrategyKind.STANDARD:
    return changed
  named = asked.parameters()
  name = named.pop('strategy')
  return dataclasses.replace(
    changed,
    score_kind=ScoreKind.MARGIN,
    assigned_above=None,
    strategy=f'{name}({", ".join(f"{n}={v}" for n, v in named.items())})',
  )


def _sigmoid(
  predictor: Predictor, asked: StrategyRequest
) -> tuple[float, float]:
  """How margins become probabilities."""
  found = predictor.calibration
  if predictor.score_kind is not ScoreKind.MARGIN:
    return AS_LOGITS
  if found is None or found.method is Method.NONE:
    if found:
      what = f'on dev they could not be calibrated ({found.reason})'
    elif DEV in predictor.workdir.digests():
      what = (
        'experiments.evaluate --split=dev calibrates them, unless '
        'eval.calibration is none'
      )
    else:
      what = 'there is no dev to calibrate them on; logistic losses need none'
    raise ConfigError(
      f'--strategy={asked.kind.value} takes probabilities, and the scores of '
      f'this run are margins: {what}; --strategy=standard and bounded_random '
      'take scores of any kind'
    )
  return float(found.a), float(found.b)


def _batches_of(
  predictor: Predictor, split: Split, features: FeatureRows | None, what: str
) -> Callable[[np.ndarray], Iterable[Batch]]:
  """Makes batches of some documents, as select.ranked wants them."""

  def batches_of(rows_N: np.ndarray) -> Iterable[Batch]:
    given = features
    if given is not None:
      given = given.documents(rows_N, [split.ids[row] for row in rows_N])
    documents = split.documents
    if isinstance(documents, SparseDocuments):
      documents = documents.some(rows_N)
    else:
      documents = _SomeDocuments(documents, rows_N)
    batches = predictor.text_batches(documents, given)
    with progress(batches, what, unit='batch') as shown:
      yield from shown

  return batches_of


@dataclasses.dataclass(frozen=True, eq=False)
class _SomeDocuments(Sequence[Document]):
  """Some of many documents; nothing is kept of one read."""

  documents: Sequence[Document]
  rows_N: np.ndarray

  def __len__(self) -> int:
    return len(self.rows_N)

  def __getitem__(self, place: int) -> Document:
    return self.documents[int(self.rows_N[place])]


def _log(found: ChosenLabels) -> None:
  facts = found.facts()
  logging.info(
    'labels chosen by %s: %.3g ms for each of %s documents, %s asked again',
    found.predictions.strategy or StrategyKind.STANDARD.value,
    facts['ms_per_document'],
    f'{facts["documents"]:,}',
    f'{facts["asked_again"]:,}',
  )
