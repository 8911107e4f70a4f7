"""Conventions side by side: a column per protocol, and why they differ."""

from collections.abc import Mapping, Sequence
import textwrap
from typing import Any

from xjax.evaluate.judge import NOTES, REASONS
from xjax.metrics.protocols import PROTOCOLS
from xjax.report.metric_tables import interval_of
from xjax.report.page import Cell, Table, number_cell
from xjax.report.tables import align

_WIDTH = 79


def protocol_table(metrics: Mapping[str, Any], slice_name: str) -> Table:
  """A row per metric of a slice, a column per protocol.

  Args:
    metrics: as from evaluate.judge.judge.
    slice_name: one of its slices.

  Returns:
    The table; empty cells: the tool does not print that metric.
  """
  names = [name for name in metrics if name in PROTOCOLS]
  found = {name: metrics[name].get(slice_name, {}) for name in names}
  every = dict.fromkeys(m for values in found.values() for m in values)
  rows = [
    [
      Cell(metric),
      *(value_cell(metrics, name, slice_name, metric) for name in names),
    ]
    for metric in every
  ]
  return Table(('metric', *names), rows)


def metrics_table(metrics: Mapping[str, Any], protocol: str) -> Table:
  """A row per metric, a column per slice, under one protocol."""
  slices = metrics[protocol]
  every = dict.fromkeys(m for values in slices.values() for m in values)
  rows = [
    [Cell(metric), *(value_cell(metrics, protocol, s, metric) for s in slices)]
    for metric in every
  ]
  return Table(('metric', *slices), rows)


def value_cell(
  metrics: Mapping[str, Any], protocol: str, slice_name: str, metric: str
) -> Cell:
  """A value with its interval; empty where there is no such metric."""
  values = metrics[protocol].get(slice_name, {})
  if metric not in values:
    return Cell('')
  sure = interval_of(metrics, protocol, slice_name, metric)
  below = f'[{sure[0]:.4f}, {sure[1]:.4f}]' if sure else ''
  return number_cell(values[metric], below=below)


def plain_table(table: Table) -> str:
  """The table as lines of text."""
  heads = [' '.join(name.split()) for name in table.columns]
  rows = [
    [f'{cell.text} {cell.below}'.rstrip() for cell in row] for row in table.rows
  ]
  return '\n'.join(align([heads, *rows], table.n_text))


def why_they_differ(metrics: Mapping[str, Any], slice_name: str) -> list[str]:
  """A line per protocol and reason, with the metrics that it explains."""
  return [
    _point(f'{protocol}, {_shown(which)}: {reason}.')
    for protocol, slices in metrics.get(REASONS, {}).items()
    for reason, which in _by_reason(slices.get(slice_name, {}))
  ]


def why_missing(metrics: Mapping[str, Any], slice_name: str) -> list[str]:
  """A line per reason why values are missing, with the metrics."""
  notes = metrics.get(NOTES, {}).get(slice_name, {})
  return [
    _point(f'{_shown(which)}: {reason}.') for reason, which in _by_reason(notes)
  ]


def _by_reason(reasons: Mapping[str, str]) -> list[tuple[str, list[str]]]:
  found: dict[str, list[str]] = {}
  for metric, reason in reasons.items():
    found.setdefault(reason, []).append(metric)
  return list(found.items())


def _point(text: str) -> str:
  return textwrap.fill(
    text, _WIDTH, initial_indent='- ', subsequent_indent='  '
  )


def _shown(metrics: Sequence[str]) -> str:
  """The metrics, the cut-offs of one kind together: `P@1,3,5`."""
  ks: dict[str, list[str]] = {}
  for metric in metrics:
    kind, _, k = metric.partition('@')
    ks.setdefault(kind, []).append(k)
  return ' '.join(
    f'{kind}@{",".join(each)}' if any(each) else kind
    for kind, each in ks.items()
  )
