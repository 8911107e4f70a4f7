"""The calibration of a run: fitted when its dev is judged, read by users."""

from absl import logging

from xjax.core.errors import DataError
from xjax.core.types import ScoreKind
from xjax.judge.calibration import Calibration, Method, calibrate
from xjax.judge.predictions import Predictions
from xjax.train.workdir import Workdir

DEV = 'dev'
_AGAIN = 'experiments.evaluate --split=dev makes it'


def calibrate_run(
  predictions: Predictions,
  workdir: Workdir,
  method: Method,
  step: int,
  digest: str,
) -> None:
  """Writes calibration.json, unless the method is NONE; host 0 alone calls.

  Args:
    predictions: of the run's dev.
    workdir: of the run.
    method: the config's.
    step: of the checkpoint that predicted.
    digest: of dev.
  """
  if method is Method.NONE:
    return
  found = calibrate(predictions, method, step, digest)
  found.save(workdir.calibration)
  if found.reason:
    logging.info('scores are not calibrated: %s', found.reason)
  else:
    logging.info(
      'calibrated (%s): probability = sigmoid(%.4g z %+.4g)',
      found.method.value,
      found.a,
      found.b,
    )


def saved_calibration(
  workdir: Workdir, method: Method, step: int, kind: ScoreKind
) -> Calibration | None:
  """The calibration of a checkpoint's scores.

  None where there is none; if there could be one, a line says why. One that is
  of another checkpoint, or of other documents than the run's dev, is not used.

  Args:
    workdir: of the run.
    method: the config's; NONE: there is none.
    step: of the checkpoint.
    kind: of its scores.

  Raises:
    DataError: calibration.json or corpus.json is damaged.
  """
  if method is Method.NONE:
    return None
  path, dev = workdir.calibration, workdir.digests().get(DEV)
  if not path.exists():
    if dev is not None:
      logging.info('scores are not calibrated: no %s; %s', path, _AGAIN)
    return None
  found = Calibration.load(path)
  # A run without dev may have been given one later, where its data lies.
  if (found.step, found.digest) != (step, found.digest if dev is None else dev):
    logging.info(
      'scores are not calibrated: %s is not of the dev split at step %d; %s',
      path,
      step,
      _AGAIN,
    )
    return None
  if found.score_kind is not kind:
    raise DataError(
      f'{path}: is of a {found.score_kind.value}, not {kind.value}'
    )
  if found.reason:
    logging.info('scores are not calibrated: %s', found.reason)
  return found
