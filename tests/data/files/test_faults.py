"""Faults: told together, twenty at most, or left out and counted."""

import logging

import pytest

from tests.fixtures.error_text import error_text
from xjax.data.files.faults import Faults, Grouped
from xjax.data.tokens_config import OnError


def test_every_fault_has_its_line():
  faults = Faults()
  faults.raise_or_log()  # nothing is wrong
  faults.add('a.jsonl', 3, 'broken')
  faults.add('b.jsonl', 1, 'odd', 'empty')
  faults.add('c.jsonl', None, 'absent')
  *lines, last = error_text(faults.raise_or_log).split('\n')
  assert lines == [
    *('a.jsonl:3: broken', 'b.jsonl:1: odd', 'b.jsonl:1: empty'),
    'c.jsonl: absent',
  ]
  assert last.startswith('4 faults in all') and 'on_error=skip' in last


def test_twenty_are_shown_and_the_rest_counted():
  faults = Faults()
  for line in range(1, 124):
    faults.add('a', line, 'x')
  lines = error_text(faults.raise_or_log).split('\n')
  assert lines[19:21] == ['a:20: x', '... and 103 more']
  assert lines[21].startswith('123 faults in all') and len(lines) == 22


def test_skip_goes_on_and_logs_how_many_records_and_faults(caplog):
  faults = Faults(OnError.SKIP)
  faults.add('a', 7, 'x', 'y')
  faults.add('a', 8, 'x')
  faults.add('b', 8, 'x')
  with caplog.at_level(logging.WARNING, logger='absl'):
    faults.raise_or_log()
  assert 'left out 3 records, with 4 faults:\na:7: x' in caplog.text


def test_skip_cannot_go_on_without_a_file():
  faults = Faults(OnError.SKIP)
  faults.add('a', None, 'absent', fatal=True)
  assert error_text(faults.raise_or_log) == 'a: absent'


@pytest.mark.parametrize(
  ('on_error', 'earlier', 'message'),
  [
    (OnError.RAISE, 0, 'a: no label in it'),
    (OnError.SKIP, 0, 'a: no label in it'),
    (OnError.RAISE, 1, 'a:1: x\n1 fault in all'),
    (OnError.SKIP, 1, 'a:1: x\na: every label in it is faulty'),
  ],
)
def test_an_empty_file_is_told_by_its_cause(on_error, earlier, message):
  faults = Faults(on_error)
  for line in range(earlier):
    faults.add('a', line + 1, 'x')
  faults.add_empty('a', 'label', before=0)
  assert error_text(faults.raise_or_log).startswith(message)


def test_grouped_faults_share_a_line(caplog):
  faults = Faults(OnError.SKIP)
  for line in range(1, 101):
    faults.add('a', line, Grouped('unknown x'))
    faults.add('a', line, Grouped(f'unknown {line % 30}'))
  with caplog.at_level(logging.WARNING, logger='absl'):
    assert faults.raise_or_log() == 'left out 100 records, with 200 faults'
  lines = caplog.records[-1].getMessage().splitlines()
  assert lines[:3] == [
    'left out 100 records, with 200 faults:',
    'a:1: unknown x (the first of 100 such faults)',
    'a:1: unknown 1 (the first of 4 such faults)',
  ]
  assert len(lines) == 22 and lines[-1] == '... and 11 more'
