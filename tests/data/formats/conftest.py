"""A corpus of one's own, and the log."""

import logging

import pytest

from tests.fixtures.own_corpus import write_csv


@pytest.fixture
def news(tmp_path):
  """A function that writes rows to news.csv, and returns its path."""

  def write(rows):
    write_csv(tmp_path / 'news.csv', rows)
    return tmp_path / 'news.csv'

  return write


@pytest.fixture
def logged(caplog):
  caplog.set_level(logging.INFO, logger='absl')
  return caplog
