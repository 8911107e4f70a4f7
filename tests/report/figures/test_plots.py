"""Tests that plots show their data and are the same every time."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from tests.report.conftest import luminance
from xjax.judge.metrics.calibration_error import reliability
from xjax.report.figures.plots import (
  PALETTE,
  Bars,
  Line,
  Panel,
  grouped_bars,
  label_frequency,
  line_panels,
  reliability_diagrams,
  system_colours,
)

NAN = np.nan


def ramp(name, *y, labels=()):
  return Line(name, np.arange(1.0, len(y) + 1), np.asarray(y, float), labels)


def pictures():
  lines = [ramp('a', 0.5, NAN, 0.2), ramp('b', 0.1, 0.2, 0.3)]
  panel = Panel('title', 'step', 'loss', lines, whole=True)
  named = [ramp('a', 0.5, 0.1, labels=('1', '5'))]
  bars = [
    Bars('a', np.array([0.5, NAN]), np.array([0.4, NAN]), np.array([0.7, NAN])),
    Bars('b', np.array([0.1, 0.2]), np.full(2, NAN), np.full(2, NAN)),
  ]
  diagram = reliability(np.array([0.2, 0.9]), np.array([False, True]))
  counts = np.array([100, 9, 1, 0])
  return {
    'lines': line_panels([panel, panel], ['a', 'b'])[1],
    'scatter': line_panels(
      [Panel('', 'P', 'coverage', named, from_zero=True)], ['a']
    )[0],
    'bars': grouped_bars(['few', 'many'], bars, 'F1', 'documents', 'F1'),
    'frequency': label_frequency(counts, counts[:3], {'0': 1, '1-9': 2})[0],
    'untrained': label_frequency(np.zeros(0), counts, {'0': 1})[1],
    'reliability': reliability_diagrams(
      {f's{i}': {'scores': diagram, 'calibrated': diagram} for i in range(5)},
      [f's{i}' for i in range(5)],
    )[4],
  }


@pytest.fixture(scope='module')
def drawn():
  return pictures()


def test_the_same_every_time(drawn):
  assert pictures() == drawn
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


def test_places_are_marked_where_papers_report():
  lines = [ramp('a', *np.linspace(1, 0.1, 50))]
  ticks = 1, 3, 5, 10, 20, 50
  (svg,) = line_panels([Panel('', 'K', 'P@K', lines, ticks)], ['a'])
  assert [t for t in texts(svg) if t.isdigit()] == list(map(str, ticks))
  shorter = [ramp('a', *np.linspace(1, 0.1, 12))]
  (svg,) = line_panels([Panel('', 'K', 'P@K', shorter, ticks)], ['a'])
  assert [t for t in texts(svg) if t.isdigit()] == ['1', '3', '5', '10']


def test_every_system_has_its_colour(drawn):
  colours = system_colours(['a', 'b'])
  for name in ('lines', 'bars'):
    assert all(colour in drawn[name] for colour in colours.values())
  assert colours['b'] not in drawn['scatter']
  names = [f's{i}' for i in range(9)]
  assert list(system_colours(names).values()) == [*PALETTE, *PALETTE[:2]]


@pytest.mark.parametrize('name', ['_old', 'cost $', '$x^2$', r'$\frac{$', '__'])
def test_any_name_is_shown_as_it_is(name):
  lines = [ramp(name, 0.5, 0.1, labels=(name, 'b')), ramp('b', 0.1, 0.2)]
  one, panel = np.array([0.5]), Panel(name, name, name, lines)
  for svg in (
    *line_panels([panel], [name, 'b']),
    grouped_bars([name], [Bars(name, one, one, one)], name, 'x', 'y'),
  ):
    assert texts(svg).count(name) >= 3
    assert 'Oblique' not in svg  # letters of formulas are oblique


def contrast(colour):
  """Returns the contrast of a colour to white."""
  return 1.05 / (luminance(*bytes.fromhex(colour[1:])) + 0.05)


def test_colours_can_be_seen():
  assert min(map(contrast, PALETTE)) > 2
  assert len(set(PALETTE)) == len(PALETTE)


def test_many_labels_are_few_points():
  counts = np.random.default_rng(0).zipf(1.3, 300_000)
  svg, _ = label_frequency(counts, counts, {'0': 1})
  assert len(svg) < 200_000


@pytest.mark.parametrize(('low', 'high'), [(0.6, 0.7), (0.3, 0.4)])
def test_whiskers_have_the_value(low, high):
  with pytest.raises(ValueError, match='a: 0.5 is not within its whiskers'):
    Bars('a', np.array([0.5]), np.array([low]), np.array([high]))
  Bars('a', np.array([NAN]), np.array([low]), np.array([high]))
