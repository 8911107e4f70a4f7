"""The labels that a system loses most documents of."""

from collections.abc import Mapping

import numpy as np

from xjax.report.figures.tally import LabelTally
from xjax.report.page.page import Cell, Table, number_cell
from xjax.report.runs import Run


def worst_labels(
  run: Run,
  names: Mapping[str, str],
  counts: LabelTally,
  k: int,
  n: int = 15,
) -> Table:
  """The n labels with most gold documents that did not get them.

  Of two with as many, the one of the lower F1 comes first, then the lower
  index. Labels that nothing was lost of are left out.

  Args:
    run: the system.
    names: label id -> name, where it has one.
    counts: of its first k predictions.
    k: as above.
    n: rows at most.
  """
  order = np.lexsort((counts.f1, -counts.lost))[:n]
  rows = [_row(run, names, counts, i) for i in order.tolist() if counts.lost[i]]
  columns = (
    'label',
    'name',
    'training\ndocuments',
    'gold',
    f'predicted\nat {k}',
    'correct',
    'lost',
    f'F1@{k}',
  )
  return Table(columns, rows, n_text=2)


def _row(
  run: Run, names: Mapping[str, str], counts: LabelTally, i: int
) -> list[Cell]:
  label = run.predictions.labels[i]
  n_train = int(run.predictions.train_counts[i])
  return [
    Cell(label),
    Cell(names.get(label, '')),
    number_cell(n_train if run.predictions.n_train else None),
    number_cell(int(counts.gold[i])),
    number_cell(int(counts.predicted[i])),
    number_cell(int(counts.correct[i])),
    number_cell(int(counts.lost[i])),
    number_cell(float(counts.f1[i])),
  ]
