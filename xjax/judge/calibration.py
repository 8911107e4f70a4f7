"""Fits a calibration of a model's scores on dev, and saves it in a file.

It is judged on all entries of the lists of the slice `all`, with equal weight,
because readers see the probabilities of these entries. It is fitted on the
same entries, but for labels that the scorer cannot know. An entry of a document
without gold counts as wrong. The calibration says nothing about
labels that are not listed.

Scores often say less about labels that are not frequent, so these and frequent
labels each have a correction.

Rankings, and metrics at a threshold such as micro-F1, are computed from the raw
scores, so a calibration does not change them.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import enum
import json
import os
import pathlib

import numpy as np

from xjax.core.atomic import write_json
from xjax.core.errors import DAMAGE, DataError
from xjax.core.types import PAD, ScoreKind
from xjax.data.schema import FREQUENT_FROM
from xjax.judge.metrics.calibration_error import (
  IDENTITY,
  CannotFit,
  Curve,
  Reliability,
  Sigmoid,
  fit_isotonic,
  fit_platt,
  log_loss,
  reliability,
  rises,
  sigmoid,
)
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions

# Probabilities stay this far from 0 and 1, because the logits of 0 and 1 are
# infinite.
_TINY = 1e-12
_SCHEMA = 2
_FOLDS = 5
# With fewer correct entries, isotonic regression is not better than Platt's
# sigmoid, and a group of labels has no correction of its own.
_ENOUGH, _ENOUGH_IN_GROUP = 200, 50


class Method(enum.Enum):
  """Says how scores are calibrated.

  AUTO: isotonic regression if at least 200 listed labels are correct, else
    Platt's sigmoid.
  NONE: no calibration; scores stay as they are.
  PLATT: Platt's sigmoid, for all labels.
  ISOTONIC: isotonic regression, whose logits are then corrected by Platt's
    sigmoid: by one for frequent labels and by one for others.
  """

  AUTO = 'auto'
  NONE = 'none'
  PLATT = 'platt'
  ISOTONIC = 'isotonic'


@dataclasses.dataclass(frozen=True)
class _Function:
  """Computes probabilities of frequent labels and of other labels."""

  common: Sigmoid | Curve
  frequent: Sigmoid = IDENTITY
  others: Sigmoid = IDENTITY

  def __call__(self, scores: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns probabilities; `counts` has the training documents of labels."""
    logits = self.common.logits(scores)
    is_other = np.asarray(counts) < FREQUENT_FROM
    return np.where(is_other, self.others(logits), self.frequent(logits))


@dataclasses.dataclass(frozen=True)
class Calibration:
  """Holds the function from scores to probabilities, and its effect on dev.

  Let z be a logit, a margin, or the logit of a probability. If there are knots,
  the probability is Curve(knots, a)(z), else it is sigmoid(a z + b). Let l be
  the logit of this probability. The probability of a frequent label is
  sigmoid(c l + d), where (c, d) is the field `frequent`; for another label, it
  is the field `others`.

  If no fit was possible, the method is NONE, a is 1, and b is 0.
  """

  method: Method
  a: float  # slope of the sigmoid, above 0
  b: float  # shift; with knots, sigmoid(a z + b) is Platt's, for searches
  score_kind: ScoreKind  # of the scores that it was fitted to
  step: int  # of the checkpoint that gave the scores
  digest: str  # of the dev documents
  n_documents: int  # of dev
  n_decisions: int  # list entries that it was fitted to
  n_correct: int  # entries that are gold
  reason: str | None  # why no fit was possible
  # Expected calibration error in 15 bins, a fraction, and mean log loss in
  # nats: of the raw scores (None for margins), and of cross_fitted.
  ece_before: float | None
  ece_after: float | None
  log_loss_before: float | None
  log_loss_after: float | None
  knots: tuple[tuple[float, float], ...] = ()
  # Slope, above 0, and shift for labels with at least 50 training documents.
  frequent: tuple[float, float] = (1.0, 0.0)
  others: tuple[float, float] = (1.0, 0.0)

  @property
  def function(self) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Returns the function from z and training counts to probabilities."""
    common = Sigmoid(self.a, self.b)
    if self.knots:
      common = Curve(self.knots, self.a)
    return _Function(common, Sigmoid(*self.frequent), Sigmoid(*self.others))

  def save(self, path: str | os.PathLike) -> None:
    values = {'schema': _SCHEMA, **dataclasses.asdict(self)}
    values['method'] = self.method.value
    values['score_kind'] = self.score_kind.value
    write_json(path, values)

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Calibration':
    """Reads a file of save(); raises a DataError if it is damaged."""
    try:
      values = json.loads(pathlib.Path(path).read_text('utf-8'))
      if values.pop('schema') != _SCHEMA:
        raise ValueError('the field `schema` is of another version of xjax')
      values['method'] = Method(values['method'])
      values['score_kind'] = ScoreKind(values['score_kind'])
      values['knots'] = tuple(map(tuple, values['knots']))
      for name in ('frequent', 'others'):
        values[name] = tuple(values[name])
      return cls(**values)
    except DAMAGE as error:
      raise DataError(
        f'{path}: is not a calibration file of xjax ({error}); remove the '
        'file, and run xjax evaluate --split=dev to write it again'
      ) from error


def calibrate(
  predictions: Predictions, method: Method, step: int, digest: str
) -> Calibration:
  """Fits a calibration to predictions of dev, which need gold."""
  kind = predictions.score_kind
  logits_N, correct_N, counts_N = _entries(predictions)
  fitted_N = _to_fit(predictions, logits_N, correct_N, counts_N)
  entries = logits_N[fitted_N], correct_N[fitted_N], counts_N[fitted_N]
  n_decisions, n_correct = int(fitted_N.sum()), int(correct_N[fitted_N].sum())
  method, reason = _resolved(method, n_correct), None
  used, fitted = IDENTITY, _Function(IDENTITY)
  after_NK = shown_probabilities(predictions)
  try:
    used, fitted = _fit(method, *entries)
    after_NK = cross_fitted(predictions, method)
  except CannotFit as error:
    method, reason = Method.NONE, str(error)
  before = _errors(predictions, shown_probabilities(predictions))
  after = _errors(predictions, after_NK)
  return Calibration(
    method=method,
    a=used.a,
    b=used.b,
    score_kind=kind,
    step=step,
    digest=digest,
    n_documents=len(predictions),
    n_decisions=n_decisions,
    n_correct=n_correct,
    reason=reason,
    ece_before=before[0],
    ece_after=after[0],
    log_loss_before=before[1],
    log_loss_after=after[1],
    knots=fitted.common.knots if method is Method.ISOTONIC else (),
    frequent=(fitted.frequent.a, fitted.frequent.b),
    others=(fitted.others.a, fitted.others.b),
  )


def cross_fitted(predictions: Predictions, method: Method) -> np.ndarray | None:
  """Computes probabilities by calibrations that did not see the documents.

  The probabilities of each of five folds, float64 [N, K] as those of
  shown_probabilities, are from a calibration that was fitted to the other
  folds. If none can be fitted to them, they are those of the raw scores. If
  these scores are margins, the result is None.
  """
  shown_NK = shown_probabilities(predictions)
  logits_N, correct_N, counts_N = _entries(predictions)
  fitted_N = _to_fit(predictions, logits_N, correct_N, counts_N)
  method = _resolved(method, int(correct_N[fitted_N].sum()))
  if method is Method.NONE:
    return shown_NK
  listed = predictions.lists[ALL].ids != PAD
  probabilities_N = None if shown_NK is None else shown_NK[listed]
  if probabilities_N is None:
    # NaN marks margins, which have no probability if no fold is fitted.
    probabilities_N = np.full(len(logits_N), np.nan)
  # By document, so that all entries of a list are in one fold.
  folds = np.random.default_rng(0).permutation(len(listed)) % _FOLDS
  fold_N = np.broadcast_to(folds[:, None], listed.shape)[listed]
  for fold in range(_FOLDS):
    inside_N, seen_N = fold_N == fold, fitted_N & (fold_N != fold)
    with contextlib.suppress(CannotFit):
      _, fitted = _fit(
        method, logits_N[seen_N], correct_N[seen_N], counts_N[seen_N]
      )
      probabilities_N[inside_N] = fitted(logits_N[inside_N], counts_N[inside_N])
  if np.isnan(probabilities_N).any():
    return None
  result_NK = np.zeros(listed.shape)
  result_NK[listed] = probabilities_N
  return result_NK


def decisions(predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
  """Returns the scores of entries of the lists `all`, and which are gold."""
  gold, lists = predictions.gold, predictions.lists[ALL]
  if gold is None:
    raise DataError('there are no gold labels to calibrate the scores with')
  listed = lists.ids != PAD
  correct = lists.hits(gold, len(predictions.labels))
  return lists.scores[listed], correct[listed]


def shown_probabilities(
  predictions: Predictions, calibration: Calibration | None = None
) -> np.ndarray | None:
  """Returns the probabilities that readers see of the list entries.

  They are float64 [N, K] for the lists of the slice `all`, 0 where the lists
  have PAD; None if the scores are margins without a calibration.
  """
  kind, lists = predictions.score_kind, predictions.lists[ALL]
  raw = calibration is None or calibration.method is Method.NONE
  if raw and kind is ScoreKind.MARGIN:
    return None
  counts_NK = predictions.train_counts[lists.ids]
  shown = readable_scores(lists.scores, kind, calibration, counts_NK)
  return np.where(lists.ids != PAD, shown, 0)


def reliability_of(
  predictions: Predictions, shown_NK: np.ndarray | None = None
) -> Reliability | None:
  """Computes the reliability diagram of the list entries; they need gold.

  It is None if the lists are empty, or if the scores are margins and there are
  no probabilities `shown_NK`.
  """
  _, correct_N = decisions(predictions)
  if shown_NK is None:
    shown_NK = shown_probabilities(predictions)
  if shown_NK is None or not len(correct_N):
    return None
  shown_N = shown_NK[predictions.lists[ALL].ids != PAD]
  return reliability(shown_N, correct_N)


def readable_scores(
  scores: np.ndarray,
  kind: ScoreKind,
  calibration: Calibration | None = None,
  counts: np.ndarray | None = None,
) -> np.ndarray:
  """Converts scores to probabilities for readers, where possible, as float64.

  Without a calibration, margins stay margins. A calibration needs `counts`, in
  the shape of `scores`: the training documents of each score's label.
  """
  scores = np.asarray(scores, np.float64)
  if calibration is not None and calibration.method is not Method.NONE:
    if counts is None:
      raise ValueError('a calibration needs the training counts of the labels')
    return calibration.function(_logits(scores, kind), counts)
  return sigmoid(scores) if kind is ScoreKind.LOGIT else scores


def by_shown(ids_NK: np.ndarray, shown_NK: np.ndarray) -> np.ndarray:
  """Returns the places of entries by the scores that readers see, PAD last.

  The best comes first; equal scores keep their order.
  """
  return np.argsort(np.where(ids_NK == PAD, np.inf, -shown_NK), -1, 'stable')


def _resolved(method: Method, n_correct: int) -> Method:
  if method is not Method.AUTO:
    return method
  return Method.ISOTONIC if n_correct >= _ENOUGH else Method.PLATT


def _entries(
  predictions: Predictions,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns logits of list entries, which are gold, and labels' counts."""
  scores_N, correct_N = decisions(predictions)
  ids = predictions.lists[ALL].ids
  counts_N = predictions.train_counts[ids[ids != PAD]]
  return _logits(scores_N, predictions.score_kind), correct_N, counts_N


def _to_fit(
  predictions: Predictions,
  logits_N: np.ndarray,
  correct_N: np.ndarray,
  counts_N: np.ndarray,
) -> np.ndarray:
  """Returns the list entries to fit to, bool [N].

  These are all, but those of labels without training documents if the scorer
  knows nothing of them, or if correct entries do not tend to have higher scores
  with them, as where each document has a label that training did not see.
  """
  for fewest in (int(predictions.ranks_unseen is False), 1):
    fitted_N = counts_N >= fewest
    if rises(logits_N[fitted_N], correct_N[fitted_N]):
      return fitted_N
  return np.ones(len(counts_N), bool)


def _fit(
  method: Method,
  logits_N: np.ndarray,
  correct_N: np.ndarray,
  counts_N: np.ndarray,
) -> tuple[Sigmoid, _Function]:
  """Fits a sigmoid and the function of probabilities, or raises CannotFit."""
  platt = fit_platt(logits_N, correct_N)
  if method is Method.PLATT:
    return platt, _Function(platt)
  curve = fit_isotonic(logits_N, correct_N, platt)
  logits_N, frequent_N = curve.logits(logits_N), counts_N >= FREQUENT_FROM
  return platt, _Function(
    curve,
    _correction(logits_N[frequent_N], correct_N[frequent_N]),
    _correction(logits_N[~frequent_N], correct_N[~frequent_N]),
  )


def _correction(logits_N: np.ndarray, correct_N: np.ndarray) -> Sigmoid:
  """Returns Platt's sigmoid of logits; if it cannot be fitted, no change."""
  if correct_N.sum() < _ENOUGH_IN_GROUP:
    return IDENTITY
  try:
    return fit_platt(logits_N, correct_N)
  except CannotFit:
    return IDENTITY


def _logits(scores: np.ndarray, kind: ScoreKind) -> np.ndarray:
  """Returns the numbers to apply a sigmoid to, which are logits or margins."""
  if kind is not ScoreKind.PROBABILITY:
    return scores
  inside = np.clip(np.asarray(scores, np.float64), _TINY, 1 - _TINY)
  return np.log(inside) - np.log1p(-inside)


def _errors(
  predictions: Predictions, shown_NK: np.ndarray | None
) -> tuple[float | None, float | None]:
  """Returns ECE and log loss, or (None, None) if they cannot be computed."""
  scores_N, correct_N = decisions(predictions)
  diagram = None if shown_NK is None else reliability_of(predictions, shown_NK)
  if diagram is None or not np.isfinite(scores_N).all():
    return None, None
  shown_N = shown_NK[predictions.lists[ALL].ids != PAD]
  logits_N = _logits(shown_N, ScoreKind.PROBABILITY)
  return diagram.ece, log_loss(logits_N, correct_N)
