"""Draws curves over steps of training, and over places in lists."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xjax.report.figures.plots import Line, Panel, line_panels
from xjax.report.figures.tally import Tally
from xjax.report.page.page import Block, Picture, Text
from xjax.report.runs import Group, JudgedRun

_TICKS = 1, 3, 5, 10, 20, 50
# Curves that differ nowhere by more than this are hard to tell apart.
_CLOSE = 0.05
_CURVE_NAMES = {'P': 'Precision', 'R': 'Recall', 'RP': 'R-precision at K'}
_BEST = 'all/RP@5'


def learning_curves(groups: Sequence[Group]) -> Block:
  """Draws the loss, and the metric that chooses the checkpoint, over steps."""
  runs = [(g.name, run) for g in groups for run in g.runs if run.history]
  losses = [_history(name, run, 'train', _loss) for name, run in runs]
  judged = [_history(name, run, 'judge', _best_metric) for name, run in runs]
  metrics = sorted({_metric_of(run) for _, run in runs})
  panels = [
    Panel(title, 'step', unit, [line for line in lines if len(line.x)])
    for title, unit, lines in (
      ('Loss in training', 'loss', losses),
      ('Metric on dev', ' or '.join(metrics), judged),
    )
  ]
  panels = [panel for panel in panels if panel.lines]
  if not panels:
    return Text(
      'There are no learning curves, because none of these runs has a '
      'metrics.jsonl.'
    )
  return Picture(
    svgs=line_panels(panels, [group.name for group in groups]),
    alt='Learning curves. ' + '; '.join(map(_last, (*losses, *judged))),
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


def _last(line: Line) -> str:
  if not len(line.x):
    return f'{line.system}: nothing recorded'
  return f'{line.system} ends at {line.y[-1]:.4g}, step {line.x[-1]:.0f}'


def rank_curves(
  groups: Sequence[Group], tallies: Mapping[str, Sequence[Tally]]
) -> list[Block]:
  """Draws P@K, R@K and RP@K against K, as in Chalkidis et al. 2019, Fig. 2.

  If the curves of some systems are close, a second picture shows their
  differences.
  """
  systems = [group.name for group in groups]
  curves = {
    name: {
      kind: np.mean([t.curves[kind] for t in tallies[name]], axis=0)
      for kind in _CURVE_NAMES
    }
    for name in systems
  }
  panels = [
    Panel(
      title,
      'K',
      f'{kind}@K',
      [_rank_line(name, curves[name][kind]) for name in systems],
      _TICKS,
      whole=True,
    )
    for kind, title in _CURVE_NAMES.items()
  ]
  picture = Picture(
    svgs=line_panels(panels, systems),
    alt='Precision, recall and R-precision against K. '
    + '; '.join(_at_five(line) for line in panels[2].lines),
    caption=(
      'Means over documents with gold labels, from K = 1 to the depth of the '
      'saved lists. RP@1 equals P@1, and RP@K equals R@K for large K '
      '(Chalkidis et al. 2019, Fig. 2).'
    ),
  )
  return [picture, *_difference_picture(curves)]


def _rank_line(name: str, y: np.ndarray) -> Line:
  return Line(name, np.arange(1, len(y) + 1), y)


def _difference_picture(
  curves: Mapping[str, Mapping[str, np.ndarray]],
) -> list[Block]:
  """Draws differences from the system that is close to the most curves."""
  close_to = {name: _close_to(name, curves) for name in curves}
  first = max(close_to, key=lambda name: sum(map(len, close_to[name].values())))
  panels = [
    Panel(
      f'{_CURVE_NAMES[kind]}: difference',
      'K',
      f'{kind}@K',
      [_rank_line(name, y) for name, y in differences.items()],
      _TICKS,
      level=0,
    )
    for kind, differences in close_to[first].items()
  ]
  if not panels:
    return []
  return [
    Picture(
      svgs=line_panels(panels, list(curves)),
      alt=f'Differences from {first}. '
      + '; '.join(
        f'{panel.ylabel}, {line.system}: at most {np.abs(line.y).max():.4f}'
        for panel in panels
        for line in panel.lines
      ),
      caption=(
        f'Differences from {first}, for curves that differ nowhere by more '
        f'than {_CLOSE}.'
      ),
    )
  ]


def _close_to(
  name: str, curves: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, dict[str, np.ndarray]]:
  """Returns differences of close curves: kind -> other system -> float [K].

  Kinds of curves without close systems are left out.
  """
  close: dict[str, dict[str, np.ndarray]] = {}
  for other, ours in curves.items():
    for kind, y in ours.items():
      base = curves[name][kind]
      depth = min(len(y), len(base))
      difference = y[:depth] - base[:depth]
      if other != name and np.abs(difference).max(initial=0) <= _CLOSE:
        close.setdefault(kind, {})[other] = difference
  return close


def _at_five(line: Line) -> str:
  k = min(5, len(line.y))
  return f'{line.system}: RP@{k} {line.y[k - 1]:.4f}'
