"""Commands that are killed, started twice and littered with a user's files."""

import os
import random

import pytest

from tests.faults.attack_runs import FAULTS, KINDS, attacking

pytestmark = pytest.mark.thorough


def test_attacks_leave_no_trace():
  seed = int(os.environ.get('XJAX_KILL_SEED', 0))
  kinds = random.Random(seed).sample(KINDS, len(KINDS))
  with attacking(seed) as attacks:
    for command, kind in zip(attacks.commands, kinds, strict=True):
      attacks.attack(command, kind)
  print(attacks.table())
  assert attacks.counts['all', 'attacks'] == len(KINDS)
  faults = {fault: attacks.counts['all', fault] for fault in FAULTS}
  assert faults == dict.fromkeys(FAULTS, 0)
