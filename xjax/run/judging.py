"""Judges the splits of a corpus, and the popularity prior for comparison."""

from collections.abc import Callable, Iterable, Iterator
import contextlib
from typing import Any, Protocol

from absl import logging
import numpy as np

from xjax.config.run import EvalConfig
from xjax.core.atomic import write_json, writing
from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import ConfigError, DataError
from xjax.core.types import Batch, ScoreKind, Scorer
from xjax.data.schema import Corpus, LabelSpace, Split
from xjax.judge.calibration import (
  Calibration,
  Method,
  calibrate,
  cross_fitted,
  shown_probabilities,
)
from xjax.judge.judge import PROTOCOL, Metrics, judge, tune_threshold
from xjax.judge.metrics.slices import ALL
from xjax.judge.predict import (
  EVALUATION,
  METRICS,
  popularity,
  predict,
  save_evaluation,
)
from xjax.judge.predictions import Predictions
from xjax.train.inputs import Inputs
from xjax.train.workdir import Workdir, read_json

DEV = 'dev'
_ADVICE = 'to calibrate them, run xjax evaluate --split=dev'


def calibrate_run(
  predictions: Predictions,
  workdir: Workdir,
  method: Method,
  step: int,
  digest: str,
) -> None:
  """Calibrates scores on dev and writes calibration.json.

  The function does nothing if the method is NONE. Only host 0 calls it.

  Args:
    predictions: predictions for the run's dev split.
    workdir: folder of the run.
    method: the config's method of calibration.
    step: int, step of the checkpoint that made the predictions.
    digest: digest of the dev split.
  """
  if method is Method.NONE:
    return
  calibration = calibrate(predictions, method, step, digest)
  calibration.save(workdir.calibration)
  if calibration.reason:
    logging.info('scores are not calibrated: %s', calibration.reason)
  else:
    logging.info('scores are calibrated on dev (%s)', calibration.method.value)


def saved_calibration(
  workdir: Workdir, method: Method, step: int, kind: ScoreKind
) -> Calibration | None:
  """Returns the saved calibration of a checkpoint's scores.

  The function returns None if there is no calibration. The function also
  returns None if the calibration is from another checkpoint, or from documents
  that are not the run's dev split. The reason is logged, unless `method` is
  NONE, or there is no calibration because the run has no dev split.

  Args:
    workdir: folder of the run.
    method: the config's method of calibration; NONE calibrates nothing.
    step: int, step of the checkpoint.
    kind: kind of the checkpoint's scores.

  Raises:
    DataError: calibration.json or corpus.json is damaged.
  """
  if method is Method.NONE:
    return None
  path, dev = workdir.calibration, workdir.digests().get(DEV)
  if not path.exists():
    if dev is not None:
      logging.info('scores are not calibrated: no %s; %s', path, _ADVICE)
    return None
  calibration = Calibration.load(path)
  # Users can add a dev split to the data folder after the run was started. The
  # run has no digest of such a split, so any digest is accepted.
  wanted = step, calibration.digest if dev is None else dev
  if (calibration.step, calibration.digest) != wanted:
    logging.info(
      'scores are not calibrated: %s was not fitted on the dev split of this '
      'run and the checkpoint of step %d; %s',
      path,
      step,
      _ADVICE,
    )
    return None
  if calibration.score_kind is not kind:
    raise DataError(
      f'{path}: calibrates scores of kind {calibration.score_kind.value}, but '
      f'the scores of this run are of kind {kind.value}'
    )
  if calibration.reason:
    logging.info('scores are not calibrated: %s', calibration.reason)
  return calibration


JUDGED = (DEV, 'test')


class Model(Protocol):
  """Defines what judging needs from a model at one checkpoint.

  Attributes:
    scorer: ranks labels.
    inputs: makes the batches.
    space: labels of the model, and gold labels that the model does not know.
    step: int, step of the checkpoint.
  """

  scorer: Scorer
  inputs: Inputs
  space: LabelSpace
  step: int


def prior_metrics(corpus: Corpus, config: EvalConfig) -> dict[str, Metrics]:
  """Returns the metrics of the popularity prior by split."""
  space = corpus.label_space
  return {
    name: judge(popularity(space, split, config.depth), config.criteria())
    for name, split in _present(corpus).items()
  }


def check_best_metric(metric: str, dev: Metrics) -> None:
  """Checks that a metric has a value on dev.

  Args:
    metric: str, 'slice/metric'.
    dev: any metrics of the dev split, such as those of the prior.

  Raises:
    ConfigError: the metric has no value; the message lists the metrics that
      have a value.
  """
  values = {
    f'{slice_name}/{name}': value
    for slice_name, slices in dev[PROTOCOL].items()
    for name, value in slices.items()
  }
  if values.get(metric) is None:
    usable = ', '.join(name for name, v in values.items() if v is not None)
    raise ConfigError(
      f'train.best_metric={metric} has no value on dev; metrics with a value: '
      f'{usable}'
    )


def dev_judge(
  scorer: Any, inputs: Inputs, corpus: Corpus
) -> Callable[[Any, Callable[[], None]], dict[str, dict[str, Any]]]:
  """Returns a function that judges parameters of a model on dev.

  Args:
    scorer: a ModelScorer; the function sets its params.
    inputs: makes the batches.
    corpus: corpus with a split dev.

  Returns:
    A function (parameters, between) -> {slice: {metric: value}}. It calls
    between() before each batch.
  """
  split, space = corpus.splits[DEV], corpus.label_space
  batches = inputs.split_batches(split)
  config = inputs.config.eval

  def judge_dev(
    params: Any, between: Callable[[], None]
  ) -> dict[str, dict[str, Any]]:
    scorer.params = params
    watched = _WatchedBatches(batches, between)
    predictions = predict(scorer, watched, split, space, config.depth)
    shown_NK = cross_fitted(predictions, config.calibration)
    return judge(predictions, config.criteria(), None, shown_NK)[PROTOCOL]

  return judge_dev


def judge_split(
  model: Model,
  split: Split,
  workdir: Workdir,
  name: str,
  threshold: float | None = None,
  calibration: Calibration | None = None,
) -> Metrics:
  """Judges a split and writes eval/<name>/.

  If the split is dev, calibration.json is written too.

  Args:
    model: model at a checkpoint.
    split: documents to judge.
    workdir: folder of the run.
    name: name of the folder below eval/.
    threshold: float, threshold of micro-F1-tuned; None for no threshold. For
      dev, the argument is ignored, because this function tunes the threshold.
    calibration: the calibration of the run. For dev, the argument is ignored.

  Returns:
    The metrics of the split.
  """
  config = model.inputs.config.eval
  batches = model.inputs.split_batches(split)
  predictions = predict(model.scorer, batches, split, model.space, config.depth)
  if name == DEV:
    threshold = tune_threshold(predictions)
  shown_NK = judged_probabilities(
    predictions, name, config.calibration, calibration
  )
  metrics = judge(predictions, config.criteria(), threshold, shown_NK)
  with writing_evaluation(workdir, name, model.step, split.digest) as writes:
    if writes:
      save_evaluation(workdir.evaluation(name), predictions, metrics)
    if writes and name == DEV:
      calibrate_run(
        predictions, workdir, config.calibration, model.step, split.digest
      )
  return metrics


def judged_probabilities(
  predictions: Predictions,
  name: str,
  method: Method,
  calibration: Calibration | None,
) -> np.ndarray | None:
  """Returns the probabilities by which the calibration of a run is judged.

  On dev, they are from calibrations that did not see the documents (see
  cross_fitted). On other splits, they are those of the run's calibration.

  Args:
    predictions: predictions for the split.
    name: name of the folder below eval/.
    method: the config's method of calibration.
    calibration: the calibration of the run.

  Returns:
    float64 [N, K]; None if the scores are margins without a calibration.
  """
  if name == DEV:
    return cross_fitted(predictions, method)
  return shown_probabilities(predictions, calibration)


@contextlib.contextmanager
def writing_evaluation(
  workdir: Workdir, name: str, step: int, digest: str
) -> Iterator[bool]:
  """Marks an evaluation as complete after the `with` block has written it.

  All processes enter the context, and leave it together.

  Args:
    workdir: folder of the run.
    name: name of the folder below eval/.
    step: int, step of the checkpoint that was judged.
    digest: digest of the documents.

  Yields:
    bool, whether this process writes the files.
  """
  mark = workdir.judged(name)
  if is_host0():
    with writing(mark):
      mark.unlink(missing_ok=True)
  yield is_host0()
  if is_host0():
    # The mark is written last, so a mark means that the evaluation is complete.
    write_json(mark, _mark(step, digest))
    logging.info('judged %s: %s', name, workdir.evaluation(name))
  barrier(f'xjax:judged:{name}')


def judge_splits(
  model: Model, corpus: Corpus, workdir: Workdir
) -> dict[str, Metrics]:
  """Judges the splits dev and test, if the corpus has them.

  The threshold of micro-F1-tuned and the calibration are fitted on dev and also
  used on test. Without a dev split there is neither.

  Returns:
    The metrics by split.
  """
  barrier('xjax:read')  # wait until no process reads the files
  metrics = {}
  threshold = calibration = None
  method = model.inputs.config.eval.calibration
  for name, split in _present(corpus).items():
    metrics[name] = judge_split(
      model, split, workdir, name, threshold, calibration
    )
    threshold = tuned_threshold(metrics[name])
    calibration = saved_calibration(
      workdir, method, model.step, model.scorer.score_kind
    )
  return metrics


def read_splits(
  corpus: Corpus, workdir: Workdir, step: int
) -> dict[str, Metrics] | None:
  """Reads the metrics that judge_splits wrote.

  Returns:
    The metrics by split; None if the metrics of a split are missing or were
    computed for another checkpoint or for other documents.
  """
  metrics = {
    name: read_metrics(workdir, name, step, split.digest)
    for name, split in _present(corpus).items()
  }
  return None if None in metrics.values() else metrics


def _present(corpus: Corpus) -> dict[str, Split]:
  return {name: corpus.splits[name] for name in JUDGED if name in corpus.splits}


def read_metrics(
  workdir: Workdir, name: str, step: int, digest: str
) -> Metrics | None:
  """Reads the metrics of eval/<name>/.

  Returns:
    The metrics; None if they are missing, or were computed for another
    checkpoint or for other documents.

  Raises:
    DataError: a file of the folder is damaged.
  """
  folder, mark = workdir.evaluation(name), workdir.judged(name)
  files = [mark, *(folder / file for file in EVALUATION)]
  if not all(file.exists() for file in files):
    return None
  if read_json(mark) != _mark(step, digest):
    return None
  return read_json(folder / METRICS)


def tuned_threshold(metrics: Metrics) -> float | None:
  """Returns the threshold of micro-F1-tuned, or None if there is none."""
  return metrics[PROTOCOL][ALL].get('threshold-tuned')


def _mark(step: int, digest: str) -> dict[str, Any]:
  return {'step': step, 'digest': digest}


class _WatchedBatches:
  """Yields batches, and calls a function before each batch."""

  def __init__(
    self, batches: Iterable[Batch], between: Callable[[], None]
  ) -> None:
    self._batches, self._between = batches, between

  def __len__(self) -> int:
    return len(self._batches)

  def __iter__(self) -> Iterator[Batch]:
    for batch in self._batches:
      self._between()
      yield batch
