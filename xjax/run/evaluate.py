"""Judging a finished run on a split, or predictions saved earlier."""

import dataclasses
import functools
import os
import pathlib

from absl import logging
import numpy as np

from xjax.core.atomic import write_json
from xjax.core.errors import ConfigError, DataError
from xjax.data.formats.contract import DataConfig
from xjax.data.formats.draft import TRAIN
from xjax.data.load import load_corpus
from xjax.data.schema import Corpus, Label, Labels, LabelSpace, Split
from xjax.judge.criteria import Criteria
from xjax.judge.files.judged import (
  DEPTH,
  JudgeFiles,
  read_judged,
  read_train_gold,
)
from xjax.judge.judge import judge, need_gold
from xjax.judge.metrics.slices import ALL
from xjax.judge.predict import PREDICTIONS, popularity, predict, save_evaluation
from xjax.judge.predictions import Predictions
from xjax.judge.request import Asked
from xjax.run.fit import load as load_run
from xjax.run.judging import (
  DEV,
  Metrics,
  judge_split,
  read_metrics,
  tuned_threshold,
  writing_evaluation,
)
from xjax.run.predictor import Predictor
from xjax.run.strategy import Chooser, StrategyRequest
from xjax.train.workdir import Workdir

STRATEGY = 'strategy.json'  # how labels were chosen, in an evaluation's folder


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """A split judged.

  Attributes:
    predictions: with gold.
    criteria: what they were judged by.
    metrics: of the model.
    prior: of the popularity prior; None where the label order of predictions
      made elsewhere does not tell it.
    folder: that was written; None where nothing was.
  """

  predictions: Predictions
  criteria: Criteria
  metrics: Metrics
  prior: Metrics | None
  folder: pathlib.Path | None


def evaluate_split(
  workdir: str | os.PathLike,
  split: str,
  data_dir: str = '',
  asked: Asked | None = None,
  strategy: StrategyRequest | None = None,
) -> Evaluation:
  """Judges the best checkpoint of a run and writes eval/<split>/.

  Of other documents than the run's own it writes eval/<split>@<digest>/, so
  that those of the run stay; of labels that a strategy chooses
  eval/<split>.<strategy>/, with strategy.json beside the rest.

  Args:
    workdir: of the run.
    split: name; micro-F1-tuned is at the threshold that is best on the run's
      own dev.
    data_dir: where the data is, if not where it was.
    asked: what to judge by instead of what the run is judged by. What is
      written stays by the latter.
    strategy: how labels are chosen; None: by score, as deep as eval.depth.

  Raises:
    ConfigError: data_dir for a corpus that is not read from files; a strategy
      that the run has no probabilities for, or cut-offs beyond its labels.
    DataError: no such split, or a fault in the data or the workdir.
  """
  if asked and strategy:
    strategy.check_cut_offs(asked.ks)
  predictor, home = load_run(workdir), Workdir.at(workdir)
  config = predictor.config.eval
  data = _data_of(predictor.config.data, data_dir)

  def load(name: str) -> Corpus:
    seed = predictor.config.seed
    return load_corpus(data, seed, predictor.space, [name])

  corpus = load(split)
  part, space = corpus.split(split), corpus.label_space
  name = _name_of(part, home, data_dir)
  model = dataclasses.replace(predictor, space=space)
  criteria = config.criteria()
  if strategy:
    criteria = strategy.criteria(criteria)
    name, metrics = _judge_chosen(strategy, model, part, home, name)
  else:
    metrics = _judge_by_score(model, part, home, name)
  folder = home.evaluation(name)
  predictions = Predictions.load(folder / PREDICTIONS)
  if asked:
    criteria = asked.criteria(
      predictions,
      labels=space.labels,
      train_gold=lambda: load(TRAIN).split(TRAIN).gold,
      usual=criteria,
    )
    metrics = judge(predictions, criteria, tuned_threshold(metrics))
  prior = judge(popularity(space, part, config.depth), prior_criteria(criteria))
  return Evaluation(predictions, criteria, metrics, prior, folder)


def _name_of(split: Split, workdir: Workdir, data_dir: str) -> str:
  """Of the folder for a split of these documents."""
  # A split that the run was started without may only lie where its own do.
  unknown = '' if data_dir else split.digest
  own = workdir.digests().get(split.name, unknown) == split.digest
  return split.name if own else f'{split.name}@{split.digest[:8]}'


def _judge_by_score(
  model: Predictor, split: Split, workdir: Workdir, name: str
) -> Metrics:
  threshold = None if name == DEV else saved_threshold(workdir, model.step)
  return judge_split(model, split, workdir, name, threshold)


def _judge_chosen(
  strategy: StrategyRequest,
  model: Predictor,
  split: Split,
  workdir: Workdir,
  name: str,
) -> tuple[str, Metrics]:
  """Writes the evaluation of chosen labels; returns its name and metrics."""
  chooser, config = Chooser.of(strategy, model), model.config.eval
  batches = model.inputs.split_batches(split)
  by_score = predict(model.scorer, batches, split, model.space, config.depth)
  chosen = chooser.choose(by_score, split, split.features)
  metrics = judge(chosen.predictions, strategy.criteria(config.criteria()))
  name = f'{name}.{strategy.kind.value}'
  with writing_evaluation(workdir, name, model.step, split.digest) as here:
    if here:
      folder = workdir.evaluation(name)
      save_evaluation(folder, chosen.predictions, metrics)
      write_json(folder / STRATEGY, strategy.parameters() | chosen.facts())
  return name, metrics


def _data_of(data: DataConfig, data_dir: str) -> DataConfig:
  if data_dir and data.generated:
    raise ConfigError('--data_dir: the corpus of this run is made, not read')
  return dataclasses.replace(data, dir=data_dir or data.dir)


def evaluate_files(files: JudgeFiles, asked: Asked) -> Evaluation:
  """Judges files of predictions, whoever made them, and writes nothing.

  Args:
    files: the files; one of them has gold.
    asked: what to judge by.

  Raises:
    ConfigError: what is asked for is unknown or takes more than is given.
    DataError: a file is absent, damaged, or does not fit the others.
  """
  if tuned := [name for name in asked.kinds if name.endswith('-tuned')]:
    raise ConfigError(f'--metrics: {tuned[0]}: a --workdir alone has a dev')
  # Whatever is asked for should not fail for want of a deeper list.
  predictions, weights_L = read_judged(files, max((DEPTH, *asked.ks)))
  need_gold(predictions)

  given = files.train_labels is not None
  train_gold = functools.partial(read_train_gold, files) if given else None
  criteria = asked.criteria(predictions, weights_L, (), train_gold)
  metrics = judge(predictions, criteria)
  prior = _prior(predictions, prior_criteria(criteria))
  return Evaluation(predictions, criteria, metrics, prior, None)


def prior_criteria(criteria: Criteria) -> Criteria:
  """What the popularity prior beside a model is judged by: the same, once."""
  return dataclasses.replace(
    criteria, protocols=criteria.protocols[:1], replicates=0
  )


def _prior(predictions: Predictions, criteria: Criteria) -> Metrics | None:
  """The popularity prior of the same documents, where it can be told."""
  space = _space_of(predictions)
  if space is None or not predictions.n_train:
    return None
  split = Split('', predictions.doc_ids, predictions.gold, (), '')
  depth = predictions.lists[ALL].ids.shape[1]
  return judge(popularity(space, split, depth), criteria)


def saved_threshold(workdir: Workdir, step: int) -> float | None:
  """The threshold that judging on dev has tuned.

  None, and a line that says so, where dev was not judged, or at another
  checkpoint, or where what was judged is not the dev of the run.

  Raises:
    DataError: its metrics are damaged.
  """
  digest = workdir.digests().get(DEV)
  if digest is None:
    return None
  metrics = read_metrics(workdir, DEV, step, digest)
  if metrics is None:
    logging.info(
      'no tuned threshold: %s is not of the dev split at step %d; '
      'experiments.evaluate --split=dev makes it',
      workdir.evaluation(DEV),
      step,
    )
    return None
  try:
    return tuned_threshold(metrics)
  except (KeyError, AttributeError, TypeError) as error:
    raise DataError(
      f'{workdir.evaluation(DEV)}: not metrics of xjax'
    ) from error


def _space_of(predictions: Predictions) -> LabelSpace | None:
  """The label space, where held-out labels follow the trained ones."""
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
  )
