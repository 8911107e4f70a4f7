"""Builds tables about systems, and about a dataset's documents and labels."""

from collections.abc import Iterator, Mapping, Sequence
import datetime
import json
from typing import Any

import numpy as np

from xjax.data.schema import slice_masks
from xjax.judge.metrics.label_sums import in_bins
from xjax.judge.predictions import Predictions
from xjax.report.figures.tally import LabelTally
from xjax.report.runs import SEED, Group, JudgedRun
from xjax.report.table import MISSING, Cell, Table, number_cell
from xjax.train.run_record import RunRecord

_LONGEST = 60  # maximum number of characters of a value
_ABSENT = object()  # stands for a field that a config does not have
_UNITS = 'B', 'KB', 'MB', 'GB', 'TB'


def cost_table(groups: Sequence[Group]) -> Table:
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
  size, unit = float(value), 0
  while size >= 1000 and unit < len(_UNITS) - 1:
    size, unit = size / 1000, unit + 1
  return Cell(f'{size:.1f} {_UNITS[unit]}' if unit else f'{value} B', value)


def config_table(groups: Sequence[Group]) -> Table | None:
  """Returns a table of the fields in which configs differ, or None."""
  groups = [group for group in groups if group.first.config is not None]
  configs = [group.first.config for group in groups]
  rows = [
    [Cell(path), *map(_value_cell, values)]
    for path, values in _differences(configs, '')
    if path != SEED or all(len(group.runs) == 1 for group in groups)
  ]
  if not rows:
    return None
  names = [group.name for group in groups]
  return Table(('field', *names), rows, n_text=1 + len(names))


def _differences(
  values: Sequence[Any], path: str
) -> Iterator[tuple[str, Sequence[Any]]]:
  """Yields path and values (_ABSENT if missing) of the fields that differ."""
  present = [value for value in values if value is not _ABSENT]
  if all(value == present[0] for value in present):
    return
  if not all(isinstance(value, dict) for value in present):
    yield path, values
    return
  kinds = [_field(value, 'kind') for value in values]
  if len({str(value.get('kind')) for value in present}) > 1:
    yield f'{path}.kind'.removeprefix('.'), kinds
  for kind in dict.fromkeys(map(str, kinds)):
    alike = [
      value if str(of) == kind else _ABSENT for value, of in zip(values, kinds)
    ]
    names = (name for value in alike if value is not _ABSENT for name in value)
    for name in dict.fromkeys(names):
      inner = [_field(value, name) for value in alike]
      yield from _differences(inner, f'{path}.{name}'.removeprefix('.'))


def _field(value: Any, name: str) -> Any:
  return _ABSENT if value is _ABSENT else value.get(name, _ABSENT)


def _value_cell(value: Any) -> Cell:
  if value is _ABSENT or value is None or value == '':
    return Cell(MISSING)
  text = value if isinstance(value, str) else json.dumps(value)
  return Cell(text if len(text) <= _LONGEST else f'{text[: _LONGEST - 3]}...')


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


_SLICES = {
  'frequent': 'frequent (50 training documents or more)',
  'few': 'few (1 to 49 training documents)',
  'zero': 'zero (no training documents)',
  'held_out': 'held out of training',
}


def corpus_table(predictions: Predictions) -> Table:
  """Returns a table of statistics of the documents and labels."""
  per_doc, counts = predictions.gold.lengths, predictions.train_counts
  golden = _golden(predictions)
  rows = {
    'documents (N)': len(predictions),
    'documents without gold': int((per_doc == 0).sum()),
    'labels (L)': len(predictions.labels),
    'labels that are gold in a document': int((golden > 0).sum()),
    'labels per document, mean': _mean(per_doc),
    'labels per document, median': _two_decimals(np.median(per_doc)),
    'labels per document, maximum': int(per_doc.max(initial=0)),
    'judged documents per label, mean': _mean(golden),
    'training documents': predictions.n_train or 'not known',
  }
  if predictions.n_train:
    rows['training documents per label, mean'] = _mean(counts)
    median = _two_decimals(np.median(counts))
    rows['training documents per label, median'] = median
    for name, mask in slice_masks(counts, predictions.held_out).items():
      rows[f'labels: {_SLICES[name]}'] = int(mask.sum())
  return Table.of(('', ''), rows.items())


def _golden(predictions: Predictions) -> np.ndarray:
  return np.bincount(predictions.gold.values, minlength=len(predictions.labels))


def _two_decimals(value: float) -> Cell:
  return number_cell(float(value), 2)


def _mean(values: np.ndarray) -> Cell:
  return _two_decimals(values.mean() if len(values) else 0.0)


def bin_table(predictions: Predictions) -> Table:
  """Counts the labels, and their gold, of each bin of training frequency."""
  gold_L = _golden(predictions)
  rows = [
    [
      name,
      int(mask.sum()),
      int(gold_L[mask].sum()),
      number_cell(float(gold_L[mask].sum() / max(gold_L.sum(), 1))),
    ]
    for name, mask in in_bins(predictions.train_counts).items()
    if mask.any()
  ]
  columns = 'training documents', 'labels', 'gold', 'share of gold'
  return Table.of(columns, rows)


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
