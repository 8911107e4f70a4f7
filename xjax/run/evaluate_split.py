"""Judges a finished run on a split, or files of saved predictions."""

from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import os
import pathlib
from typing import Self

from absl import logging
import numpy as np

from xjax.core.allocation import enough_memory
from xjax.core.errors import ConfigError, DataError
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.formats.data_config import DataConfig
from xjax.data.labels import left_out_digest, mark_left_out, read_left_out
from xjax.data.load import load_corpus
from xjax.data.schema import Corpus, Label, Labels, LabelSpace, Split
from xjax.judge.calibration import Calibration
from xjax.judge.criteria import Criteria
from xjax.judge.files.judge_files import (
  DEPTH,
  JudgeFiles,
  read_judged,
  read_train_gold,
)
from xjax.judge.judge import judge, need_gold, slices_without_lists
from xjax.judge.label_lists import LabelLists
from xjax.judge.make_predictions import popularity
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions
from xjax.judge.request import JudgeRequest
from xjax.models.contract import DEV, places_of
from xjax.run.judging import (
  Metrics,
  judge_split,
  judged_probabilities,
  predict_split,
  read_metrics,
  tuned_threshold,
  tunes_threshold,
  write_judged,
)
from xjax.run.open_run import OpenRun, open_run
from xjax.run.strategies.strategy_request import StrategyRequest, StrategyRunner
from xjax.train.saved_steps import best_step
from xjax.train.workdir import Workdir

_LEAVE_OUT = 'leave_out'  # the flag, and the end of a folder's name


@dataclasses.dataclass(frozen=True)
class Evaluation:
  predictions: Predictions  # with gold
  criteria: Criteria
  metrics: Metrics
  # Of the popularity prior. None for files without training counts, and for
  # files whose held-out labels do not directly follow the trained labels.
  prior: Metrics | None
  folder: pathlib.Path | None  # of a run
  calibration: Calibration | None = None  # None for uncalibrated scores
  is_saved: bool = False  # in the folder


@enough_memory('choose a smaller eval.batch_size or eval.depth in the config')
def evaluate_split(
  workdir: str | os.PathLike,
  split: str,
  data_dir: str = '',
  request: JudgeRequest | None = None,
  strategy: StrategyRequest | None = None,
  step: int | None = None,
  leave_out: str = '',
) -> Evaluation:
  """Judges a checkpoint of a run, usually the best, and writes eval/<split>/.

  If the workdir is read-only, nothing is written, with a warning. Other folders
  keep the evaluation of the best checkpoint on the run's own documents:

  - eval/<split>@<digest>/ for documents that are not those of the run;
  - `.step_<step>` is added if `step` is not the best checkpoint, or it is not
    known which one is;
  - `.leave_out@<digest>` is added if `leave_out` has labels that the run does
    not leave out; the digest is that of all ids that are left out;
  - `.<strategy>` is added if a strategy chooses the labels.

  Args:
    workdir: folder of the run.
    split: name of the split. The threshold of micro-F1-tuned is that of dev.
    data_dir: folder of the data, or '' for that of the run's config.
    request: criteria of the returned metrics; None for the run's criteria,
      which the files that are written always use.
    strategy: None chooses the eval.depth labels with the highest scores.
    step: None for the best checkpoint.
    leave_out: file of further ids to leave out of judging, or ''.
  """
  if request and strategy:
    strategy.check_cut_offs(request.ks)
  home = Workdir.at(workdir)
  home.check_has_run()
  with home.locked(needed=False) as saves:
    if not saves:
      logging.warning(
        '%s: is read-only: metrics are not saved, except in an --output',
        home.path,
      )
    how = request, strategy, step, leave_out, saves
    return _judge_in(home, split, data_dir, *how)


def _judge_in(
  home: Workdir,
  split: str,
  data_dir: str,
  request: JudgeRequest | None,
  strategy: StrategyRequest | None,
  step: int | None,
  leave_out: str,
  saves: bool,
) -> Evaluation:
  run = open_run(home.path, step)
  config = run.config.eval
  data = moved_data(run, data_dir)

  def load(name: str) -> Corpus:
    seed = run.config.seed
    return load_corpus(data, seed, run.space, [name])

  corpus = load(split)
  part = corpus.split(split)
  space = _without(leave_out, corpus.label_space, data)
  name = _name_of(part, home, data_dir, step)
  if len(space.left_out) > len(corpus.label_space.left_out):
    digest = left_out_digest([space.ids[i] for i in space.left_out.tolist()])
    name += f'.{_LEAVE_OUT}@{digest[:8]}'
  model = dataclasses.replace(run, space=space)
  by_frequency = popularity(space, part, config.depth)
  criteria = config.criteria()
  if strategy:
    criteria = strategy.criteria(criteria)
  if request:
    criteria = request.criteria(
      by_frequency,
      labels=space.labels,
      train_gold=lambda: load(TRAIN).split(TRAIN).gold,
      usual=criteria,
    )
  # A list for another slice would not have all labels that the search for this
  # slice finds.
  slices = slices_without_lists(by_frequency, criteria)
  if strategy:
    name, predictions, metrics = _judge_chosen(
      strategy, model, part, name, slices
    )
  else:
    predictions, metrics = _judge_by_score(model, part, name, slices)
  if saves:
    write_judged(model, part, name, predictions, metrics)
  calibration = None if strategy else model.run.calibration(model.scorer)
  if request:
    how = predictions, name, config.calibration, calibration
    shown_NK = None if strategy else judged_probabilities(*how)
    if (hierarchy := criteria.hierarchy) is not None:
      predictions = dataclasses.replace(predictions, hierarchy=hierarchy)
    metrics = judge(predictions, criteria, tuned_threshold(metrics), shown_NK)
  prior = judge(by_frequency, prior_criteria(criteria))
  judged = predictions, criteria, metrics, prior, home.evaluation(name)
  return Evaluation(*judged, calibration, saves)


def _without(leave_out: str, space: LabelSpace, data: DataConfig) -> LabelSpace:
  """Returns labels that leave out those of a file, too; see evaluate_split."""
  flag = f'--{_LEAVE_OUT}'
  ids = read_left_out(leave_out, flag, data.dir)
  return mark_left_out(space, ids, f'{flag}={leave_out}')


def _name_of(
  split: Split, workdir: Workdir, data_dir: str, step: int | None
) -> str:
  """Returns a split's folder, with a digest if the split is not the run's."""
  # If the run was started without this split, it has no digest of the split. In
  # this case the split counts as the run's own, unless data_dir is given.
  unknown = '' if data_dir else split.digest
  is_own = workdir.digests().get(split.name, unknown) == split.digest
  if not is_own and not data_dir:
    logging.warning(
      '%s: the documents of %s, or their labels, are not those of the run: '
      'files have changed, or other files are where they were',
      *(workdir.path, split.name),
    )
  name = split.name if is_own else f'{split.name}@{split.digest[:8]}'
  return name if _is_best(workdir, step) else f'{name}.step_{step}'


def _is_best(workdir: Workdir, step: int | None) -> bool:
  """Returns whether a step is None or that of the best checkpoint.

  Step 0 is that of models without checkpoints. If the newest checkpoint is
  damaged, the best one is not known.
  """
  try:
    return step is None or step == (best_step(workdir) or 0)
  except DataError:
    return False


def _judge_by_score(
  model: OpenRun, split: Split, name: str, slices: Sequence[np.ndarray]
) -> tuple[Predictions, Metrics]:
  tunes = tunes_threshold(name)
  threshold = None if tunes else saved_threshold(model.workdir, model.step)
  return judge_split(model, split, name, threshold, model.calibration, slices)


def _judge_chosen(
  strategy: StrategyRequest,
  model: OpenRun,
  split: Split,
  name: str,
  slices: Sequence[np.ndarray],
) -> tuple[str, Predictions, Metrics]:
  """Judges chosen labels; also returns the folder's name."""
  runner, config = StrategyRunner.of(strategy, model), model.config.eval
  by_score = predict_split(model, split, slices)
  predictions, _ = runner.choose(by_score, split)
  metrics = judge(predictions, strategy.criteria(config.criteria()))
  return f'{name}.{strategy.kind.value}', predictions, metrics


def moved_data(run: OpenRun, data_dir: str) -> DataConfig:
  """Returns the config of a run's data, read from data_dir unless it is ''."""
  data = run.config.data
  if data_dir and data.generated:
    raise ConfigError(
      '--data_dir: the corpus of this run is generated, not read from files'
    )
  path = data_dir or data.dir
  if path and not pathlib.Path(path).expanduser().exists():
    message = f'{path}: no such file or folder'
    if not data_dir:
      places = ', '.join(places_of(path, run.workdir))
      message += (
        f'; the run was trained on it. These places were tried: {places}. Give '
        'the new path as --data_dir=PATH'
      )
    raise DataError(message)
  return dataclasses.replace(data, dir=path)


@enough_memory('choose a smaller --depth, or smaller cut-offs in --ks')
def evaluate_files(files: JudgeFiles, request: JudgeRequest) -> Evaluation:
  """Judges files of predictions, one with gold; writes nothing."""
  if tuned := [name for name in request.kinds if name.endswith('-tuned')]:
    raise ConfigError(
      f'--metrics: {tuned[0]} needs a dev split, which only a --workdir has'
    )
  # At least as many labels per document are kept as the largest cut-off needs.
  predictions, weights_L = read_judged(files, max((DEPTH, *request.ks)))
  need_gold(predictions)

  train_gold = None
  if files.train_labels is not None:
    train_gold = functools.partial(read_train_gold, files)
  criteria = request.criteria(predictions, weights_L, (), train_gold)
  if criteria.hierarchy is not None:
    predictions = dataclasses.replace(predictions, hierarchy=criteria.hierarchy)
  metrics = judge(predictions, criteria)
  prior = _prior(predictions, prior_criteria(criteria))
  return Evaluation(predictions, criteria, metrics, prior, None)


def prior_criteria(criteria: Criteria) -> Criteria:
  """Returns the prior's criteria: only the first protocol, and no intervals."""
  return dataclasses.replace(
    criteria, protocols=criteria.protocols[:1], replicates=0
  )


def _prior(predictions: Predictions, criteria: Criteria) -> Metrics | None:
  """Returns the metrics of the popularity prior, or None if it is not known."""
  space = _space_of(predictions)
  if space is None or not predictions.n_train:
    return None
  split = Split('', predictions.doc_ids, predictions.gold, (), '')
  depth = predictions.lists[ALL].ids.shape[1]
  return judge(popularity(space, split, depth), criteria)


def saved_threshold(workdir: Workdir, step: int) -> float | None:
  """Returns the threshold tuned on dev, or None, as for another checkpoint."""
  workdir.check_has_run()
  digest = workdir.digests().get(DEV)
  if digest is None:
    return None
  metrics = read_metrics(workdir, DEV, step, digest)
  if metrics is None:
    # A checkpoint that is not the best is judged in a folder of its own.
    metrics = read_metrics(workdir, f'{DEV}.step_{step}', step, digest)
  if metrics is None:
    logging.warning(
      'no tuned threshold: %s has no metrics of the dev split at step %d; to '
      'compute them, run xjax evaluate --split=dev (with --step if you '
      'use this flag here)',
      workdir.evaluation(DEV),
      step,
    )
    return None
  return tuned_threshold(metrics)


TUNED = 'tuned'  # stands for the threshold that is best on dev


@dataclasses.dataclass(frozen=True)
class Threshold:
  """Assigns the labels whose score is at least a number."""

  least: float
  is_raw: bool  # of scores before calibration, not of probabilities

  @classmethod
  def of(cls, threshold: str | float, run: OpenRun) -> Self:
    """Returns a threshold for the lists, before calibration, of a run.

    `threshold` is the least probability of assigned labels, or 'tuned': the one
    with the best micro-F1 on dev.
    """
    if threshold == TUNED:
      least = saved_threshold(run.workdir, run.step)
      if least is None:
        raise ConfigError(
          "threshold='tuned': this run has no tuned threshold, because its "
          'model was not judged on a dev split; give a probability, such as 0.5'
        )
      return cls(least, is_raw=True)
    least = _probability(threshold)
    if not run.has_probabilities():
      raise ConfigError(
        f'threshold={threshold}: the scores of this run are margins, not '
        "probabilities, because they are not calibrated on dev; use 'tuned' or "
        'no threshold'
      )
    return cls(least, is_raw=False)

  def keep(self, lists: LabelLists, run: OpenRun) -> LabelLists:
    """Puts PAD after the last label that is assigned."""
    shown_NK = None
    if not self.is_raw:
      shown_NK = run.readable(lists.ids, lists.scores)
    return lists.keep(lists.at_least(self.least, shown_NK))


def _probability(threshold: str | float) -> float:
  is_flag = isinstance(threshold, bool | np.bool_)
  with contextlib.suppress(ValueError, TypeError):
    if not is_flag and 0 <= (probability := float(threshold)) <= 1:
      return probability
  raise ConfigError(
    f"threshold={threshold!r}: must be 'tuned' or a probability from 0 to 1"
  )


def _space_of(predictions: Predictions) -> LabelSpace | None:
  """Returns the labels; None if held-out ones do not follow trained ones."""
  held_out = predictions.held_out
  first = int(held_out[0]) if len(held_out) else predictions.n_scored
  if not np.array_equal(held_out, first + np.arange(len(held_out))):
    return None
  return LabelSpace(
    labels=Labels.of(Label(id_) for id_ in predictions.labels),
    train_counts=predictions.train_counts,
    n_train=predictions.n_train,
    n_trained=first,
    n_held_out=len(held_out),
    n_new=max(0, predictions.n_scored - first - len(held_out)),
    left_out_ids=[predictions.labels[i] for i in predictions.left_out.tolist()],
  )
