"""Builds tables about systems, and about a dataset's documents and labels."""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import datetime
import json
from typing import Any

import numpy as np
import tqdm

from xjax.core.types import PAD
from xjax.judge.metrics.label_sums import in_bins
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions
from xjax.report.runs import SEED, JudgedRun, SystemRuns
from xjax.report.table import MISSING, Cell, Table, number_cell
from xjax.train.run_record import RunRecord

_LONGEST = 60  # maximum number of characters of a value
_ABSENT = object()  # stands for a field that a config does not have


def cost_table(groups: Sequence[SystemRuns]) -> Table:
  """Returns a table of what each system has cost, with a row per run."""
  rows = []
  for group in groups:
    for run in group.runs:
      seed = f'seed {run.config[SEED]}' if len(group.runs) > 1 else ''
      rows.append([Cell(group.name, below=seed), *_costs(run.record)])
  columns = ['system', 'finished', 'xjax', 'fitting', 'memory', 'model', 'GPU']
  if all(row[-1].value is None for row in rows):  # no run used a GPU
    rows, columns = [row[:-1] for row in rows], columns[:-1]
  return Table(columns, rows)


def _costs(record: RunRecord | None) -> list[Cell]:
  if record is None:
    return [Cell(MISSING)] * 6
  return [
    Cell(record.finished[:10] or MISSING),
    Cell(record.version),
    _seconds(record.seconds),
    _bytes(record.peak_memory),
    _bytes(record.model_bytes),
    _bytes(record.device_memory),
  ]


def _seconds(value: float) -> Cell:
  if value < 60:
    return Cell(f'{value:.1f} s', value)
  return Cell(str(datetime.timedelta(seconds=round(value))), value)


def _bytes(value: int | None) -> Cell:
  if value is None:
    return Cell(MISSING)
  return Cell(f'{tqdm.tqdm.format_sizeof(value)}B', value)


def config_table(groups: Sequence[SystemRuns]) -> Table | None:
  """Returns a table of the fields in which configs differ, or None."""
  configs = {
    group.name: dict(_fields(group.first.config, ''))
    for group in groups
    if group.first.config is not None
  }
  if any(len(group.runs) > 1 for group in groups):
    configs = {k: v | {SEED: None} for k, v in configs.items()}
  rows = []
  for path in dict.fromkeys(
    path for config in configs.values() for path in config
  ):
    values = [config.get(path, _ABSENT) for config in configs.values()]
    present = [value for value in values if value is not _ABSENT]
    if any(value != present[0] for value in present):
      rows.append([Cell(path), *map(_value_cell, values)])
  if not rows:
    return None
  return Table(('field', *configs), rows, n_text=1 + len(configs))


def _fields(value: Any, path: str) -> Iterator[tuple[str, Any]]:
  """Yields the paths and values of the fields of a config."""
  if not isinstance(value, dict):
    yield path, value
    return
  for name, inner in value.items():
    yield from _fields(inner, f'{path}.{name}'.removeprefix('.'))


def _value_cell(value: Any) -> Cell:
  if value is _ABSENT or value is None or value == '':
    return Cell(MISSING)
  text = value if isinstance(value, str) else json.dumps(value)
  return Cell(text if len(text) <= _LONGEST else f'{text[: _LONGEST - 3]}...')


@dataclasses.dataclass(frozen=True, eq=False)
class LabelTally:
  """Holds counts of documents for each label, int64 [L] each."""

  # A label is predicted if it is among the first k of a document's list.

  correct: np.ndarray  # predicted and gold
  predicted: np.ndarray
  gold: np.ndarray

  @property
  def lost(self) -> np.ndarray:
    return self.gold - self.correct

  def expected_lost(self, frequencies: np.ndarray) -> np.ndarray:
    """Computes how often each label would be lost, given only its frequency."""
    # That is the average of the gold labels in its bin (label_sums.in_bins).
    expected = np.zeros(len(self.gold))
    for labels_L in in_bins(frequencies).values():
      share = self.lost[labels_L].sum() / max(self.gold[labels_L].sum(), 1)
      expected[labels_L] = share * self.gold[labels_L]
    return expected

  @property
  def f1(self) -> np.ndarray:
    """Returns float64 [L], the F1 of each label; 0 / 0 counts as 0."""
    return 2 * self.correct / np.maximum(self.predicted + self.gold, 1)


def label_tally(predictions: Predictions, k: int) -> LabelTally:
  """Counts the documents of each label, among the first k predicted labels."""
  lists, n_labels = predictions.lists[ALL].first(k), len(predictions.labels)

  def count(labels: np.ndarray) -> np.ndarray:
    return np.bincount(labels, minlength=n_labels)

  return LabelTally(
    correct=count(lists.ids[lists.hits(predictions.gold, n_labels)]),
    predicted=count(lists.ids[lists.ids != PAD]),
    gold=count(predictions.gold.values),
  )


def worst_labels(
  run: JudgedRun,
  names: Mapping[str, str],
  counts: LabelTally,
  k: int,
  n: int = 15,
) -> Table:
  """Returns a table of the n labels that are missed more than expected."""
  # Every system misses rare labels, so labels are compared with the average of
  # their bin of frequency. `counts` are those with the same k.
  train_counts = run.predictions.train_counts
  has_training = run.predictions.n_train > 0
  expected = counts.expected_lost(train_counts if has_training else counts.gold)
  excess = counts.lost - expected
  rows = [
    [
      label := run.predictions.labels[i],
      names.get(label, ''),
      int(train_counts[i]) if has_training else None,
      int(counts.gold[i]),
      int(counts.predicted[i]),
      int(counts.correct[i]),
      int(counts.lost[i]),
      number_cell(float(expected[i]), 1),
      number_cell(float(excess[i]), 1),
      number_cell(float(counts.f1[i])),
    ]
    for i in np.lexsort((counts.f1, -excess))[:n].tolist()
    if excess[i] > 1e-9  # the rest is rounding
  ]
  columns = (
    *('label', 'name', 'training\ndocuments', 'gold', f'predicted\nat {k}'),
    *('correct', 'missed', 'missed as\nexpected', 'missed\nbeyond', f'F1@{k}'),
  )
  return Table.of(columns, rows, 2)


def label_space_remarks(
  predictions: Mapping[str, Predictions],
) -> Sequence[str]:
  """Returns a remark for each system with other labels than the first."""
  # Equal numbers of labels and training documents count as equal labels.
  (first, theirs), *others = predictions.items()
  return [
    f'{name} has {len(p.labels):,} labels and {p.n_train:,} training '
    f'documents, but {first} has {len(theirs.labels):,} labels and '
    f'{theirs.n_train:,} training documents. So slices, and metrics that are '
    'averaged over labels, are about different labels in the two systems.'
    for name, p in others
    if (len(p.labels), p.n_train) != (len(theirs.labels), theirs.n_train)
  ]
