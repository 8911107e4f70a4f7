"""A split -> predictions, and how an evaluation is kept."""

from collections.abc import Iterable, Mapping
import csv
import dataclasses
import functools
import pathlib
from typing import Any

import numpy as np

from xjax.core.atomic import atomic_write, write_json
from xjax.core.distributed import rank_documents
from xjax.core.progress import progress
from xjax.core.types import PAD, Batch, ScoreKind, Scorer
from xjax.data.schema import LabelSpace, Split
from xjax.judge.judge import INTERVALS
from xjax.judge.metrics.protocols import PROTOCOLS
from xjax.judge.metrics.slices import ALL, judged_masks
from xjax.judge.predictions import Lists, Predictions

# The files of a split's evaluation.
PREDICTIONS, METRICS, TABLE = 'predictions.npz', 'metrics.json', 'metrics.csv'
EVALUATION = (PREDICTIONS, METRICS, TABLE)


def predict(
  scorer: Scorer,
  batches: Iterable[Batch],
  split: Split,
  space: LabelSpace,
  depth: int,
) -> Predictions:
  """Top-k lists over all labels and per slice, in one pass.

  With several processes, each scores the rows it reads and all get all of them.

  Args:
    scorer: ranks labels.
    batches: this process's rows of every document of the split, each document
      once; every process has the same number of batches.
    split: the documents, for ids and gold.
    space: the labels; its slices are masks over all of them.
    depth: length of the lists.

  Raises:
    ValueError: the batches do not hold every document exactly once, or the
      scorer ranks a label it should not know or gives a label two scores.
  """
  masks = space.masks()
  with progress(batches, f'judging {split.name}', unit='batch') as shown:
    ids, scores, seen = rank_documents(
      shown,
      functools.partial(scorer.topk, k=depth, slices=tuple(masks.values())),
      len(split),
      depth,
      1 + len(masks),
    )
  if (seen != 1).any():
    raise ValueError(
      f'{(seen == 0).sum()} documents of {split.name} in no batch, '
      f'{(seen > 1).sum()} in several'
    )
  if ids.size and ids.max() >= scorer.n_labels:
    raise ValueError(
      f'label {ids.max()} ranked, but only {scorer.n_labels} scored'
    )
  names = (ALL, *masks)
  found = _predictions(
    scorer.score_kind,
    scorer.n_labels,
    split,
    space,
    {name: Lists(ids[g], scores[g]) for g, name in enumerate(names)},
  )
  found = dataclasses.replace(
    found,
    assigned_above=scorer.assigned_above,
    selected_by=scorer.selected_by,
  )
  if fault := found.fault():
    raise ValueError(f'{split.name}: {fault}')
  return found


def _predictions(
  kind: ScoreKind,
  n_scored: int,
  split: Split,
  space: LabelSpace,
  lists: Mapping[str, Lists],
) -> Predictions:
  return Predictions(
    score_kind=kind,
    n_scored=n_scored,
    n_train=space.n_train,
    doc_ids=tuple(split.ids),
    labels=space.ids,
    train_counts=np.asarray(space.train_counts, np.int32),
    lists=lists,
    gold=split.gold,
    held_out=space.held_out,
  )


def popularity(space: LabelSpace, split: Split, depth: int) -> Predictions:
  """The popularity prior: for every document the most frequent labels.

  Scores are n_l / n_train; ties, all labels of the zero slice among them, go
  to the lower index. Gold found outside the label space is not ranked.
  """
  n_scored = space.n_inside
  counts = np.asarray(space.train_counts[:n_scored], np.int64)
  ranked = np.argsort(-counts, kind='stable')
  lists = {}
  masks = judged_masks(space.train_counts, space.held_out)
  for name, mask in masks.items():
    best = ranked[mask[ranked]][:depth]
    ids = np.full(depth, PAD, np.int32)
    scores = np.full(depth, -np.inf, np.float32)
    ids[: len(best)] = best
    scores[: len(best)] = counts[best] / max(space.n_train, 1)
    shape = (len(split), depth)
    lists[name] = Lists(
      np.broadcast_to(ids, shape), np.broadcast_to(scores, shape)
    )
  return _predictions(ScoreKind.PROBABILITY, n_scored, split, space, lists)


def save_evaluation(
  folder: pathlib.Path, predictions: Predictions, metrics: Mapping[str, Any]
) -> None:
  """Writes predictions.npz, metrics.json and metrics.csv; host 0 alone calls.

  The CSV has a row per metric: protocol, slice, metric, value (empty: None),
  and the ends of its interval, where there is one.
  """
  folder = pathlib.Path(folder)
  predictions.save(folder / PREDICTIONS)
  write_json(folder / METRICS, metrics)
  write_table(folder / TABLE, metrics)


def write_table(path: pathlib.Path, metrics: Mapping[str, Any]) -> None:
  """Writes metrics.csv, as save_evaluation says."""
  intervals = metrics.get(INTERVALS, {})
  with atomic_write(path) as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(('protocol', 'slice', 'metric', 'value', 'low', 'high'))
    for protocol, slices in metrics.items():
      if protocol not in PROTOCOLS:
        continue
      for name, values in slices.items():
        sure = intervals.get(protocol, {}).get(name, {})
        writer.writerows(
          (protocol, name, metric, value, *sure.get(metric, (None, None)))
          for metric, value in values.items()
        )
