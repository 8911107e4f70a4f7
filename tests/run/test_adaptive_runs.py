"""Whole runs of the adaptive head, whose rows are in the order by frequency."""

import dataclasses
import logging

import jax
import numpy as np
import pytest

from tests.run.small_runs import assert_predicts_what_was_judged, with_head
from xjax.core.mesh import make_mesh
from xjax.models.neural.neural_plan import plan_neural
from xjax.networks.heads.adaptive import AdaptiveConfig, places
from xjax.run.fit import fit
from xjax.train.checkpoint import read_params
from xjax.train.initial.warm_start import warm_start
from xjax.train.parameters import by_path
from xjax.train.workdir import Workdir


@pytest.fixture(scope='module')
def adaptive(config):
  return with_head(config, AdaptiveConfig(chunk=8, cutoffs=(4, 9)))


@pytest.fixture(scope='module')
def run(adaptive, tmp_path_factory):
  return fit(adaptive, tmp_path_factory.mktemp('adaptive') / 'run')


def test_places_are_saved_and_stay(run):
  workdir = Workdir.at(run.workdir)
  params = read_params(workdir.checkpoints, run.best_step)
  space = workdir.label_space()
  n = space.n_trained
  wanted = places(space.train_counts[:n])
  np.testing.assert_array_equal(params['head/place'][:n], wanted)
  for i, size in enumerate((5, n - 9)):
    assert params[f'head/tails/{i}/rows'].shape[0] == size


def test_a_loaded_run_predicts_what_was_judged(run):
  assert_predicts_what_was_judged(run)


def started(config, run, space):
  """Returns the first parameters of a run that starts from another run."""
  vocab = Workdir.at(run.workdir).vocabulary()
  mesh = make_mesh(config.mesh)
  with jax.set_mesh(mesh):
    plan = plan_neural(config, space, len(vocab), mesh)
    state = plan.init(jax.random.key(9))
  state, _ = warm_start(state, str(run.workdir), space, vocab)
  return jax.tree.map(np.array, by_path(state.params))


def test_rows_are_taken_only_of_labels_in_the_same_order(adaptive, run, caplog):
  caplog.set_level(logging.INFO)
  workdir = Workdir.at(run.workdir)
  space = workdir.label_space()
  saved = read_params(workdir.checkpoints, run.best_step)
  after = started(adaptive, run, space)
  parts = 'frequent', 'roots', 'tails/1/rows', 'tails/0/reduce'
  names = [f'head/{part}' for part in parts]
  for name in names:
    np.testing.assert_array_equal(after[name], saved[name], err_msg=name)
  # The same labels, of which others are frequent now.
  other = dataclasses.replace(space, train_counts=space.train_counts[::-1])
  after = started(adaptive, run, other)
  for name in names:
    assert (after[name] != saved[name]).any(), name
  table = 'embedding/table'
  np.testing.assert_array_equal(after[table], saved[table])
  why = 'skipped head/frequent: belongs to labels in another order by frequency'
  assert why in caplog.text
