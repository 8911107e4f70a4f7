"""Compares protocols in a table, and explains why their values differ."""

from collections.abc import Mapping, Sequence
import re
import textwrap
from typing import Any

from xjax.judge.judge import LISTS, NOTES, REASONS, SEARCH
from xjax.judge.metrics.protocols import PROTOCOLS
from xjax.report.page.page import Cell, Table, number_cell
from xjax.report.tables.align import align
from xjax.report.tables.metrics import interval_of

WIDTH = 100  # maximum number of characters of a line, where possible


def protocol_table(metrics: Mapping[str, Any], slice_name: str) -> Table:
  """Returns the table of a slice: a row per metric, a column per protocol.

  A cell is empty if the protocol's tool does not print the metric. If no metric
  of the slice has a value, the table has only counts.
  """
  values_of = _values_by_protocol(metrics, slice_name)
  names = _metrics(values_of)
  if all(map(is_empty, values_of.values())):
    names = [m for m in names if m.startswith('n_')]
  rows = [
    [
      Cell(metric),
      *(value_cell(metrics, name, slice_name, metric) for name in values_of),
    ]
    for metric in names
  ]
  return Table(('metric', *values_of), rows)


def _values_by_protocol(
  metrics: Mapping[str, Any], slice_name: str
) -> dict[str, Mapping[str, Any]]:
  names = [name for name in metrics if name in PROTOCOLS]
  return {name: metrics[name].get(slice_name, {}) for name in names}


def _metrics(values_of: Mapping[str, Mapping[str, Any]]) -> list[str]:
  return list(dict.fromkeys(m for values in values_of.values() for m in values))


def metrics_table(metrics: Mapping[str, Any], protocol: str) -> Table:
  """Returns the table of a protocol: a row per metric, a column per slice."""
  slices = metrics[protocol]
  names = _metrics(slices)
  rows = [
    [Cell(metric), *(value_cell(metrics, protocol, s, metric) for s in slices)]
    for metric in names
  ]
  return Table(('metric', *slices), rows)


def value_cell(
  metrics: Mapping[str, Any], protocol: str, slice_name: str, metric: str
) -> Cell:
  """Returns a cell with a metric and its interval; empty without metric."""
  values = metrics[protocol].get(slice_name, {})
  if metric not in values:
    return Cell('')
  interval = interval_of(metrics, protocol, slice_name, metric)
  below = f'[{interval[0]:.4f}, {interval[1]:.4f}]' if interval else ''
  return number_cell(values[metric], below=below)


def plain_table(table: Table, width: int | None = None) -> str:
  """Returns a table as lines of text.

  Columns that do not fit the width are printed in further tables below, which
  repeat the text columns.
  """
  heads = [' '.join(name.split()) for name in table.columns]
  rows = [
    [f'{cell.text} {cell.below}'.rstrip() for cell in row] for row in table.rows
  ]
  blocks = _blocks([heads, *rows], table.n_text, width)
  return '\n\n'.join('\n'.join(align(rows, table.n_text)) for rows in blocks)


def _blocks(
  rows: Sequence[Sequence[str]], n_text: int, width: int | None
) -> list[list[list[str]]]:
  """Splits the columns into blocks that fit the width."""
  widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
  text, room = list(range(n_text)), width or sum(widths)
  blocks = [text]
  for column in range(n_text, len(widths)):
    taken = sum(widths[i] for i in (*blocks[-1], column)) - 2
    if taken > room and len(blocks[-1]) > n_text:
      blocks.append(text)
    blocks[-1] = [*blocks[-1], column]
  return [[[row[i] for i in block] for row in rows] for block in blocks]


def why_they_differ(metrics: Mapping[str, Any], slice_name: str) -> list[str]:
  """Returns list items, one per reason, on why values of protocols differ."""
  reasons: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
  for protocol, slices in metrics.get(REASONS, {}).items():
    for metric, sentences in slices.get(slice_name, {}).items():
      for sentence in sentences.split('; '):
        template = re.sub(rf'\b{protocol}\b', _THEM, sentence)
        protocols, differing = reasons.setdefault(template, ({}, {}))
        protocols[protocol], differing[metric] = None, None
  order = _metrics(_values_by_protocol(metrics, slice_name))
  return [
    _reason_text(template, list(protocols), sorted(differing, key=order.index))
    for template, (protocols, differing) in reasons.items()
  ]


_THEM = '{them}'  # stands for the names of protocols in a sentence


def _reason_text(
  template: str, protocols: list[str], metrics: list[str]
) -> str:
  names = ', '.join(protocols)
  if _THEM in template:
    return _bullet(
      f'{_join_by_cut_off(metrics)}: {template.replace(_THEM, names)}.'
    )
  return _bullet(f'{names}, {_join_by_cut_off(metrics)}: {template}.')


def why_missing(metrics: Mapping[str, Any], slice_name: str) -> list[str]:
  """Returns list items, one per reason, on why values are missing."""
  notes = metrics.get(NOTES, {}).get(slice_name, {})
  metrics_of: dict[str, list[str]] = {}
  for metric, reason in notes.items():
    metrics_of.setdefault(reason, []).append(metric)
  first, *_ = _values_by_protocol(metrics, slice_name).values()
  of_lists = {notes.get(LISTS), notes.get(SEARCH)}
  one_reason = is_empty(first) and len(set(metrics_of) - of_lists) == 1
  points = []
  for reason, affected in metrics_of.items():
    all_metrics = one_reason and reason not in of_lists
    names = 'all metrics' if all_metrics else _join_by_cut_off(affected)
    points.append(_bullet(f'{names}: {reason}.'))
  return points


def is_empty(values: Mapping[str, Any]) -> bool:
  """Returns whether a slice has no values except counts."""
  return all(v is None for m, v in values.items() if not m.startswith('n_'))


def _bullet(text: str) -> str:
  return textwrap.fill(
    text,
    WIDTH,
    initial_indent='- ',
    subsequent_indent='  ',
    break_on_hyphens=False,
  )


def _join_by_cut_off(metrics: Sequence[str]) -> str:
  """Joins metrics, grouped by cut-offs: `P R nDCG @1,3,5, F1`."""
  ks: dict[str, list[str]] = {}
  for metric in metrics:
    kind = re.sub(r'@\d+', '@', metric)
    ks.setdefault(kind, []).extend(re.findall(r'@(\d+)', metric))
  together: dict[str, list[str]] = {}
  for kind, cut_offs in ks.items():
    together.setdefault(','.join(cut_offs), []).append(kind.replace('@', ''))
  return ', '.join(
    ' '.join(kinds) + (f' @{cut_offs}' if cut_offs else '')
    for cut_offs, kinds in together.items()
  )
