"""Judging the splits of a corpus, with the popularity prior beside."""

from collections.abc import Callable, Iterable, Iterator
import contextlib
from typing import Any, Protocol

from absl import logging

from xjax.config.run import EvalConfig
from xjax.core.atomic import write_json, writing
from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import ConfigError, DataError
from xjax.core.types import Batch, ScoreKind, Scorer
from xjax.data.schema import Corpus, LabelSpace, Split
from xjax.judge.calibration import Calibration, Method, calibrate
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


JUDGED = (DEV, 'test')


class Model(Protocol):
  """What is judged: a model at a checkpoint.

  Attributes:
    scorer: ranks labels.
    inputs: makes the batches.
    space: its labels, and gold outside them.
    step: of the checkpoint.
  """

  scorer: Scorer
  inputs: Inputs
  space: LabelSpace
  step: int


def prior_metrics(corpus: Corpus, config: EvalConfig) -> dict[str, Metrics]:
  """Metrics by split of the popularity prior."""
  space = corpus.label_space
  return {
    name: judge(popularity(space, split, config.depth), config.criteria())
    for name, split in _present(corpus).items()
  }


def check_best_metric(metric: str, dev: Metrics) -> None:
  """Refuses a metric that dev has no value for.

  Args:
    metric: 'slice/metric'.
    dev: any metrics of the dev split, such as the prior's.

  Raises:
    ConfigError: with the metrics there are.
  """
  values = {
    f'{slice_name}/{name}': value
    for slice_name, slices in dev[PROTOCOL].items()
    for name, value in slices.items()
  }
  if values.get(metric) is None:
    known = ', '.join(name for name, v in values.items() if v is not None)
    raise ConfigError(
      f'train.best_metric={metric} has no value on dev; those that have one: '
      f'{known}'
    )


def dev_judge(
  scorer: Any, inputs: Inputs, corpus: Corpus
) -> Callable[[Any, Callable[[], None]], dict[str, dict[str, Any]]]:
  """Judges parameters on dev, for the loop.

  Args:
    scorer: a ModelScorer, whose params are set anew each time.
    inputs: makes the batches.
    corpus: with a split dev.

  Returns:
    (parameters, call between batches) -> {slice: {metric: value}}.
  """
  split, space = corpus.splits[DEV], corpus.label_space
  batches = inputs.split_batches(split)
  config = inputs.config.eval

  def judge_dev(
    params: Any, between: Callable[[], None]
  ) -> dict[str, dict[str, Any]]:
    scorer.params = params
    watched = _Watched(batches, between)
    predictions = predict(scorer, watched, split, space, config.depth)
    return judge(predictions, config.criteria())[PROTOCOL]

  return judge_dev


def judge_split(
  model: Model,
  split: Split,
  workdir: Workdir,
  name: str,
  threshold: float | None = None,
) -> Metrics:
  """Judges a split and writes eval/<name>/; of dev, calibration.json too.

  Args:
    model: at a checkpoint.
    split: N documents.
    workdir: of the run.
    name: of the folder.
    threshold: of micro-F1-tuned; for the folder dev it is tuned here.
  """
  config = model.inputs.config.eval
  batches = model.inputs.split_batches(split)
  predictions = predict(model.scorer, batches, split, model.space, config.depth)
  if name == DEV:
    threshold = tune_threshold(predictions)
  metrics = judge(predictions, config.criteria(), threshold)
  with writing_evaluation(workdir, name, model.step, split.digest) as here:
    if here:
      save_evaluation(workdir.evaluation(name), predictions, metrics)
    if here and name == DEV:
      calibrate_run(
        predictions, workdir, config.calibration, model.step, split.digest
      )
  return metrics


@contextlib.contextmanager
def writing_evaluation(
  workdir: Workdir, name: str, step: int, digest: str
) -> Iterator[bool]:
  """While an evaluation is written; all processes leave it together.

  Args:
    workdir: of the run.
    name: of the folder.
    step: of the checkpoint that was judged.
    digest: of the documents.

  Yields:
    Whether it is this process that writes.
  """
  mark = workdir.judged(name)
  if is_host0():
    with writing(mark):
      mark.unlink(missing_ok=True)
  yield is_host0()
  if is_host0():
    # Last: with it all of this is complete.
    write_json(mark, _mark(step, digest))
    logging.info('judged %s: %s', name, workdir.evaluation(name))
  barrier(f'xjax:judged:{name}')


def judge_splits(
  model: Model, corpus: Corpus, workdir: Workdir
) -> dict[str, Metrics]:
  """Judges dev and test where present, as judge_split.

  The threshold of micro-F1-tuned is tuned on dev and used on test as well;
  without a dev split there is none.
  """
  barrier('xjax:read')  # nobody still reads what is written now
  found = {}
  threshold = None
  for name, split in _present(corpus).items():
    found[name] = judge_split(model, split, workdir, name, threshold)
    threshold = tuned_threshold(found[name])
  return found


def read_splits(
  corpus: Corpus, workdir: Workdir, step: int
) -> dict[str, Metrics] | None:
  """What judge_splits wrote; None unless all of it is of this checkpoint."""
  found = {
    name: read_metrics(workdir, name, step, split.digest)
    for name, split in _present(corpus).items()
  }
  return None if None in found.values() else found


def _present(corpus: Corpus) -> dict[str, Split]:
  return {name: corpus.splits[name] for name in JUDGED if name in corpus.splits}


def read_metrics(
  workdir: Workdir, name: str, step: int, digest: str
) -> Metrics | None:
  """Metrics in eval/<name>/, if they are of this checkpoint and split.

  Raises:
    DataError: a file there is damaged.
  """
  folder, mark = workdir.evaluation(name), workdir.judged(name)
  files = [mark, *(folder / file for file in EVALUATION)]
  if not all(file.exists() for file in files):
    return None
  if read_json(mark) != _mark(step, digest):
    return None
  return read_json(folder / METRICS)


def tuned_threshold(metrics: Metrics) -> float | None:
  """The threshold of micro-F1-tuned, if there is one."""
  return metrics[PROTOCOL][ALL].get('threshold-tuned')


def _mark(step: int, digest: str) -> dict[str, Any]:
  return {'step': step, 'digest': digest}


class _Watched:
  """Batches with a call before each; as long as they are."""

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
