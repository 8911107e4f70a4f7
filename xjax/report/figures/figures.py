"""Draws the pictures of a report from its runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from xjax.judge.calibration import reliability_of
from xjax.judge.criteria import Criteria
from xjax.judge.judge import ECE_ABOVE, PROTOCOL, judge
from xjax.judge.metrics.calibration_error import ABOVE, Reliability
from xjax.judge.metrics.label_sums import in_bins
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions
from xjax.report.figures.plots import (
  Bars,
  Line,
  error_text,
  grouped_bars,
  label_frequency,
  line_plot,
  reliability_diagram,
  system_colours,
)
from xjax.report.page.page import Block, Paragraph, Picture
from xjax.report.runs import Estimate, JudgedRun, SystemRuns, group_metrics
from xjax.report.tables.metrics import intervals_of
from xjax.run.judging import tunes_threshold

_ON_DEV = (
  ' The calibration is fitted on dev. So here the calibrated probabilities of '
  'each document are from a calibration that was fitted to other documents.'
)
_TICKS = 1, 3, 5, 10, 20, 50
_CURVE_NAMES = {'P': 'Precision', 'R': 'Recall', 'RP': 'R-precision at K'}
_BEST = 'all/RP@5'


def frequency_picture(run: JudgedRun) -> Block:
  """Draws how often labels occur, in training and in the judged documents."""
  predictions = run.predictions
  gold_L = np.bincount(
    predictions.gold.values, minlength=len(predictions.labels)
  )
  trained = predictions.train_counts if predictions.n_train else np.zeros(0)
  counts = trained if len(trained) else gold_L
  sizes = {name: int(mask.sum()) for name, mask in in_bins(counts).items()}
  bins = {name: size for name, size in sizes.items() if size}
  parts = (f'{n} labels with {name} documents' for name, n in bins.items())
  return Picture(
    svgs=label_frequency(trained, gold_L, bins),
    alt=_alt('Label frequencies', parts),
    caption=(
      'First: labels ranked by their number of training documents, and labels '
      'ranked by their number of judged documents. The curve of the judged '
      f'documents leaves out {int((gold_L == 0).sum()):,} labels without '
      'judged documents. Second: the number of labels by their number of '
      f'{"training" if len(trained) else "judged"} documents.'
    ),
  )


def _alt(title: str, parts: Iterable[str]) -> str:
  return f'{title}. {"; ".join(parts)}'


def binned_f1(groups: Sequence[SystemRuns], k: int, protocol: str) -> Block:
  """Draws macro-F1 at k by training frequency, with intervals if available."""
  masks = in_bins(groups[0].first.predictions.train_counts)
  sizes = {name: int(mask.sum()) for name, mask in masks.items() if mask.any()}
  metrics = [f'macro-F1@{k}[{name}]' for name in sizes]
  bars = [_bars(group, metrics, protocol) for group in groups]
  if not any(np.isfinite(bar.heights).any() for bar in bars):
    return Paragraph(
      'Macro-F1 by training frequency is not among these metrics; it needs '
      'training labels.'
    )
  parts = (
    f'{bar.system} '
    + ', '.join(f'{name}: {y:.4f}' for name, y in zip(sizes, bar.heights))
    for bar in bars
  )
  svg = grouped_bars(
    'Macro-F1 by training frequency',
    'training documents of the label',
    f'macro-F1@{k}',
    [f'{name}\n{size:,} labels' for name, size in sizes.items()],
    bars,
  )
  return Picture(
    svgs=[svg],
    alt=_alt(f'Macro-F1 at {k} by training frequency', parts),
    caption=(
      'A bar is the mean F1 of the labels in a bin. The F1 is computed from '
      f'the first {k} predicted labels of each document. Whiskers show '
      'bootstrap intervals, which --ci computes, or one standard error on each '
      'side of a mean over seeds.'
    ),
  )


def _bars(group: SystemRuns, metrics: Sequence[str], protocol: str) -> Bars:
  values = group_metrics(group, protocol)[ALL]
  ends = intervals_of(group.first.metrics, protocol).get(ALL, {})
  rows = []
  for metric in metrics:
    estimate = values.get(metric, Estimate(None, None, 0))
    height = np.nan if estimate.mean is None else estimate.mean
    low, high = ends.get(metric, (np.nan, np.nan))
    if estimate.error is not None:
      low, high = height - estimate.error, height + estimate.error
    rows.append((height, low, high))
  return Bars(group.name, *np.asarray(rows, np.float64).reshape(-1, 3).T)


def reliability_blocks(groups: Sequence[SystemRuns]) -> list[Block]:
  """Draws reliability diagrams, and explains why a system has no diagram."""
  diagrams = {group.name: _diagrams(group.first) for group in groups}
  drawn = {name: kinds for name, kinds in diagrams.items() if kinds}
  blocks: list[Block] = [
    Paragraph(
      f'{group.name}: no reliability diagram, because its scores are '
      f'uncalibrated {group.first.predictions.score_kind.value}s, which do not '
      'tell how probable a label is.'
    )
    for group in groups
    if group.name not in drawn
  ]
  if not drawn:
    return blocks
  colours = system_colours(list(diagrams))
  several = any(len(group.runs) > 1 for group in groups)
  on_dev = any(
    g.first.calibration and tunes_threshold(g.first.split) for g in groups
  )
  parts = (
    f'{name}, {kind}: expected calibration error {error_text(diagram)}'
    for name, kinds in drawn.items()
    for kind, diagram in kinds.items()
  )
  picture = Picture(
    svgs=[reliability_diagram(n, x, colours[n]) for n, x in drawn.items()],
    alt=_alt('Reliability', parts),
    caption=(
      "Each entry of the documents' saved lists (slice all) is put into one of "
      '15 bins by its predicted probability. A point shows which share of the '
      'entries in a bin is correct. A system is too confident if its points '
      'are below the diagonal. ECE, the expected calibration error, is the '
      'mean distance from the diagonal, weighted by the number of entries in a '
      'bin. '
      f'{ECE_ABOVE} is the ECE of the entries with probability above {ABOVE}.'
      + ' If a system has several runs, the first run is shown.' * several
      + _ON_DEV * on_dev
    ),
  )
  return [picture, *blocks]


def _diagrams(run: JudgedRun) -> dict[str, Reliability]:
  diagrams = {'scores': reliability_of(run.predictions)}
  if run.calibration is not None:
    shown_NK = run.shown_probabilities()
    diagrams['calibrated'] = reliability_of(run.predictions, shown_NK)
  return {kind: diagram for kind, diagram in diagrams.items() if diagram}


def learning_curves(groups: Sequence[SystemRuns]) -> Block:
  """Draws the loss, and the metric that chooses the checkpoint, over steps."""
  runs = [(g.name, run) for g in groups for run in g.runs if run.history]
  losses = [_history(name, run, 'train', _loss) for name, run in runs]
  values = [_history(name, run, 'judge', _best_metric) for name, run in runs]
  metrics = sorted({_metric_of(run) for _, run in runs})
  names, svgs = [group.name for group in groups], []
  for title, unit, lines in (
    ('Loss in training', 'loss', losses),
    ('Metric on dev', ' or '.join(metrics), values),
  ):
    if lines := [line for line in lines if len(line.x)]:
      svgs.append(line_plot(title, 'step', unit, lines, names))
  if not svgs:
    return Paragraph(
      'There are no learning curves, because none of these runs has a '
      'metrics.jsonl.'
    )
  parts = (
    f'{line.system} ends at {line.y[-1]:.4g}, step {line.x[-1]:.0f}'
    for line in (*losses, *values)
    if len(line.x)
  )
  return Picture(
    svgs=svgs,
    alt=_alt('Learning curves', parts),
    caption=(
      'The curves are from metrics.jsonl. The checkpoint is chosen by the '
      f'metric on dev ({", ".join(metrics)}). There is one line per run; all '
      'seeds of a system have the same colour.'
    ),
  )


def _metric_of(run: JudgedRun) -> str:
  train = (run.config or {}).get('train', {})
  return train.get('best_metric', _BEST)


def _loss(run: JudgedRun, record: Mapping[str, Any]) -> float | None:
  return record.get('loss')


def _best_metric(run: JudgedRun, record: Mapping[str, Any]) -> float | None:
  slice_name, _, metric = _metric_of(run).partition('/')
  return record.get('metrics', {}).get(slice_name, {}).get(metric)


def _history(
  name: str,
  run: JudgedRun,
  kind: str,
  value_of: Callable[[JudgedRun, Mapping[str, Any]], float | None],
) -> Line:
  points = [
    (record['step'], value)
    for record in run.history
    if record.get('kind') == kind
    and (value := value_of(run, record)) is not None
  ]
  points_N2 = np.asarray(points, np.float64).reshape(-1, 2)
  return Line(name, points_N2[:, 0], points_N2[:, 1])


def rank_curves(groups: Sequence[SystemRuns]) -> Picture:
  """Draws P@K, R@K and RP@K against K, as in Chalkidis et al. 2019, Fig. 2."""
  names, svgs = [group.name for group in groups], []
  runs = [[_rank_curves(r.predictions) for r in g.runs] for g in groups]
  for kind, title in _CURVE_NAMES.items():
    curves = [np.mean([curve[kind] for curve in own], axis=0) for own in runs]
    lines = [
      Line(name, np.arange(1, len(y) + 1), y) for name, y in zip(names, curves)
    ]
    svgs.append(line_plot(title, 'K', f'{kind}@K', lines, names, _TICKS))
  parts = (
    f'{name}: RP@{len(y[:5])} {y[:5][-1]:.4f}' for name, y in zip(names, curves)
  )
  return Picture(
    svgs=svgs,
    alt=_alt('Precision, recall and R-precision against K', parts),
    caption=(
      'Means over documents with gold labels, from K = 1 to the depth of the '
      'saved lists. RP@1 equals P@1, and RP@K equals R@K for large K '
      '(Chalkidis et al. 2019, Fig. 2).'
    ),
  )


def _rank_curves(predictions: Predictions) -> dict[str, np.ndarray]:
  """Returns P, R and RP at 1, 2, ... up to the depth of the lists."""
  ks = range(1, predictions.lists[ALL].ids.shape[1] + 1)
  kinds = [f'{kind}@k' for kind in _CURVE_NAMES]
  values = judge(predictions, Criteria(ks, kinds))[PROTOCOL][ALL]
  return {
    kind: np.array([values[f'{kind}@{k}'] for k in ks], np.float64)
    for kind in _CURVE_NAMES
  }
