"""Fits a calibration of a model's scores on dev, and saves it in a file.

Each document has a list of the labels with the highest scores. The calibration
is fitted and judged on all entries of these lists, because readers see the
probabilities of these entries. (In terms of slices, these are the lists of the
slice `all`.) All entries have equal weight. An entry of a document without gold
counts as wrong.

List entries are not a fair sample of all (document, label) pairs. The
calibration says nothing about labels that are not listed.

Rankings, and metrics at a threshold such as probability 0.5, are computed from
the raw scores. So a calibration does not change them.
"""

import dataclasses
import enum
import json
import math
import os
import pathlib

import numpy as np

from xjax.core.atomic import write_json
from xjax.core.errors import DAMAGE, DataError
from xjax.core.types import PAD, ScoreKind
from xjax.judge.metrics.calibration_error import (
  IDENTITY,
  CannotFit,
  Reliability,
  Sigmoid,
  fit_platt,
  fit_temperature,
  log_loss,
  reliability,
  sigmoid,
)
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions

# Probabilities stay this far from 0 and 1, because the logits of 0 and 1 are
# infinite.
_TINY = 1e-12


class Method(enum.Enum):
  """Says how scores are calibrated.

  AUTO: Platt's sigmoid for margins, a temperature for other scores.
  NONE: no calibration; scores stay as they are.
  TEMPERATURE: a temperature; see calibration_error.fit_temperature.
  PLATT: Platt's sigmoid; see calibration_error.fit_platt.
  """

  AUTO = 'auto'
  NONE = 'none'
  TEMPERATURE = 'temperature'
  PLATT = 'platt'


@dataclasses.dataclass(frozen=True)
class Calibration:
  """Holds the function from scores to probabilities, and its effect on dev.

  The probability is sigmoid(a z + b), where z is a logit, a margin, or the
  logit of a probability. The slope a is above 0, so the ranking does not
  change. A temperature is 1 / a.

  Attributes:
    method: how the calibration was fitted. If no fit was possible, the method
      is NONE, a is 1, b is 0, and margins do not become probabilities.
    a: slope of the sigmoid.
    b: shift of the sigmoid.
    score_kind: kind of the scores that the calibration was fitted to.
    step: training step of the checkpoint that gave the scores.
    digest: digest of the dev documents.
    n_documents: number of dev documents.
    n_decisions: number of list entries that the calibration was fitted to.
    n_correct: number of these entries that are gold.
    reason: why no fit was possible; None if the fit was possible.
    ece_before: expected calibration error of the raw scores, in 15 bins, as a
      fraction; None if raw scores are not probabilities.
    ece_after: expected calibration error of the calibrated scores.
    log_loss_before: mean log loss of the raw scores in nats; None if raw scores
      are not probabilities.
    log_loss_after: mean log loss of the calibrated scores.
  """

  method: Method
  a: float
  b: float
  score_kind: ScoreKind
  step: int
  digest: str
  n_documents: int
  n_decisions: int
  n_correct: int
  reason: str | None
  ece_before: float | None
  ece_after: float | None
  log_loss_before: float | None
  log_loss_after: float | None

  def save(self, path: str | os.PathLike) -> None:
    """Writes the fields to a JSON file, atomically."""
    values = dataclasses.asdict(self)
    values['method'] = self.method.value
    values['score_kind'] = self.score_kind.value
    write_json(path, values)

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Calibration':
    """Reads a calibration from a file that save() wrote.

    Raises:
      DataError: the file is missing or damaged, or has impossible values.
    """
    try:
      values = json.loads(pathlib.Path(path).read_text('utf-8'))
      kinds = {
        'method': Method(values['method']),
        'score_kind': ScoreKind(values['score_kind']),
      }
      calibration = cls(**{**values, **kinds})
      _check_fields(calibration)
    except DAMAGE as error:
      raise DataError(
        f'{path}: is not a calibration file of xjax ({error}); remove the '
        'file, and run xjax evaluate --split=dev to write it again'
      ) from error
    return calibration


def calibrate(
  predictions: Predictions, method: Method, step: int, digest: str
) -> Calibration:
  """Fits a calibration to predictions of dev.

  Args:
    predictions: predictions of dev with gold.
    method: how to fit the calibration.
    step: training step of the checkpoint that made the predictions.
    digest: digest of the dev documents.

  Raises:
    DataError: the predictions have no gold.
  """
  kind = predictions.score_kind
  if method is Method.AUTO:
    margins = kind is ScoreKind.MARGIN
    method = Method.PLATT if margins else Method.TEMPERATURE
  scores_N, correct_N = decisions(predictions)
  logits_N = _logits(scores_N, kind)
  raw = None if kind is ScoreKind.MARGIN else IDENTITY
  fitted, reason = raw, None
  try:
    fitted = _FITS[method](logits_N, correct_N)
  except CannotFit as error:
    method, reason = Method.NONE, str(error)
  before, after = (_errors(f, logits_N, correct_N) for f in (raw, fitted))
  used = fitted or IDENTITY
  return Calibration(
    method=method,
    a=used.a,
    b=used.b,
    score_kind=kind,
    step=step,
    digest=digest,
    n_documents=len(predictions),
    n_decisions=len(scores_N),
    n_correct=int(correct_N.sum()),
    reason=reason,
    ece_before=before[0],
    ece_after=after[0],
    log_loss_before=before[1],
    log_loss_after=after[1],
  )


def decisions(predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
  """Returns the score of each list entry, and whether the entry is gold.

  The entries are those of the lists of the slice `all`.

  Args:
    predictions: predictions with gold.

  Returns:
    scores: float32 [entries].
    correct: bool [entries], whether the entry is gold.

  Raises:
    DataError: the predictions have no gold.
  """
  gold, lists = predictions.gold, predictions.lists[ALL]
  if gold is None:
    raise DataError('there are no gold labels to calibrate the scores with')
  listed = lists.ids != PAD
  correct = lists.hits(gold, len(predictions.labels))
  return lists.scores[listed], correct[listed]


def reliability_of(
  predictions: Predictions, calibration: Calibration | None = None
) -> Reliability | None:
  """Computes the reliability diagram of the list entries.

  Args:
    predictions: predictions with gold.
    calibration: calibration of the scores; None uses the raw scores.

  Returns:
    The diagram. It is None if the lists are empty, or if the scores are margins
    and there is no calibration.

  Raises:
    DataError: the predictions have no gold.
  """
  scores, correct = decisions(predictions)
  kind = predictions.score_kind
  raw = calibration is None or calibration.method is Method.NONE
  if not len(scores) or (raw and kind is ScoreKind.MARGIN):
    return None
  return reliability(readable_scores(scores, kind, calibration), correct)


def expected_calibration_error(
  predictions: Predictions, calibration: Calibration | None = None
) -> float | None:
  """Computes the expected calibration error of the list entries, in 15 bins.

  Args:
    predictions: predictions with gold.
    calibration: calibration of the scores; None uses the raw scores.

  Returns:
    The error as a fraction; None if reliability_of returns None.
  """
  diagram = reliability_of(predictions, calibration)
  return None if diagram is None else diagram.ece


def readable_scores(
  scores: np.ndarray, kind: ScoreKind, calibration: Calibration | None = None
) -> np.ndarray:
  """Converts scores to probabilities for readers, where possible.

  Args:
    scores: float, any shape.
    kind: kind of the scores.
    calibration: calibration of the scores. If it is None, the sigmoid turns
      logits into probabilities, and margins stay margins.

  Returns:
    float64, with the shape of `scores`.
  """
  scores = np.asarray(scores, np.float64)
  if calibration is not None and calibration.method is not Method.NONE:
    return Sigmoid(calibration.a, calibration.b)(_logits(scores, kind))
  return sigmoid(scores) if kind is ScoreKind.LOGIT else scores


_FITS = {Method.TEMPERATURE: fit_temperature, Method.PLATT: fit_platt}


def _logits(scores: np.ndarray, kind: ScoreKind) -> np.ndarray:
  """Returns the numbers to apply a sigmoid to, which are logits or margins."""
  if kind is not ScoreKind.PROBABILITY:
    return scores
  inside = np.clip(np.asarray(scores, np.float64), _TINY, 1 - _TINY)
  return np.log(inside) - np.log1p(-inside)


def _errors(
  fitted: Sigmoid | None, logits_N: np.ndarray, correct_N: np.ndarray
) -> tuple[float | None, float | None]:
  """Returns ECE and log loss, or (None, None) if they cannot be computed."""
  if fitted is None or not len(logits_N) or not np.isfinite(logits_N).all():
    return None, None
  ece = reliability(fitted(logits_N), correct_N).ece
  return ece, log_loss(fitted, logits_N, correct_N)


def _check_fields(read: Calibration) -> None:
  """Checks the fields of a calibration that was read from a file.

  Raises:
    ValueError: a field has an impossible value.
  """
  numbers = [read.a, read.b, read.step]
  errors = [read.ece_before, read.ece_after]
  errors += [read.log_loss_before, read.log_loss_after]
  counts = [read.n_documents, read.n_decisions, read.n_correct, read.step]
  numbers += [value for value in errors if value is not None]
  if not all(type(v) in (int, float) and math.isfinite(v) for v in numbers):
    raise ValueError('a numeric field is not a finite number')
  if read.a <= 0:
    raise ValueError('the field `a` must be above 0')
  if read.method is Method.AUTO:
    raise ValueError('the method must not be auto')
  if not all(type(count) is int and count >= 0 for count in counts):
    raise ValueError('every count must be an integer of at least 0')
  if not isinstance(read.digest, str):
    raise ValueError('the digest is not text')
  if (read.method is Method.NONE) != isinstance(read.reason, str):
    raise ValueError('there must be a reason if, and only if, method is none')
