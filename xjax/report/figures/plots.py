"""Draws matplotlib figures as SVG text; equal data always give equal text."""

from collections.abc import Mapping, Sequence
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
  labels: Sequence[str] = ()  # a text at each point


@dataclasses.dataclass(frozen=True, eq=False)
class Bars:
  """Holds one system's bars, one per category; NaN for what is missing."""

  system: str
  heights: np.ndarray  # float [n]
  low: np.ndarray  # float [n], lower end of the whisker
  high: np.ndarray  # float [n], upper end

  def __post_init__(self) -> None:
    outside = (self.heights < self.low) | (self.heights > self.high)
    if outside.any():
      height = self.heights[np.argmax(outside)]
      raise ValueError(f'{self.system}: {height} is not within its whiskers')


@dataclasses.dataclass(frozen=True)
class Panel:
  title: str
  xlabel: str
  ylabel: str
  lines: Sequence[Line]
  ticks: Sequence[int] = ()  # numbers on a logarithmic x axis; else linear
  whole: bool = False  # whether the y axis goes from 0 to 1
  from_zero: bool = False  # whether both axes begin at 0


def line_panels(panels: Sequence[Panel], systems: Sequence[str]) -> list[str]:
  """Draws panels as SVG; the order of all systems decides the colours."""
  width = _THIRD if len(panels) > 2 else _HALF
  return [_line_panel(panel, systems, width) for panel in panels]


def _line_panel(panel: Panel, systems: Sequence[str], width: float) -> str:
  with matplotlib.rc_context(_STYLE):
    figure = Figure(figsize=(width, 4.0 if panel.from_zero else 3.5))
    axes = figure.subplots()
    _label(axes, panel.title, panel.xlabel, panel.ylabel)
    for line in panel.lines:
      _draw_line(axes, line, systems, panel.ticks)
    if panel.ticks:
      axes.set_xscale('log')
      axes.xaxis.set_major_locator(FixedLocator(panel.ticks))
      axes.xaxis.set_major_formatter('{x:.0f}')
      axes.xaxis.set_minor_locator(NullLocator())
    elif panel.from_zero:
      axes.margins(0.1)
      axes.set_xlim(left=0)
      axes.set_ylim(bottom=0)
    else:
      axes.xaxis.set_major_locator(
        MaxNLocator(7, integer=True, steps=(1, 2, 5, 10))
      )
    if panel.whole:
      axes.set_ylim(0, 1.02)
    _name_points(axes, panel.lines)
    _legend(figure, axes, systems)
    return _svg_text(figure)


def _name_points(axes: Axes, lines: Sequence[Line]) -> None:
  """Writes a text at each point, unless it would cover another text."""
  placed = np.zeros((0, 2))
  for line in lines:
    for x, y, text in zip(line.x, line.y, line.labels):
      at = axes.transData.transform((x, y))
      if (np.abs(placed - at) > (14, 11)).any(-1).all():
        axes.annotate(
          _literal(text),
          (x, y),
          xytext=(6, 4),
          textcoords='offset points',
          fontsize=8.5,
          color=_INK,
        )
        placed = np.vstack([placed, at])


def grouped_bars(
  categories: Sequence[str],
  bars: Sequence[Bars],
  title: str,
  xlabel: str,
  ylabel: str,
) -> str:
  """Draws the systems' bars side by side in each category; returns SVG text."""
  systems = [group.system for group in bars]
  colours = system_colours(systems)
  width = 0.8 / max(len(bars), 1)
  places = np.arange(len(categories))
  with matplotlib.rc_context(_STYLE):
    figure = Figure(figsize=(_HALF, 4.0))
    axes = figure.subplots()
    _label(axes, title, xlabel, ylabel)
    axes.grid(visible=False, axis='x')
    for i, group in enumerate(bars):
      x = places + (i - (len(bars) - 1) / 2) * width
      colour = colours[group.system]
      axes.bar(
        x, group.heights, 0.92 * width, color=colour, label=_key(group.system)
      )
      _whiskers(axes, x, group)
      if len(bars) <= _NUMBERED:
        _number(axes, x, group)
    axes.set_xticks(places, list(map(_literal, categories)))
    axes.set_xlim(-0.5, len(categories) - 0.5)
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)
    _legend(figure, axes, systems)
    return _svg_text(figure)


def _number(axes: Axes, x: np.ndarray, bars: Bars) -> None:
  """Writes the height above each bar, since bars of height 0 are invisible."""
  for at, height, top in zip(x, bars.heights, np.fmax(bars.heights, bars.high)):
    if np.isfinite(height):
      axes.annotate(
        f'{height:.2f}',
        (at, top),
        xytext=(0, 3),
        textcoords='offset points',
        ha='center',
        fontsize=7.5,
      )


def _whiskers(axes: Axes, x: np.ndarray, bars: Bars) -> None:
  drawn = np.isfinite(bars.low) & np.isfinite(bars.high)
  drawn &= np.isfinite(bars.heights)
  if drawn.any():
    middle = bars.heights[drawn]
    reach = np.stack([middle - bars.low[drawn], bars.high[drawn] - middle])
    axes.errorbar(
      x[drawn],
      middle,
      yerr=reach,
      fmt='none',
      ecolor=_INK,
      elinewidth=1.1,
      capsize=3,
    )


def label_frequency(
  train_counts: np.ndarray, gold_counts: np.ndarray, n_bins: Mapping[str, int]
) -> list[str]:
  """Draws label counts by rank on log axes, and labels per frequency bin."""
  # int [L] each, of training and of judged documents; empty if not known.
  with matplotlib.rc_context(_STYLE):
    figures = [Figure(figsize=(_HALF, 3.5)) for _ in range(2)]
    left, right = (figure.subplots() for figure in figures)
    _label(left, 'Documents per label', 'rank of the label', 'documents')
    left.set_xscale('log')
    left.set_yscale('log')
    if len(train_counts):
      left.plot(*_ranked(train_counts), color=_INK, label='training')
    left.plot(
      *_ranked(gold_counts), color=_FAINT, linestyle='--', label='judged here'
    )
    left.legend()
    _label(right, 'Labels by frequency', 'training documents', 'labels')
    right.grid(visible=False, axis='x')
    names = list(map(_literal, n_bins))
    drawn = right.bar(names, list(n_bins.values()), color='#5d6873')
    right.bar_label(drawn, fmt='{:,.0f}', fontsize=8.5, color=_INK)
    right.margins(y=0.12)
    return list(map(_svg_text, figures))


def _ranked(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def reliability_diagrams(
  diagrams: Mapping[str, Mapping[str, Reliability]], systems: Sequence[str]
) -> list[str]:
  """Draws a diagram per system, with the number of entries in each bin."""
  # `diagrams` maps a system, and then raw or calibrated probabilities.
  colours = system_colours(systems)
  return [
    _reliability(name, kinds, colours[name]) for name, kinds in diagrams.items()
  ]


def _reliability(
  name: str, kinds: Mapping[str, Reliability], colour: str
) -> str:
  with matplotlib.rc_context(_STYLE):
    figure = Figure(figsize=(_THIRD, 4.6))
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    _label(axes, _cut(name), '', 'share correct')
    _label(below, '', 'predicted probability', 'entries')
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
      width = np.diff(diagram.edges) / len(kinds)
      below.bar(
        diagram.edges[:-1] + i * width,
        diagram.counts,
        0.9 * width,
        align='edge',
        color=colour if not i else 'white',
        edgecolor=colour,
      )
    below.set_yscale('log')
    below.set_ylim(bottom=0.8)  # so that one entry is a visible bar
    below.grid(visible=False, axis='x')
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.03)
    axes.legend(loc='best', fontsize=8.5)
    return _svg_text(figure)


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


def _label(axes: Axes, title: str, xlabel: str, ylabel: str) -> None:
  axes.set_title(_literal(title), loc='left')
  axes.set_xlabel(_literal(xlabel))
  axes.set_ylabel(_literal(ylabel))


def _legend(figure: Figure, axes: Axes, systems: Sequence[str]) -> None:
  handles = dict(zip(*reversed(axes.get_legend_handles_labels())))
  shown = [name for name in systems if _key(name) in handles]
  names = [_cut(name) for name in shown]
  room = int(_ROOM * figure.get_figwidth())
  n_fitting = room // (max(map(len, names), default=1) + 6)
  figure.legend(
    [handles[_key(name)] for name in shown],
    # matplotlib would leave out a name that starts with `_`.
    [' ' * name.startswith('_') + _literal(name) for name in names],
    loc='outside upper left',
    ncols=min(max(n_fitting, 1), 6),
  )


def _key(system: str) -> str:
  """Returns a label that does not start with _, as legends leave such out."""
  return f'system {system}'


def _literal(text: str) -> str:
  """Returns a text that matplotlib shows as it is, not as a formula."""
  return text.replace('$', r'\$')


def _cut(name: str) -> str:
  return name if len(name) <= _LONGEST else f'{name[: _LONGEST - 3]}...'


def _svg_text(figure: Figure) -> str:
  buffer = io.StringIO()
  no_metadata = dict.fromkeys(('Creator', 'Date', 'Format', 'Type'))
  figure.savefig(buffer, format='svg', metadata=no_metadata)
  return buffer.getvalue()
