"""Builds tables about systems, and about a dataset's documents and labels."""

from collections.abc import Mapping, Sequence

import numpy as np

from xjax.data.schema import slice_masks
from xjax.judge.metrics.label_sums import in_bins
from xjax.judge.predictions import Predictions
from xjax.report.figures.tally import LabelTally
from xjax.report.page.page import Cell, Table, number_cell
from xjax.report.runs import JudgedRun


def worst_labels(
  run: JudgedRun,
  names: Mapping[str, str],
  counts: LabelTally,
  k: int,
  n: int = 15,
) -> Table:
  """Returns a table of the n labels that are missed more than expected.

  Rare labels are missed often by every system. So labels are ranked by how much
  oftener they are missed than labels in the same bin of frequency are on
  average. `counts` are those of label_tally with the same k.
  """
  has_training = run.predictions.n_train > 0
  expected = counts.expected_lost(
    run.predictions.train_counts if has_training else counts.gold
  )
  excess = counts.lost - expected
  order = np.lexsort((counts.f1, -excess))[:n]
  rows = [
    _lost_row(run, names, counts, expected, i)
    for i in order.tolist()
    if excess[i] > 1e-9  # the rest is rounding
  ]
  columns = (
    'label',
    'name',
    'training\ndocuments',
    'gold',
    f'predicted\nat {k}',
    'correct',
    'missed',
    'missed as\nexpected',
    'missed\nbeyond',
    f'F1@{k}',
  )
  return Table(columns, rows, n_text=2)


def _lost_row(
  run: JudgedRun,
  names: Mapping[str, str],
  counts: LabelTally,
  expected: np.ndarray,
  i: int,
) -> list[Cell]:
  label = run.predictions.labels[i]
  n_train = int(run.predictions.train_counts[i])
  lost, usual = int(counts.lost[i]), float(expected[i])
  return [
    Cell(label),
    Cell(names.get(label, '')),
    number_cell(n_train if run.predictions.n_train else None),
    number_cell(int(counts.gold[i])),
    number_cell(int(counts.predicted[i])),
    number_cell(int(counts.correct[i])),
    number_cell(lost),
    number_cell(usual, 1),
    number_cell(lost - usual, 1),
    number_cell(float(counts.f1[i])),
  ]


_SLICES = {
  'frequent': 'frequent (50 training documents or more)',
  'few': 'few (1 to 49 training documents)',
  'zero': 'zero (no training documents)',
  'held_out': 'held out of training',
}


def corpus_table(predictions: Predictions) -> Table:
  """Returns a table of statistics of the documents and labels."""
  per_doc = predictions.gold.lengths
  golden = np.bincount(
    predictions.gold.values, minlength=len(predictions.labels)
  )
  rows = [
    _row('documents (N)', len(predictions)),
    _row('documents without gold', int((per_doc == 0).sum())),
    _row('labels (L)', len(predictions.labels)),
    _row('labels that are gold in a document', int((golden > 0).sum())),
    _row('labels per document, mean', _mean(per_doc)),
    _row('labels per document, median', float(np.median(per_doc))),
    _row('labels per document, maximum', int(per_doc.max(initial=0))),
    _row('judged documents per label, mean', _mean(golden)),
  ]
  return Table(('', ''), [*rows, *_training_rows(predictions)])


def _training_rows(predictions: Predictions) -> list[list[Cell]]:
  counts = predictions.train_counts
  if not predictions.n_train:
    return [[Cell('training documents'), Cell('not known')]]
  masks = slice_masks(counts, predictions.held_out)
  return [
    _row('training documents', predictions.n_train),
    _row('training documents per label, mean', _mean(counts)),
    _row('training documents per label, median', float(np.median(counts))),
    *(
      _row(f'labels: {_SLICES[name]}', int(mask.sum()))
      for name, mask in masks.items()
    ),
  ]


def _mean(values: np.ndarray) -> float:
  return float(values.mean()) if len(values) else 0.0


def _row(name: str, value: float | int) -> list[Cell]:
  if type(value) is int:
    return [Cell(name), number_cell(value)]
  return [Cell(name), Cell(f'{value:.2f}', value)]


def bin_table(predictions: Predictions) -> Table:
  """Counts the labels, and their gold, of each bin of training frequency."""
  gold_L = np.bincount(
    predictions.gold.values, minlength=len(predictions.labels)
  )
  rows = [
    [
      Cell(name),
      number_cell(int(mask.sum())),
      number_cell(int(gold_L[mask].sum())),
      number_cell(float(gold_L[mask].sum() / max(gold_L.sum(), 1))),
    ]
    for name, mask in in_bins(predictions.train_counts).items()
    if mask.any()
  ]
  columns = 'training documents', 'labels', 'gold', 'share of gold'
  return Table(columns, rows)


def label_space_remarks(
  predictions: Mapping[str, Predictions],
) -> Sequence[str]:
  """Returns a remark for each system with other labels than the first system.

  Systems with equal numbers of labels and of training documents are assumed to
  have the same labels.
  """
  (first, theirs), *others = predictions.items()
  return [
    f'{name} has {len(p.labels):,} labels and {p.n_train:,} training '
    f'documents, but {first} has {len(theirs.labels):,} labels and '
    f'{theirs.n_train:,} training documents. So slices, and metrics that are '
    'averaged over labels, are about different labels in the two systems.'
    for name, p in others
    if (len(p.labels), p.n_train) != (len(theirs.labels), theirs.n_train)
  ]
