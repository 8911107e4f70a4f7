"""Judges the splits of a corpus, and the popularity prior for comparison."""

from collections.abc import Sequence
from typing import Any

from absl import logging
import numpy as np

from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import DataError
from xjax.data.files.file_set import read_json, read_mark
from xjax.data.labels import left_out_digest
from xjax.data.schema import Corpus, Split
from xjax.judge.calibration import (
  Calibration,
  Method,
  calibrate,
  cross_fitted,
  shown_probabilities,
)
from xjax.judge.files.evaluation import METRICS, save_evaluation
from xjax.judge.judge import PROTOCOL, Metrics, judge, tune_threshold
from xjax.judge.make_predictions import popularity, predict
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions
from xjax.models.contract import DEV, JUDGED
from xjax.models.eval_config import EvalConfig
from xjax.run.open_run import OpenRun
from xjax.train.workdir import Workdir


def calibrate_run(
  predictions: Predictions,
  workdir: Workdir,
  method: Method,
  step: int,
  digest: str,
) -> None:
  """Calibrates scores on dev (of `digest`); host 0 writes calibration.json."""
  if method is Method.NONE:
    return
  calibration = calibrate(predictions, method, step, digest)
  with workdir.recording(workdir.calibration):
    calibration.save(workdir.calibration)
  if calibration.reason:
    logging.info('scores are not calibrated: %s', calibration.reason)
  else:
    logging.info('scores are calibrated on dev (%s)', calibration.method.value)


def prior_metrics(corpus: Corpus, config: EvalConfig) -> dict[str, Metrics]:
  """Returns the metrics of the popularity prior by split."""
  space = corpus.label_space
  return {
    name: judge(popularity(space, split, config.depth), config.criteria())
    for name, split in _present(corpus).items()
  }


def judge_split(
  model: OpenRun,
  split: Split,
  name: str,
  threshold: float | None = None,
  calibration: Calibration | None = None,
  slices: Sequence[np.ndarray] = (),
) -> tuple[Predictions, Metrics]:
  """Judges a split; write_judged writes the result.

  For dev (tunes_threshold), `calibration` and `threshold` (of micro-F1-tuned)
  are ignored, because they are fitted here. See predict_split for `slices`.
  """
  config = model.config.eval
  predictions = predict_split(model, split, slices)
  if tunes_threshold(name):
    threshold = tune_threshold(predictions)
  shown_NK = judged_probabilities(
    predictions, name, config.calibration, calibration
  )
  metrics = judge(predictions, config.criteria(), threshold, shown_NK)
  return predictions, metrics


def predict_split(
  model: OpenRun, split: Split, slices: Sequence[np.ndarray] = ()
) -> Predictions:
  """Predicts a split, and what shortlists lose; `slices` [L] get lists too."""
  depth = model.config.eval.depth
  return predict(model.scorer, split, model.space, depth, slices, measured=True)


def judged_probabilities(
  predictions: Predictions,
  name: str,
  method: Method,
  calibration: Calibration | None,
) -> np.ndarray | None:
  """Returns the probabilities by which the calibration of a run is judged.

  On dev, they are from calibrations that did not see the documents (see
  cross_fitted). None: the scores are margins without a calibration.
  """
  if name == DEV or (calibration and tunes_threshold(name)):
    return cross_fitted(predictions, method)
  return shown_probabilities(predictions, calibration)


def tunes_threshold(name: str) -> bool:
  """Returns whether a folder below eval/ is for the run's own dev split.

  Examples: `dev`, `dev.step_N`, `dev.leave_out@DIGEST`.
  """
  return name.partition('.')[0] == DEV


def write_judged(
  model: OpenRun,
  split: Split,
  name: str,
  predictions: Predictions,
  metrics: Metrics,
) -> None:
  """Writes eval/<name>/ as one set, and for dev also calibration.json.

  All processes must call this function.
  """
  workdir, step, digest = model.workdir, model.step, split.digest
  if is_host0():
    if name == DEV:
      method = model.config.eval.calibration
      calibrate_run(predictions, workdir, method, step, digest)
    folder, facts = workdir.evaluation(name), _facts(step, digest)
    if left_out := predictions.all_left_out:
      facts['left_out'] = left_out_digest(left_out)
    save_evaluation(folder, predictions, metrics, facts)
    logging.info('judged %s: %s', name, folder)
  barrier(f'xjax:judged:{name}')


def judge_splits(model: OpenRun, corpus: Corpus) -> dict[str, Metrics]:
  """Judges the splits dev and test, if any; returns the metrics by split.

  The threshold of micro-F1-tuned and the calibration are fitted on dev and also
  used on test.
  """
  barrier('xjax:read')  # wait until no process reads the files
  metrics = {}
  threshold = calibration = None
  if DEV not in corpus.splits:
    logging.warning(
      'there is no split dev, so scores are not calibrated and no threshold is '
      'tuned'
    )
  for name, split in _present(corpus).items():
    judged = judge_split(model, split, name, threshold, calibration)
    write_judged(model, split, name, *judged)
    metrics[name] = judged[1]
    if name == DEV:
      threshold = tuned_threshold(metrics[name])
      calibration = model.run.calibration(model.scorer)
  return metrics


def read_splits(
  corpus: Corpus, workdir: Workdir, step: int
) -> dict[str, Metrics] | None:
  """Reads judge_splits' metrics; None if missing, damaged or of others."""
  try:
    metrics = {
      name: read_metrics(workdir, name, step, split.digest)
      for name, split in _present(corpus).items()
    }
  except DataError as error:
    logging.warning('%s; now the splits are judged again', error)
    return None
  return None if None in metrics.values() else metrics


def _present(corpus: Corpus) -> dict[str, Split]:
  return {name: corpus.splits[name] for name in JUDGED if name in corpus.splits}


def read_metrics(
  workdir: Workdir, name: str, step: int, digest: str
) -> Metrics | None:
  """Reads eval/<name>/; None if missing, or of another step or documents.

  Raises DataError if a file of the folder is damaged or missing.
  """
  mark = workdir.judged(name)
  if not mark.is_file():
    return None
  split, _, _ = name.partition('.')
  remedy = f'judge again with xjax evaluate --split={split}'
  try:
    facts = read_json(mark)
  except DataError as error:
    raise DataError(f'{error}; {remedy}') from error
  if not _facts(step, digest).items() <= facts.items():
    return None
  read_mark(mark, remedy)
  return read_json(workdir.evaluation(name) / METRICS)


def tuned_threshold(metrics: Metrics) -> float | None:
  """Returns the threshold of micro-F1-tuned, or None if there is none."""
  return metrics[PROTOCOL][ALL].get('threshold-tuned')


def _facts(step: int, digest: str) -> dict[str, Any]:
  return {'step': step, 'digest': digest}
