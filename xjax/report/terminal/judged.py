"""Shows metrics as text, and writes predictions and metrics to a folder."""

from collections.abc import Mapping
import os
import pathlib
from typing import Any

from xjax.core.atomic import atomic_write
from xjax.data.files.file_set import writing_set
from xjax.judge.calibration import Calibration
from xjax.judge.criteria import Criteria
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
  RECALLS,
  document_lines,
)
from xjax.judge.metrics.protocols import PROTOCOLS
from xjax.judge.predictions import Predictions
from xjax.report.page.latex import render_latex
from xjax.report.tables.levels import plain_levels
from xjax.report.tables.plain import plain_slice_table, recall_lines
from xjax.report.tables.protocols import (
  WIDTH,
  metrics_table,
  plain_table,
  protocol_table,
  why_missing,
  why_they_differ,
)

LATEX, DOCUMENTS = 'metrics.tex', 'documents.jsonl'


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
  names = _protocols(metrics)
  if names != [PROTOCOL]:
    slices = dict.fromkeys(name for who in names for name in metrics[who])
    parts = [_by_protocol(metrics, name) for name in slices]
    if lines := recall_lines(metrics.get(RECALLS, {})):
      parts.append('\n'.join(lines))
  elif full or INTERVALS in metrics:
    # The notes on missing values are printed below the full table instead.
    shown = {name: value for name, value in metrics.items() if name != NOTES}
    parts = [plain_slice_table(shown, prior), _in_full(metrics)]
  else:
    parts = [plain_slice_table(metrics, prior)]
  if names == [PROTOCOL] and (text := plain_levels(metrics)):
    parts.append(text)
  if INTERVALS in metrics:
    parts.append('[low, high] are 95% intervals by bootstrap over documents.')
  return '\n\n'.join(parts)


def _in_full(metrics: Mapping[str, Any]) -> str:
  lines = [plain_table(metrics_table(metrics, PROTOCOL), WIDTH)]
  for name in metrics[PROTOCOL]:
    if points := why_missing(metrics, name):
      lines += [f'slice {name}', *points]
  return '\n'.join(lines)


def _by_protocol(metrics: Mapping[str, Any], name: str) -> str:
  table = plain_table(protocol_table(metrics, name), WIDTH)
  whys = why_they_differ(metrics, name) + why_missing(metrics, name)
  return '\n'.join([f'slice {name}', table, *whys])


def _protocols(metrics: Mapping[str, Any]) -> list[str]:
  return [name for name in metrics if name in PROTOCOLS]


def write_judgement(
  folder: str | os.PathLike,
  predictions: Predictions,
  criteria: Criteria,
  metrics: Mapping[str, Any],
  calibration: Calibration | None = None,
  split: str = '',
) -> None:
  """Writes predictions and their metrics to a folder, as one set.

  The files are predictions.npz, metrics.json, metrics.csv, metrics.tex,
  documents.jsonl, calibration.json if the scores are calibrated, and
  judged.json, which has the digests of the other files. xjax compare and xjax
  report can read the folder. Older files are replaced.

  Args:
    criteria: the criteria by which documents.jsonl is computed.
    calibration: calibration of a run's scores; None for uncalibrated scores.
    split: name of the run's folder below eval/, if there is a calibration.
  """
  mark = pathlib.Path(folder).expanduser() / MARK
  if calibration and calibration.reason:
    calibration = None
  facts = {JUDGED: split} if calibration else {}
  with writing_set(mark, facts) as new:
    write_evaluation(new, predictions, metrics)
    if calibration:
      calibration.save(new / CALIBRATION)
    with atomic_write(new / LATEX) as file:
      for protocol in _protocols(metrics):
        table = render_latex(metrics_table(metrics, protocol))
        file.write(f'% protocol {protocol}\n{table}')
    with atomic_write(new / DOCUMENTS) as file:
      for line in document_lines(predictions, criteria):
        file.write(line + '\n')
