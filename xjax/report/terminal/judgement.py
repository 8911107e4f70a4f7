"""Shows metrics as text, and writes predictions and metrics to a folder."""

from collections.abc import Iterable, Mapping
import os
import pathlib
import re
from typing import Any

from xjax.core.atomic import atomic_write
from xjax.data.files.file_set import writing_set
from xjax.judge.calibration import Calibration
from xjax.judge.criteria import USUAL_K, Criteria, users_metrics
from xjax.judge.files.evaluation import (
  CALIBRATION,
  JUDGED,
  MARK,
  write_evaluation,
)
from xjax.judge.judge import (
  INTERVALS,
  NOTES,
  PROTOCOL,
  REASONS,
  RECALLS,
  document_lines,
)
from xjax.judge.metrics.metric import cut_offs
from xjax.judge.predictions import Predictions
from xjax.report.runs import protocols
from xjax.report.table import Table, list_item, number_cell, plain_text
from xjax.report.tables.metrics import (
  is_count,
  metric_table,
  missing_lines,
  plain_levels,
  value_cells,
)

WIDTH = 100  # maximum number of characters of a line, where possible
DOCUMENTS = 'documents.jsonl'
_MODEL, _PRIOR = 'model', 'popularity prior'
_THEM = '{them}'  # stands for the names of protocols in a sentence


def judgement_text(
  metrics: Mapping[str, Any],
  prior: Mapping[str, Any] | None = None,
  full: bool = False,
) -> str:
  """Returns the tables that show the results of judging.

  - If the only protocol is that of xjax, the first table has the main metrics
    of the model and of the popularity prior, by slice. A table of all metrics
    follows if `full` is true or if there are intervals. If labels have parents,
    the last table has the metrics by level of the hierarchy.
  - Otherwise there is a table per slice, with a column per protocol. Below
    each table are the reasons why the protocols differ.
  """
  names = protocols(metrics)
  if names != [PROTOCOL]:
    slices = dict.fromkeys(name for who in names for name in metrics[who])
    parts = [_by_protocol(metrics, name) for name in slices]
    if lines := recall_lines(metrics.get(RECALLS, {})):
      parts.append('\n'.join(lines))
  elif full or INTERVALS in metrics:
    # The notes on missing values are printed below the full table instead.
    shown = {name: value for name, value in metrics.items() if name != NOTES}
    table = plain_text(metrics_table(metrics, PROTOCOL), WIDTH)
    lines = map(_bullet, missing_lines(metrics.get(NOTES, {})))
    parts = [plain_slice_table(shown, prior), '\n'.join([table, *lines])]
  else:
    parts = [plain_slice_table(metrics, prior)]
  if names == [PROTOCOL] and (text := plain_levels(metrics)):
    parts.append(text)
  if INTERVALS in metrics:
    parts.append('[low, high] are 95% intervals by bootstrap over documents.')
  return '\n\n'.join(parts)


def _by_protocol(metrics: Mapping[str, Any], name: str) -> str:
  table = plain_text(protocol_table(metrics, name), WIDTH)
  notes = metrics.get(NOTES, {}).get(name, {})
  whys = why_they_differ(metrics, name)
  whys += map(_bullet, missing_lines({name: notes}))
  return '\n'.join([f'slice {name}', table, *whys])


def write_judgement(
  folder: str | os.PathLike,
  predictions: Predictions,
  criteria: Criteria,
  metrics: Mapping[str, Any],
  calibration: Calibration | None = None,
  split: str = '',
) -> None:
  """Writes predictions and their metrics to a folder, as one set.

  The files are predictions.npz, metrics.json, metrics.csv, documents.jsonl,
  calibration.json if the scores are calibrated, and judged.json, which has the
  digests of the other files. `split` names the run's folder below eval/, if
  there is a calibration.
  """
  mark = pathlib.Path(folder).expanduser() / MARK
  if calibration and calibration.reason:
    calibration = None
  facts = {JUDGED: split} if calibration else {}
  with writing_set(mark, facts) as new:
    write_evaluation(new, predictions, metrics)
    if calibration:
      calibration.save(new / CALIBRATION)
    with atomic_write(new / DOCUMENTS) as file:
      for line in document_lines(predictions, criteria):
        file.write(line + '\n')


def plain_slice_table(
  metrics: Mapping[str, Any], prior: Mapping[str, Any] | None = None
) -> str:
  """Returns a table of the metrics of a model and of the popularity prior.

  Each slice has a row for the model, followed by a row for the prior if the
  prior has a ranking metric there. A dash is a missing value; values are
  fractions. The column `documents` counts documents with gold in the slice and,
  in brackets, documents without gold in the slice.

  The lines below the table say why values are missing, and which share of gold
  labels each step of the search keeps.
  """
  slices, prior = metrics[PROTOCOL], prior or {}
  columns = _columns(next(iter(slices.values())))
  ranking = [m for m in columns if '@' in m] or columns
  priors = {
    name: values
    for name, values in prior.get(PROTOCOL, {}).items()
    if any(values.get(metric) is not None for metric in ranking)
  }
  rows, remarks = [], []
  for name, values in slices.items():
    skipped = values['n_skipped']
    documents = f'{values["n_docs"]:,}'
    documents += f' ({skipped:,} without gold)' if skipped else ''
    sides = [(name, f'{values["n_labels"]:,}', documents, _MODEL, values)]
    if name in priors:
      sides.append(('', '', '', _PRIOR, priors[name]))
    for *texts, shown in sides:
      rows.append([*texts, *(number_cell(shown.get(m), 3) for m in columns)])
  notes = {k: v for k, v in prior.get(NOTES, {}).items() if k in priors}
  for who, reasons in ((_MODEL, metrics.get(NOTES, {})), (_PRIOR, notes)):
    remarks += [f'- {who}: {x}' for x in missing_lines(reasons, columns)]
  remarks += [f'- {line}' for line in recall_lines(metrics.get(RECALLS, {}))]
  heads = 'slice', 'labels', 'documents', 'ranked by', *columns
  return '\n'.join([plain_text(Table.of(heads, rows, 4)), *remarks])


def recall_lines(recalls: Mapping[str, Mapping[str, float]]) -> list[str]:
  """Returns a line for each step of a search, with the recall of each slice."""
  steps = dict.fromkeys(step for shares in recalls.values() for step in shares)
  return [
    f'{step}: '
    + ', '.join(
      f'{name} {shares[step]:.3f}' for name, shares in recalls.items()
    )
    for step in steps
  ]


def _columns(values: Mapping[str, Any]) -> list[str]:
  # At k = 5, or else at the largest cut-off; P also at the smallest.
  ks = cut_offs(values)
  k = USUAL_K if USUAL_K in ks or not ks else ks[-1]
  at_k = [f'{kind}@{k}' for kind in ('P', 'R', 'RP', 'nDCG', 'PSP')]
  first = [f'P@{ks[0]}'] if ks and ks[0] != k else []
  others = ['R-Precision', 'micro-F1', 'micro-F1-tuned', 'macro-F1']
  others += users_metrics(values, k)
  return [m for m in (*first, *at_k, *others) if m in values]


def protocol_table(metrics: Mapping[str, Any], slice_name: str) -> Table:
  """Returns a slice's table: a row per metric, a column per protocol."""
  # A cell is empty if the protocol's tool does not print the metric. If no
  # metric has a value, the table has only counts.
  names = protocols(metrics)
  columns = {name: value_cells(metrics, name, slice_name) for name in names}
  if all(_is_empty(metrics[name].get(slice_name, {})) for name in names):
    columns = {
      name: {m: cell for m, cell in cells.items() if is_count(m)}
      for name, cells in columns.items()
    }
  return metric_table(columns)


def metrics_table(metrics: Mapping[str, Any], protocol: str) -> Table:
  """Returns the table of a protocol: a row per metric, a column per slice."""
  slices = metrics[protocol]
  return metric_table(
    {name: value_cells(metrics, protocol, name) for name in slices}
  )


def _is_empty(values: Mapping[str, Any]) -> bool:
  return all(v is None for m, v in values.items() if not is_count(m))


def why_they_differ(metrics: Mapping[str, Any], slice_name: str) -> list[str]:
  """Returns list items, one per reason, on why values of protocols differ."""
  reasons: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
  for protocol, slices in metrics.get(REASONS, {}).items():
    for metric, sentences in slices.get(slice_name, {}).items():
      for sentence in sentences.split('; '):
        template = re.sub(rf'\b{protocol}\b', _THEM, sentence)
        who, differing = reasons.setdefault(template, ({}, {}))
        who[protocol], differing[metric] = None, None
  order = [
    metric
    for protocol in protocols(metrics)
    for metric in metrics[protocol].get(slice_name, {})
  ]
  points = []
  for template, (who, differing) in reasons.items():
    names = ', '.join(who)
    shown = _join_by_cut_off(sorted(differing, key=order.index))
    if _THEM in template:
      points.append(_bullet(f'{shown}: {template.replace(_THEM, names)}.'))
    else:
      points.append(_bullet(f'{names}, {shown}: {template}.'))
  return points


def _bullet(text: str) -> str:
  return list_item(text, '- ', WIDTH)


def _join_by_cut_off(metrics: Iterable[str]) -> str:
  """Joins metrics, grouped by cut-offs: `P R nDCG @1,3,5, F1`."""
  ks: dict[str, list[str]] = {}
  for metric in metrics:
    kind = re.sub(r'@\d+', '@', metric)
    ks.setdefault(kind, []).extend(re.findall(r'@(\d+)', metric))
  together: dict[str, list[str]] = {}
  for kind, numbers in ks.items():
    together.setdefault(','.join(numbers), []).append(kind.replace('@', ''))
  return ', '.join(
    ' '.join(kinds) + (f' @{numbers}' if numbers else '')
    for numbers, kinds in together.items()
  )
