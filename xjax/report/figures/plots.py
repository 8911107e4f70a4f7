"""Draws matplotlib figures as SVG text; equal data always give equal text."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import io

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
import numpy as np

from xjax.judge.judge import ECE, ECE_ABOVE
from xjax.judge.metrics.calibration_error import Reliability

# Okabe and Ito's colours, which colour-blind readers can tell apart. The yellow
# is left out, because it is too light for lines.
PALETTE = (
  '#0072b2',
  '#d55e00',
  '#009e73',
  '#cc79a7',
  '#e69f00',
  '#56b4e9',
  '#4d4d4d',
)
_MARKERS = 'osD^vPX'
_DASHES = ('-', '--', '-.', ':')
_INK, _FAINT = '#1b1f24', '#8a939c'
_LONGEST = 40  # maximum number of characters of a name on a picture
_ROOM = 9  # number of characters of names that fit on an inch of a legend
_NUMBERED = 3  # if a category has more bars, their numbers would overlap
# Widths in inches, so that two or three pictures fit on a page side by side.
# One of them also fits on a telephone.
_HALF, _THIRD = 6.1, 4.0
_STYLE = {
  'svg.hashsalt': 'xjax',  # otherwise ids in the SVG differ between runs
  'svg.fonttype': 'path',
  'font.family': 'DejaVu Sans',  # matplotlib includes this font
  'font.size': 9.5,
  'axes.titlesize': 10.5,
  'axes.edgecolor': _FAINT,
  'axes.facecolor': 'none',  # the page shows through, which may be dark
  'figure.facecolor': 'none',
  'axes.labelcolor': _INK,
  'axes.spines.top': False,
  'axes.spines.right': False,
  'axes.grid': True,
  'axes.axisbelow': True,
  'grid.color': '#dce1e6',
  'legend.frameon': False,
  'xtick.color': '#4d5660',
  'ytick.color': '#4d5660',
  'lines.linewidth': 1.8,
  'figure.constrained_layout.use': True,
}


def system_colours(names: Sequence[str]) -> dict[str, str]:
  """Returns the colour of each system, which all pictures of a report share."""
  return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
  system: str
  x: np.ndarray  # float [n]
  y: np.ndarray  # float [n]; NaN breaks the line


@dataclasses.dataclass(frozen=True, eq=False)
class Bars:
  """Holds one system's bars, one per category; NaN for what is missing."""

  system: str
  heights: np.ndarray  # float [n]
  low: np.ndarray  # float [n], lower end of the whisker
  high: np.ndarray  # float [n], upper end


@contextlib.contextmanager
def _drawing(
  title: str, xlabel: str, ylabel: str, size: tuple[float, float]
) -> Iterator[Axes]:
  with matplotlib.rc_context(_STYLE):
    axes = Figure(figsize=size).subplots()
    axes.set_title(_literal(title), loc='left')
    axes.set_xlabel(_literal(xlabel))
    axes.set_ylabel(_literal(ylabel))
    yield axes


def line_plot(
  title: str,
  xlabel: str,
  ylabel: str,
  lines: Sequence[Line],
  systems: Sequence[str],
  ticks: Sequence[int] = (),
) -> str:
  """Draws lines as SVG; the order of all systems decides the colours.

  With `ticks`, numbers on a logarithmic x axis, the picture is narrow, and its
  y axis goes from 0 to 1.
  """
  size = (_THIRD if ticks else _HALF), 3.5
  with _drawing(title, xlabel, ylabel, size) as axes:
    for line in lines:
      _draw_line(axes, line, systems, ticks)
    if ticks:
      axes.set_xscale('log')
      axes.xaxis.set_major_locator(FixedLocator(ticks))
      axes.xaxis.set_major_formatter('{x:.0f}')
      axes.xaxis.set_minor_locator(NullLocator())
      axes.set_ylim(0, 1.02)
    else:
      axes.xaxis.set_major_locator(
        MaxNLocator(7, integer=True, steps=(1, 2, 5, 10))
      )
    return _with_legend(axes)


def grouped_bars(
  title: str,
  xlabel: str,
  ylabel: str,
  categories: Sequence[str],
  bars: Sequence[Bars],
) -> str:
  """Draws the systems' bars side by side in each category; returns SVG text."""
  colours = system_colours([group.system for group in bars])
  width = 0.8 / max(len(bars), 1)
  places = np.arange(len(categories))
  with _drawing(title, xlabel, ylabel, (_HALF, 4.0)) as axes:
    axes.grid(visible=False, axis='x')
    for i, group in enumerate(bars):
      x, y = places + (i - (len(bars) - 1) / 2) * width, group.heights
      drawn = axes.bar(
        x,
        y,
        0.92 * width,
        color=colours[group.system],
        label=_key(group.system),
        yerr=np.stack([y - group.low, group.high - y]),
        error_kw={'ecolor': _INK, 'elinewidth': 1.1, 'capsize': 3},
      )
      if len(bars) <= _NUMBERED:  # a bar of height 0 is invisible
        numbers = ['' if np.isnan(height) else f'{height:.2f}' for height in y]
        axes.bar_label(drawn, numbers, padding=2, fontsize=8, color=_INK)
    axes.set_xticks(places, list(map(_literal, categories)))
    axes.set_xlim(-0.5, len(categories) - 0.5)
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)
    return _with_legend(axes)


def label_frequency(
  train_counts: np.ndarray, gold_counts: np.ndarray, n_bins: Mapping[str, int]
) -> list[str]:
  """Draws label counts by rank on log axes, and labels per frequency bin."""
  # int [L] each, of training and of judged documents; empty if not known.
  texts = 'Documents per label', 'rank of the label', 'documents'
  with _drawing(*texts, (_HALF, 3.5)) as axes:
    axes.set_xscale('log')
    axes.set_yscale('log')
    if len(train_counts):
      axes.plot(*ranked(train_counts), color=_INK, label='training')
    axes.plot(
      *ranked(gold_counts), color=_FAINT, linestyle='--', label='judged here'
    )
    axes.legend()
    svg = _svg_text(axes)
  texts = 'Labels by frequency', 'training documents', 'labels'
  with _drawing(*texts, (_HALF, 3.5)) as axes:
    axes.grid(visible=False, axis='x')
    names = list(map(_literal, n_bins))
    drawn = axes.bar(names, list(n_bins.values()), color='#5d6873')
    axes.bar_label(drawn, fmt='{:,.0f}', fontsize=8.5, color=_INK)
    axes.margins(y=0.12)
    return [svg, _svg_text(axes)]


def ranked(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns up to 400 ranks, evenly spaced on a log axis, and their counts."""
  falling = np.sort(counts[counts > 0])[::-1]
  ranks = np.geomspace(1, max(len(falling), 1), 400).round().astype(np.int64)
  ranks = np.unique(ranks[ranks <= len(falling)])
  return ranks, falling[ranks - 1]


def error_text(diagram: Reliability) -> str:
  """Returns the errors of a diagram, such as `0.0031, ECE[>0.1] 0.0212`."""
  if diagram.ece_above is None:
    return f'{diagram.ece:.4f}'
  return f'{diagram.ece:.4f}, {ECE_ABOVE} {diagram.ece_above:.4f}'


def reliability_diagram(
  system: str, kinds: Mapping[str, Reliability], colour: str
) -> str:
  """Draws the share of right entries by raw and calibrated probability."""
  texts = _cut(system), 'predicted probability', 'share correct'
  with _drawing(*texts, (_THIRD, 4.0)) as axes:
    axes.plot([0, 1], [0, 1], color=_FAINT, linewidth=1, linestyle=':')
    for i, (kind, diagram) in enumerate(kinds.items()):
      filled = diagram.counts > 0
      axes.plot(
        diagram.confidence[filled],
        diagram.accuracy[filled],
        color=colour,
        linestyle=_DASHES[i % 4],
        marker=_MARKERS[i % len(_MARKERS)],
        markersize=4.5,
        markerfacecolor='white' if i else None,
        # The panel is too narrow for both errors on one line.
        label=f'{kind}: {ECE} {error_text(diagram)}'.replace(', ', '\n'),
      )
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.03)
    axes.legend(loc='best', fontsize=8.5)
    return _svg_text(axes)


def _draw_line(
  axes: Axes, line: Line, systems: Sequence[str], marked: Sequence[int] = ()
) -> None:
  """Draws a line with a marker at each x of `marked`, or about 10 markers."""
  place = list(systems).index(line.system)
  points = np.isfinite(line.x) & np.isfinite(line.y)
  every = np.flatnonzero(np.isin(line.x, marked)).tolist()
  axes.plot(
    line.x,
    line.y,
    color=system_colours(systems)[line.system],
    linestyle=_DASHES[place // len(PALETTE) % len(_DASHES)],
    marker=_MARKERS[place % len(_MARKERS)],
    markersize=4.5,
    markevery=every or max(1, int(points.sum()) // 10),
    label=_key(line.system),
  )


def _with_legend(axes: Axes) -> str:
  """Returns SVG text; a system with several lines has one key."""
  handles = dict(zip(*reversed(axes.get_legend_handles_labels())))
  room, names = int(_ROOM * axes.figure.get_figwidth()), [*map(_cut, handles)]
  n_fitting = room // (max(map(len, names), default=1) + 6)
  axes.figure.legend(
    handles.values(),
    [*map(_literal, names)],
    loc='outside upper left',
    ncols=min(max(n_fitting, 1), 6),
  )
  return _svg_text(axes)


def _key(system: str) -> str:
  """Returns the name of a system in a legend."""
  return f' {system}'  # a legend would leave out a leading _


def _literal(text: str) -> str:
  """Returns a text that matplotlib shows as it is, not as a formula."""
  return text.replace('$', r'\$')


def _cut(name: str) -> str:
  return name if len(name) <= _LONGEST else f'{name[: _LONGEST - 3]}...'


def _svg_text(axes: Axes) -> str:
  buffer = io.StringIO()
  no_metadata = dict.fromkeys(('Creator', 'Date', 'Format', 'Type'))
  axes.figure.savefig(buffer, format='svg', metadata=no_metadata)
  return buffer.getvalue()
