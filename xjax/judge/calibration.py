"""The calibration of a model's scores: fitted on dev, kept in a file.

What is fitted and judged are the entries of the saved lists of all labels, each
alike: the probabilities that are shown. Being the highest of their documents,
they are no fair draw of all (document, label) pairs, and nothing is said of the
labels below the lists. Documents without gold count: their entries are wrong.
Ranking, and the metrics at a threshold, at probability 0.5 as well, are by the
raw scores and stay what they are.
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

_TINY = 1e-12  # probabilities are kept so far from 0 and 1, as logits


class Method(enum.Enum):
  """AUTO: Platt's of margins, else a temperature. NONE: raw scores."""

  AUTO = 'auto'
  NONE = 'none'
  TEMPERATURE = 'temperature'
  PLATT = 'platt'


@dataclasses.dataclass(frozen=True)
class Calibration:
  """How scores become probabilities, and what that was worth on dev.

  Probabilities are sigmoid(a z + b) of a logit or margin z, or of the logit of
  a probability. a > 0, so the ranking stays; a temperature is 1 / a.

  Attributes:
    method: NONE where no fit was possible: a is 1, b is 0, and margins are no
      probabilities.
    a, b: of the sigmoid.
    score_kind: of the scores fitted to.
    step: of the checkpoint.
    digest: of the dev documents.
    n_documents: of dev.
    n_decisions: list entries fitted to.
    n_correct: of these, gold.
    reason: why the method is NONE, else None.
    ece_before, ece_after: expected calibration errors, fractions, in 15 bins;
      None where scores are no probabilities.
    log_loss_before, log_loss_after: means in nats; None likewise.
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
    """Writes the fields as JSON, atomically."""
    values = dataclasses.asdict(self)
    values['method'] = self.method.value
    values['score_kind'] = self.score_kind.value
    write_json(path, values)

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Calibration':
    """Reads what save wrote.

    Raises:
      DataError: the file is absent or damaged, or says something impossible.
    """
    try:
      values = json.loads(pathlib.Path(path).read_text('utf-8'))
      kinds = {
        'method': Method(values['method']),
        'score_kind': ScoreKind(values['score_kind']),
      }
      found = cls(**{**values, **kinds})
      _believe(found)
    except DAMAGE as error:
      raise DataError(
        f'{path}: not a calibration of xjax ({error}); remove it, and '
        'experiments.evaluate --split=dev makes it again'
      ) from error
    return found


def calibrate(
  predictions: Predictions, method: Method, step: int, digest: str
) -> Calibration:
  """Fits a calibration to predictions of dev.

  Args:
    predictions: with gold.
    method: how.
    step: of the checkpoint that predicted.
    digest: of the documents.

  Raises:
    DataError: predictions without gold.
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
  before, after = (_worth(f, logits_N, correct_N) for f in (raw, fitted))
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
  """(float32 [n] scores, bool [n] whether gold) of all labels' list entries.

  Raises:
    DataError: predictions without gold.
  """
  gold, lists = predictions.gold, predictions.lists[ALL]
  if gold is None:
    raise DataError('no gold labels: nothing to calibrate with')
  listed = lists.ids != PAD
  correct = lists.hits(gold, len(predictions.labels))
  return lists.scores[listed], correct[listed]


def reliability_of(
  predictions: Predictions, calibration: Calibration | None = None
) -> Reliability | None:
  """The reliability diagram of list entries; None where there is none.

  There is none of empty lists, nor of margins that are not calibrated.

  Args:
    predictions: with gold.
    calibration: of these scores; None: as they are.

  Raises:
    DataError: predictions without gold.
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
  """ECE of list entries, a fraction, in 15 bins; None as reliability_of."""
  found = reliability_of(predictions, calibration)
  return None if found is None else found.ece


def readable_scores(
  scores: np.ndarray, kind: ScoreKind, calibration: Calibration | None = None
) -> np.ndarray:
  """Scores as they are shown: float64, probabilities where that can be.

  Args:
    scores: any shape.
    kind: what they are.
    calibration: of these scores; None: logits become probabilities as they
      are, and margins stay margins.
  """
  scores = np.asarray(scores, np.float64)
  if calibration is not None and calibration.method is not Method.NONE:
    return Sigmoid(calibration.a, calibration.b)(_logits(scores, kind))
  return sigmoid(scores) if kind is ScoreKind.LOGIT else scores


_FITS = {Method.TEMPERATURE: fit_temperature, Method.PLATT: fit_platt}


def _logits(scores: np.ndarray, kind: ScoreKind) -> np.ndarray:
  """What a sigmoid is fitted to."""
  if kind is not ScoreKind.PROBABILITY:
    return scores
  inside = np.clip(np.asarray(scores, np.float64), _TINY, 1 - _TINY)
  return np.log(inside) - np.log1p(-inside)


def _worth(
  fitted: Sigmoid | None, logits_N: np.ndarray, correct_N: np.ndarray
) -> tuple[float | None, float | None]:
  """(ECE, log loss) of the probabilities, if there are any."""
  if fitted is None or not len(logits_N) or not np.isfinite(logits_N).all():
    return None, None
  ece = reliability(fitted(logits_N), correct_N).ece
  return ece, log_loss(fitted, logits_N, correct_N)


def _believe(found: Calibration) -> None:
  """Raises ValueError where a field cannot be."""
  numbers = [found.a, found.b, found.step]
  worth = [found.ece_before, found.ece_after]
  worth += [found.log_loss_before, found.log_loss_after]
  counts = [found.n_documents, found.n_decisions, found.n_correct, found.step]
  numbers += [value for value in worth if value is not None]
  if not all(type(v) in (int, float) and math.isfinite(v) for v in numbers):
    raise ValueError('a number is none, or not finite')
  if found.a <= 0 or found.method is Method.AUTO:
    raise ValueError('no such sigmoid')
  if not all(type(count) is int and count >= 0 for count in counts):
    raise ValueError('a count is none')
  if not isinstance(found.digest, str):
    raise ValueError('the digest is no text')
  if (found.method is Method.NONE) != isinstance(found.reason, str):
    raise ValueError('a reason stands with the method none alone')
