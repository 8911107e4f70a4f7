"""Shows metrics as plain-text tables."""

from collections.abc import Iterable, Mapping, Sequence
import re
from typing import Any

from xjax.judge.criteria import USUAL_K, users_metrics
from xjax.judge.judge import LISTS, NOTES, PROTOCOL, RECALLS, SEARCH
from xjax.report.tables.align import align

MODEL = 'model'
PRIOR = 'popularity prior'
# A warning is shown if one of these metrics (with @k) is lower for the model
# than for the popularity prior.
COMPARED = ('RP', 'nDCG')


def plain_slice_table(
  metrics: Mapping[str, Any], prior: Mapping[str, Any] | None = None
) -> str:
  """Returns a table of the metrics of a model and of the popularity prior.

  Each slice has a row for the model, followed by a row for the prior if the
  prior has a ranking metric there. A dash is a missing value; values are
  fractions. The column `documents` counts documents with gold in the slice and,
  in brackets, documents without gold in the slice.

  The lines below the table say in which slices the model is below the prior,
  why values are missing, and which share of gold labels each step of the search
  keeps.
  """
  slices = metrics[PROTOCOL]
  columns = _columns(next(iter(slices.values())))
  priors = {
    name: values
    for name, values in (prior or {}).get(PROTOCOL, {}).items()
    if _is_ranked(values, columns)
  }
  rows = [('slice', 'labels', 'documents', 'ranked by', *columns)]
  for name, values in slices.items():
    counts = name, f'{values["n_labels"]:,}', _documents(values)
    rows.append((*counts, MODEL, *_cells(values, columns)))
    if name in priors:
      rows.append(('', '', '', PRIOR, *_cells(priors[name], columns)))
  remarks = [
    line
    for name, values in slices.items()
    for line in _warn_below_prior(name, values, priors.get(name, {}), columns)
  ]
  remarks += _explain_dashes(MODEL, metrics.get(NOTES, {}), columns)
  notes = (prior or {}).get(NOTES, {})
  notes = {name: reasons for name, reasons in notes.items() if name in priors}
  remarks += _explain_dashes(PRIOR, notes, columns)
  remarks += [f'- {line}' for line in recall_lines(metrics.get(RECALLS, {}))]
  return '\n'.join([*align(rows, 4), *remarks])


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
  """Returns the names of the metrics to show.

  Metrics with a cut-off are shown at k = 5. If 5 is not a cut-off, they are
  shown at the largest cut-off. P is also shown at the smallest cut-off.
  """
  ks = sorted({int(k) for name in values for k in re.findall(r'@(\d+)', name)})
  k = USUAL_K if USUAL_K in ks or not ks else ks[-1]
  at_k = [f'{kind}@{k}' for kind in ('P', 'R', 'RP', 'nDCG', 'PSP')]
  first = [f'P@{ks[0]}'] if ks and ks[0] != k else []
  others = ['R-Precision', 'micro-F1', 'micro-F1-tuned', 'macro-F1']
  others += users_metrics(values, k)
  return [m for m in (*first, *at_k, *others) if m in values]


def _is_ranked(values: Mapping[str, Any], columns: Sequence[str]) -> bool:
  ranking = [m for m in columns if '@' in m] or columns
  return any(values.get(metric) is not None for metric in ranking)


def _documents(values: Mapping[str, Any]) -> str:
  skipped = values['n_skipped']
  without = f' ({skipped:,} without gold)' if skipped else ''
  return f'{values["n_docs"]:,}{without}'


def _cells(values: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
  shown = (values.get(column) for column in columns)
  return ['-' if value is None else f'{value:.3f}' for value in shown]


def _warn_below_prior(
  name: str,
  values: Mapping[str, Any],
  prior: Mapping[str, Any],
  columns: Sequence[str],
) -> Iterable[str]:
  lower = []
  for metric in columns:
    ours, theirs = values.get(metric), prior.get(metric)
    if metric.partition('@')[0] not in COMPARED or None in (ours, theirs):
      continue
    if ours < theirs:
      lower.append(f'{metric} {ours:.4f} < {theirs:.4f}')
  if lower:
    yield f'! {name}: the model is BELOW the popularity prior: ' + ', '.join(
      lower
    )


def _explain_dashes(
  system: str, notes: Mapping[str, Mapping[str, str]], columns: Sequence[str]
) -> Iterable[str]:
  """Yields lines that explain dashes, one for all slices with a reason."""
  names_of: dict[tuple[str, str], list[str]] = {}
  for name, reasons in notes.items():
    for topic in (LISTS, SEARCH):
      if topic in reasons:
        names_of.setdefault((topic, reasons[topic]), []).append(name)
    by_reason = {}
    for metric in columns:
      if metric in reasons:
        by_reason.setdefault(reasons[metric], []).append(metric)
    for reason, metrics in by_reason.items():
      which = 'all' if len(metrics) == len(columns) else ', '.join(metrics)
      names_of.setdefault((which, reason), []).append(name)
  for (which, reason), names in names_of.items():
    yield f'- {", ".join(names)}, {system}, {which}: {reason}'
