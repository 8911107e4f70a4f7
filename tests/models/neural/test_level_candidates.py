"""Runs by level whose training adds clusters and labels to shortlists."""

import jax
import numpy as np
import pytest

from tests.fixtures.kills import kill_training
from tests.fixtures.shortlist_runs import by_levels
from xjax.core.errors import Preempted
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.batches.candidates import Candidates


@pytest.mark.thorough
@pytest.mark.parametrize(
  ('rule', 'kept'),
  [(Candidates.UNION, 4), (Candidates.GOLD_FIRST_RANDOM, 6)],
)
def test_a_killed_run_has_the_candidates_of_an_uninterrupted_run(
  rule, kept, tmp_path, monkeypatch
):
  def config():
    return by_levels((16,), kept=kept, candidates=rule)

  fit(config(), tmp_path / 'whole')
  with monkeypatch.context() as patch, pytest.raises(Preempted):
    kill_training(patch, 1)
    fit(config(), tmp_path / 'run')
  fit(config(), tmp_path / 'run')
  ours, theirs = (
    open_run(tmp_path / x).scorer.params for x in ('run', 'whole')
  )
  jax.tree.map(np.testing.assert_array_equal, ours, theirs)
