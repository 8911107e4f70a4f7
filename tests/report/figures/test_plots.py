"""Tests that plots show their data and are the same every time."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from xjax.judge.metrics.calibration_error import reliability
from xjax.report.figures.plots import (
  PALETTE,
  Bars,
  Line,
  grouped_bars,
  label_frequency,
  line_plot,
  ranked,
  reliability_diagram,
  system_colours,
)

NAN = np.nan


def ramp(name, *y):
  return Line(name, np.arange(1.0, len(y) + 1), np.asarray(y, float))


def one_line():
  return line_plot('', 'P', 'C', [ramp('a', 0.5, 0.1)], ['a'])


@pytest.fixture(scope='module')
def drawn():
  lines = [ramp('a', 0.5, NAN, 0.2), ramp('b', 0.1, 0.2, 0.3)]
  bars = [
    Bars('a', np.array([0.5, NAN]), np.array([0.4, NAN]), np.array([0.7, NAN])),
    Bars('b', np.array([0.1, 0.2]), np.full(2, NAN), np.full(2, NAN)),
  ]
  diagram = reliability(np.array([0.2, 0.9]), np.array([False, True]))
  counts = np.array([100, 9, 1, 0])
  return {
    'lines': line_plot('title', 'step', 'loss', lines, ['a', 'b']),
    'one line': one_line(),
    'bars': grouped_bars('F1', 'documents', 'F1', ['few', 'many'], bars),
    'frequency': label_frequency(counts, counts[:3], {'0': 1, '1-9': 2})[0],
    'untrained': label_frequency(np.zeros(0), counts, {'0': 1})[1],
    'reliability': reliability_diagram(
      's', {'scores': diagram, 'calibrated': diagram}, 'red'
    ),
  }


def test_the_same_every_time(drawn):
  assert one_line() == drawn['one line']
  assert not any('date' in svg for svg in drawn.values())


def test_pictures_are_whole_and_need_nothing(drawn):
  for svg in drawn.values():
    ElementTree.fromstring(svg)
    links = re.findall(r'href="([^"]*)"', svg)
    assert links and all(link.startswith('#') for link in links)
    # Glyphs are drawn as shapes, so that no font is needed.
    assert '<text' not in svg


def texts(svg):
  """Returns the texts of a picture, which comments name."""
  return [text.strip() for text in re.findall('<!--(.*)-->', svg)]


def test_every_system_has_its_colour(drawn):
  colours = system_colours(['a', 'b'])
  for name in ('lines', 'bars'):
    assert all(colour in drawn[name] for colour in colours.values())
  assert colours['b'] not in drawn['one line']
  names = [f's{i}' for i in range(9)]
  assert list(system_colours(names).values()) == [*PALETTE, *PALETTE[:2]]


@pytest.mark.parametrize('name', ['_old', r'$\frac{$'])
def test_any_name_is_shown_as_it_is(name):
  lines = [ramp(name, 0.5, 0.1), ramp(name, 0.1, 0.2)]
  svg = line_plot(name, name, name, lines, [name])
  # Title, axes, and one key for both lines.
  assert texts(svg).count(name) == 4
  assert 'Oblique' not in svg  # letters of formulas are oblique


def test_many_labels_are_few_points():
  counts = np.random.default_rng(0).zipf(1.3, 300_000)
  ranks, _ = ranked(counts)
  assert len(ranks) < 400 and ranks[-1] == len(counts)
