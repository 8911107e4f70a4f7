"""The labels that a finished run chooses by a strategy."""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import time

from absl import logging
import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.types import AS_LOGITS, Batch, ScoreKind
from xjax.data.batches.feature_rows import FeatureRows
from xjax.data.batches.sparse_documents import SparseDocuments
from xjax.data.schema import Document, Split
from xjax.judge.calibration import Method
from xjax.judge.lists import Lists
from xjax.judge.metrics.slices import ALL
from xjax.judge.predict import progress
from xjax.judge.predictions import Predictions
from xjax.run.calibration_of_run import DEV
from xjax.run.chosen_strategy import AskedStrategy, Kind
from xjax.run.predictor import Predictor
from xjax.select.ranked import Ranked
from xjax.select.strategies import Coverage, Strategy, Weighted, choose


@dataclasses.dataclass(frozen=True, eq=False)
class ChosenLabels:
  """What a strategy chose for N documents.

  Attributes:
    predictions: with the chosen labels as the lists of `all`.
    lists: the same labels in the same order, with the scorer's own scores.
    asked_again: of heads.strategies.Chosen.
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

  asked: AskedStrategy
  strategy: Strategy
  predictor: Predictor
  sigmoid: tuple[float, float]

  @classmethod
  def of(cls, asked: AskedStrategy, predictor: Predictor) -> 'Chooser':
    """Finds what is wrong before anything is scored.

    Raises:
      ConfigError: the strategy takes probabilities, and the run has none.
      DataError: as AskedStrategy.strategy.
    """
    propensity = predictor.config.eval.propensity
    strategy = asked.strategy(predictor.space, propensity)
    sigmoid = AS_LOGITS
    if isinstance(strategy, Weighted | Coverage):
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
    documents = Ranked(
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
  predictions: Predictions, asked: AskedStrategy, lists: Lists
) -> Predictions:
  lists = Lists(lists.ids, lists.scores.astype(np.float32))
  changed = dataclasses.replace(
    predictions, lists={**predictions.lists, ALL: lists}
  )
  if asked.kind is Kind.STANDARD:
    return changed
  named = asked.parameters()
  name = named.pop('strategy')
  return dataclasses.replace(
    changed,
    score_kind=ScoreKind.MARGIN,
    assigned_above=None,
    strategy=f'{name}({", ".join(f"{n}={v}" for n, v in named.items())})',
  )


def _sigmoid(predictor: Predictor, asked: AskedStrategy) -> tuple[float, float]:
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
  """Makes batches of some documents, as heads.ranked wants them."""

  def batches_of(rows_N: np.ndarray) -> Iterable[Batch]:
    given = features
    if given is not None:
      given = given.documents(rows_N, [split.ids[row] for row in rows_N])
    documents = split.documents
    if isinstance(documents, SparseDocuments):
      documents = documents.some(rows_N)
    else:
      documents = _Some(documents, rows_N)
    return progress(predictor.text_batches(documents, given), what)

  return batches_of


@dataclasses.dataclass(frozen=True, eq=False)
class _Some(Sequence[Document]):
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
    found.predictions.strategy or Kind.STANDARD.value,
    facts['ms_per_document'],
    f'{facts["documents"]:,}',
    f'{facts["asked_again"]:,}',
  )
