"""Runs that are killed, started twice and littered with a user's files."""

import os

import pytest

from tests.faults.attack_runs import FAULTS, main

pytestmark = pytest.mark.thorough


def test_attacks_leave_no_trace():
  attacks = main(kills=5, seed=int(os.environ.get('XJAX_KILL_SEED', 0)))
  print(attacks.table())
  assert sum(count['runs'] for count in attacks.counts.values()) == 5
  for count in attacks.counts.values():
    assert {name: count[name] for name in FAULTS} == dict.fromkeys(FAULTS, 0)
