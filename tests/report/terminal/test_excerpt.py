"""Beginnings of texts."""

import pytest

from xjax.report.terminal.fitted import excerpt


@pytest.mark.parametrize(
  ('text', 'expected'),
  [
    ('', ''),
    (' two\n words ', 'two words'),
    ('exactly 10', 'exactly 10'),
    ('eight to ten', 'eight to'),
    ('six or seven', 'six or'),
    ('four toolong', 'four toolo'),
    ('x' * 11, 'x' * 10),
    ('d1: ' + '文' * 30, 'd1: ' + '文' * 6),
  ],
)
def test_ten_columns(text, expected):
  assert excerpt(text, 10) == expected


def test_what_is_left_out_is_shown():
  assert excerpt('some words and more', 14, ' ...') == 'some words ...'
  assert excerpt('unbreakable' * 3, 14, ' ...') == 'unbreakabl ...'
  assert excerpt('all of it', 14, ' ...') == 'all of it'
