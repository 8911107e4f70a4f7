"""Inputs that are changed at random: read whole, or one clear error."""

import pytest

from tests.faults.attack_inputs import BAD, READ, REFUSED, attacks, table

pytestmark = pytest.mark.thorough


def test_no_changed_input_is_a_traceback_or_silently_cut():
  results = list(attacks(390, seed=1, commands=4))
  verdicts = [verdict for _, _, verdict, _ in results]
  assert not set(verdicts) & set(BAD), table(results)
  assert verdicts.count(READ) > 20 and verdicts.count(REFUSED) > 100
