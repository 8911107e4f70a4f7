"""Judging a finished run on a split, or predictions saved earlier."""

import dataclasses
import os
import pathlib

from absl import logging
import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.data.config import SyntheticData
from xjax.data.load import load_corpus
from xjax.data.schema import Label, LabelSpace, Split
from xjax.evaluate.criteria import Criteria
from xjax.evaluate.evaluator import popularity
from xjax.evaluate.judge import judge
from xjax.evaluate.predictions import Predictions
from xjax.metrics.slices import ALL
from xjax.train.judging import (
  DEV,
  Metrics,
  judge_split,
  read_judged,
  tuned_threshold,
)
from xjax.train.predictor import load_predictor
from xjax.train.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """A split judged.

  Attributes:
    metrics: of the model.
    prior: of the popularity prior; None where the label order of predictions
      made elsewhere does not tell it.
    folder: that was written; None where nothing was.
  """

  metrics: Metrics
  prior: Metrics | None
  folder: pathlib.Path | None


def evaluate_split(
  workdir: str | os.PathLike, split: str, data_dir: str = ''
) -> Evaluation:
  """Judges the best checkpoint of a run and writes eval/<split>/.

  Of other documents than the run's own it writes eval/<split>@<digest>/, so
  that those of the run stay.

  Args:
    workdir: of the run.
    split: name; micro-F1-tuned is at the threshold that is best on the run's
      own dev.
    data_dir: where the data is, if not where it was.

  Raises:
    ConfigError: data_dir for a corpus that is not read from files.
    DataError: no such split, or a fault in the data or the workdir.
  """
  predictor, home = load_predictor(workdir), Workdir.at(workdir)
  data, config = predictor.config.data, predictor.config.eval
  if data_dir and isinstance(data, SyntheticData):
    raise ConfigError('--data_dir: the corpus of this run is made, not read')
  data = dataclasses.replace(data, dir=data_dir or data.dir)
  corpus = load_corpus(data, predictor.config.seed, predictor.space, [split])
  part, space = corpus.split(split), corpus.label_space
  # A split that the run was started without may only lie where its own do.
  unknown = '' if data_dir else part.digest
  own = home.digests().get(split, unknown) == part.digest
  name = split if own else f'{split}@{part.digest[:8]}'
  threshold = None if name == DEV else saved_threshold(home, predictor.step)
  model = dataclasses.replace(predictor, space=space)
  metrics = judge_split(model, part, home, name, threshold)
  prior = judge(popularity(space, part, config.depth), config.criteria())
  return Evaluation(metrics, prior, home.evaluation(name))


def evaluate_file(path: str | os.PathLike, criteria: Criteria) -> Evaluation:
  """Judges a predictions.npz, whoever made it, and writes nothing.

  Args:
    path: the file, with gold.
    criteria: what to judge by.

  Raises:
    DataError: it is absent, damaged or without gold.
  """
  predictions = Predictions.load(os.path.expanduser(path))
  space = _space_of(predictions)
  prior = None
  if space is not None and predictions.gold is not None:
    split = Split('', predictions.doc_ids, predictions.gold, (), '')
    depth = predictions.lists[ALL].ids.shape[1]
    prior = judge(popularity(space, split, depth), criteria)
  return Evaluation(judge(predictions, criteria), prior, None)


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
  metrics = read_judged(workdir, DEV, step, digest)
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
    labels=tuple(Label(id_) for id_ in predictions.labels),
    train_counts=predictions.train_counts,
    n_train=predictions.n_train,
    n_trained=first,
    n_held_out=len(held_out),
  )
