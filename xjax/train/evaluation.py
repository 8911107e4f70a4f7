"""Judging a finished run on a split, or predictions saved earlier."""

from collections.abc import Sequence
import dataclasses
import os
import pathlib

import numpy as np

from xjax.core.distributed import is_host0
from xjax.core.errors import DataError
from xjax.data.load import load_corpus
from xjax.data.schema import Label, LabelSpace, Split
from xjax.evaluate.evaluator import (
  PROTOCOL,
  judge,
  popularity,
  predict,
  save_evaluation,
  tune_threshold,
)
from xjax.evaluate.predictions import Predictions
from xjax.metrics.slices import ALL
from xjax.train.judging import Metrics
from xjax.train.predictor import load_predictor
from xjax.train.workdir import Workdir, read_json


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """A split judged.

  Attributes:
    metrics: of the model.
    prior: of the popularity prior; None where the label order of predictions
      made elsewhere does not tell it.
    folder: of predictions.npz, metrics.json and metrics.csv.
  """

  metrics: Metrics
  prior: Metrics | None
  folder: pathlib.Path


def evaluate_split(
  workdir: str | os.PathLike, split: str, data_dir: str = ''
) -> Evaluation:
  """Judges the best checkpoint of a run and writes eval/<split>/.

  Args:
    workdir: of the run.
    split: name; for any but dev, micro-F1-tuned is at dev's threshold.
    data_dir: where the data is, if not where it was.

  Raises:
    DataError: no such split, or a fault in the data or the workdir.
  """
  predictor = load_predictor(workdir)
  data, config = predictor.config.data, predictor.config.eval
  data = dataclasses.replace(data, dir=data_dir or data.dir)
  corpus = load_corpus(data, predictor.config.seed, predictor.space, [split])
  part, space = corpus.split(split), corpus.label_space
  batches = predictor.batches(part)
  predictions = predict(predictor, batches, part, space, config.depth)
  threshold = saved_threshold(Workdir.at(workdir))
  if split == 'dev':
    threshold = tune_threshold(predictions)
  metrics = judge(predictions, config.ks, threshold)
  prior = judge(popularity(space, part, config.depth), config.ks)
  folder = Workdir.at(workdir).evaluation(split)
  if is_host0():
    save_evaluation(folder, predictions, metrics)
  return Evaluation(metrics, prior, folder)


def evaluate_file(path: str | os.PathLike, ks: Sequence[int]) -> Evaluation:
  """Judges a predictions.npz, whoever made it, and writes nothing.

  Args:
    path: the file, with gold.
    ks: cut-offs.

  Raises:
    DataError: it is absent, damaged or without gold.
  """
  predictions = Predictions.load(path)
  space = _space_of(predictions)
  prior = None
  if space is not None and predictions.gold is not None:
    split = Split('', predictions.doc_ids, predictions.gold, (), '')
    depth = predictions.lists[ALL].ids.shape[1]
    prior = judge(popularity(space, split, depth), ks)
  return Evaluation(judge(predictions, ks), prior, pathlib.Path(path).parent)


def saved_threshold(workdir: Workdir) -> float | None:
  """The threshold that judging on dev has tuned, if it was judged.

  Raises:
    DataError: its metrics are damaged.
  """
  path = workdir.evaluation('dev') / 'metrics.json'
  if not path.exists():
    return None
  try:
    return read_json(path)[PROTOCOL][ALL].get('threshold-tuned')
  except (KeyError, AttributeError, TypeError) as error:
    raise DataError(f'{path}: not metrics of xjax') from error


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
