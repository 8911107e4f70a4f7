"""Whole runs of the adaptive head, whose rows are in the order by frequency."""

import dataclasses
import logging

import jax
import numpy as np
import pytest

from xjax.core.mesh import make_mesh
from xjax.models.neural.neural_plan import plan_neural
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.heads.adaptive import AdaptiveConfig, places
from xjax.networks.pooling import MeanConfig
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import read_params
from xjax.train.initial.warm_start import warm_start
from xjax.train.parameters import by_path
from xjax.train.workdir import Workdir


@pytest.fixture(scope='module')
def adaptive(config):
  """Returns a config that compiles fast."""
  head = AdaptiveConfig(chunk=8, cutoffs=(4, 9))
  model = dataclasses.replace(
    config.model, encoder=NoEncoder(), pooling=MeanConfig(), head=head
  )
  return dataclasses.replace(config, model=model)


@pytest.fixture(scope='module')
def run(adaptive, devices, tmp_path_factory):
  with devices(1):
    return fit(adaptive, tmp_path_factory.mktemp('adaptive') / 'run')


def test_places_are_saved_and_stay(run):
  workdir = Workdir.at(run.workdir)
  params = read_params(workdir.checkpoints, run.best_step)
  space = workdir.label_space()
  n = space.n_trained
  wanted = places(space.train_counts[:n])
  np.testing.assert_array_equal(params['head/place'][:n], wanted)
  assert [params[f'head/tails/{i}/rows'].shape[0] for i in range(2)] == [
    5,
    n - 9,
  ]


def test_a_loaded_run_predicts_what_it_predicted(run):
  model = open_run(run.workdir)
  text = 'any words, and more words'
  (found,) = model.predict([text], k=5)
  assert len(found) == 5
  scores = [label.score for label in found]
  assert scores == sorted(scores, reverse=True) and 0 < scores[-1] < 1


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
  for name in ('frequent', 'roots', 'tails/1/rows', 'tails/0/reduce'):
    name = f'head/{name}'
    np.testing.assert_array_equal(after[name], saved[name], err_msg=name)
  # The same labels, of which others are frequent now.
  other = dataclasses.replace(space, train_counts=space.train_counts[::-1])
  after = started(adaptive, run, other)
  for name in ('frequent', 'roots', 'tails/1/rows', 'tails/0/reduce'):
    assert (after[f'head/{name}'] != saved[f'head/{name}']).any(), name
  np.testing.assert_array_equal(
    after['embedding/table'], saved['embedding/table']
  )
  why = 'skipped head/frequent: belongs to labels in another order by frequency'
  assert why in caplog.text
