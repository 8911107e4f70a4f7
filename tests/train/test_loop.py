"""The loop with a step of its own: order, stopping, what survives."""

import dataclasses
import functools
import gzip
import json
import logging
import math
import os
import signal

from flax import nnx
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from xjax.core.errors import Interrupted, UserError
from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import PAD
from xjax.networks.batch import TokenBatch
from xjax.train.checkpoint import Checkpoints, read_params
from xjax.train.loop import Loop, Position
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer_config import EMAConfig
from xjax.train.preemption import Preempted, Preemption
from xjax.train.saved_steps import intact_steps, read_meta
from xjax.train.state import plan_state
from xjax.train.step import StepMetrics
from xjax.train.writers import MetricWriter, Profile, TrainingProgress

CONFIG = NeuralTrain(
  steps=12, log_every=2, judge_every=4, checkpoint_every=3, best_metric='all/m'
)


class Weight(nnx.Module):
  def __init__(self, rngs):
    self.w = nnx.Param(jnp.zeros(3))


@pytest.fixture(scope='module')
def n_devices():
  return 8


@pytest.fixture(scope='module')
def mesh():
  return make_mesh(MeshConfig(data=8))


@pytest.fixture(scope='module')
def plan(mesh):
  return plan_state(Weight, optax.sgd(1.0), mesh)


def batch(index):
  rows = np.arange(8, dtype=np.int32)
  return TokenBatch(
    tokens_BT=np.full((8, 2), index, np.int32),
    lengths_B=np.full(8, 2, np.int32),
    positives_BP=np.full((8, 4), PAD, np.int32),
    mask_B=rows < 6,
    doc_B=np.where(rows < 6, rows, PAD),
  )


class Run:
  """Starts the loop in a workdir as a run does; what it met is kept.

  The loss of step n is 1 / n, dev's metric is values[n], and of the mean of
  parameters, where there is one, means[n].
  """

  def __init__(self, workdir, mesh, plan, advance):
    self.workdir, self.mesh = workdir, mesh
    self.plan, self.advance = plan, advance
    self.judged, self.batches = [], []

  def step(self, state, placed, key):
    assert key.sharding.is_fully_replicated and placed.doc_B.committed
    state = self.advance(state)
    with jax.transfer_guard('allow'):  # this is no jitted step
      self.batches.append(int(placed.tokens_BT[0, 0]))
      number = len(self.batches) + self.first
      loss = self.losses.get(number, 1 / number)
      return state, StepMetrics(jnp.float32(loss), jnp.float32(number))

  def judge(self, params, between):
    step = int(params['w'][0])
    if step < 0:  # the mean
      between()
      return {'all': {'m': self.means[-step]}}
    if step == self.interrupt_judging_at:
      os.kill(os.getpid(), signal.SIGTERM)
    between()
    self.judged.append(step)
    return {'all': {'m': self.values.get(step, 0.0)}}

  def __call__(
    self,
    config=CONFIG,
    values=(),
    means=(),
    losses=(),
    dev=True,
    sigterm_at=None,
    interrupt_judging_at=None,
    profile=None,
    asked_by=signal.SIGTERM,
  ):
    self.values, self.means = dict(values), dict(means)
    self.losses = dict(losses)
    self.interrupt_judging_at = interrupt_judging_at
    self.judged, self.batches = [], []
    iterator = iter(grain.MapDataset.range(1000).map(batch).to_iter_dataset())
    with (
      Preemption() as preemption,
      preemption.deferred(),
      Checkpoints(self.workdir / 'checkpoints', config.keep) as checkpoints,
    ):
      if checkpoints.steps:
        state, meta = checkpoints.restore(
          checkpoints.steps[-1], self.plan.abstract, iterator
        )
        at = Position(**meta)
      else:
        with jax.set_mesh(self.mesh):
          state, at = self.plan.init(jax.random.key(0)), Position()
      self.first = at.step

      def step(*arguments):
        result = self.step(*arguments)
        if len(self.batches) + self.first == sigterm_at:
          os.kill(os.getpid(), asked_by)
        return result

      with (
        MetricWriter(self.workdir, at.step, at.judged) as writer,
        TrainingProgress(at.step, config.steps) as progress,
        Profile(self.workdir / 'profile', profile) as profiled,
      ):
        loop = Loop(
          config=config,
          train_step=step,
          mesh=self.mesh,
          key=jax.random.key(0),
          schedule=optax.constant_schedule(0.1),
          describe=lambda step, doc_B: f'step {step} had {doc_B.tolist()}',
          judge=self.judge if dev else None,
          checkpoints=checkpoints,
          writer=writer,
          progress=progress,
          profile=profiled,
          preemption=preemption,
        )
        return loop.run(state, iterator, at)[1]

  def records(self, kind):
    lines = (self.workdir / 'metrics.jsonl').read_text().splitlines()
    return [row for row in map(json.loads, lines) if row['kind'] == kind]

  @property
  def steps(self):
    return intact_steps(self.workdir / 'checkpoints')


@pytest.fixture
def run(tmp_path, mesh, plan, advance):
  return Run(tmp_path, mesh, plan, advance)


def test_log_lines_are_means_since_the_last(run):
  at = run()
  rows = run.records('train')
  assert [row['step'] for row in rows] == [2, 4, 6, 8, 10, 12]
  np.testing.assert_allclose(rows[1]['loss'], (1 / 3 + 1 / 4) / 2, rtol=1e-6)
  assert rows[0]['learning_rate'] == pytest.approx(0.1)
  # The norm is that of the logged step. Memory is in bytes.
  assert [row['grad_norm'] for row in rows] == [2, 4, 6, 8, 10, 12]
  assert all(row['peak_memory'] > 10_000_000 for row in rows)
  assert all(row['documents_per_second'] > 0 for row in rows)
  assert run.batches == list(range(12))
  assert at.step == 12 and (at.loss_sum, at.loss_count) == (0.0, 0)


def test_a_step_that_copies_what_was_not_put_is_refused(run):
  at = run()
  assert at.step == 12
  advance = run.advance
  run.advance = lambda state: advance(
    jax.tree.map(lambda x: x + np.ones((), x.dtype), state)
  )
  with pytest.raises(Exception, match='Disallowed host-to-device transfer'):
    run(dataclasses.replace(CONFIG, steps=13))


def test_steps_are_profiled_until_a_signal(run, caplog):
  caplog.set_level(logging.INFO)
  with pytest.raises(Preempted):
    run(profile=(5, 7), sigterm_at=6)
  (trace,) = (run.workdir / 'profile').rglob('*.trace.json.gz')
  events = json.loads(gzip.decompress(trace.read_bytes()))['traceEvents']
  names = [
    int(event['args']['step_num'])
    for event in events
    if event.get('name') == 'train'
  ]
  assert sorted(names) == [5, 6]
  assert f'profile of the steps: {run.workdir}/profile' in caplog.text


def test_best_and_regular_checkpoints(run):
  at = run(values={4: 0.3, 8: 0.7, 12: 0.5})
  assert run.judged == [4, 8, 12]
  assert (at.best_step, at.best_value, at.misses) == (8, 0.7, 1)
  # keep=3 newest of 3, 4, 6, 8, 9, 12, and the best.
  assert run.steps == [8, 9, 12]
  judged = [r['metrics']['all']['m'] for r in run.records('judge')]
  assert judged == [0.3, 0.7, 0.5]


def test_patience(run):
  config = dataclasses.replace(CONFIG, patience=2, steps=40)
  at = run(config, values={4: 0.3, 8: 0.1 + 0.2, 12: 0.2, 16: 0.9})
  assert (at.step, at.stopped, at.best_step) == (12, True, 4)
  assert read_meta(run.workdir / 'checkpoints', 12)['stopped']
  # Started again it stays stopped, at whatever number of steps.
  assert run(dataclasses.replace(config, steps=80)) == at
  assert run.batches == []


def test_more_steps_go_on_and_judge_where_they_ended(run):
  run(dataclasses.replace(CONFIG, steps=10))
  assert run.judged == [4, 8, 10]
  assert run().step == 12
  assert run.batches == [10, 11] and run.judged == [12]
  assert run() == run() and run.batches == []


def test_without_dev_nothing_is_judged(run):
  at = run(dev=False)
  assert run.judged == [] and at.best_step is None
  assert run.steps == [6, 9, 12]


def test_a_loss_that_is_not_finite_stops(run):
  with pytest.raises(UserError) as error:
    run(losses={7: math.inf})
  message = str(error.value)
  assert 'stopped at step 7' in message
  assert 'step 7 had [0, 1, 2, 3, 4, 5, -1, -1]' in message
  # No state after it was saved, no record of it written.
  assert max(run.steps) == 6
  assert max(r['step'] for r in run.records('train')) == 6


def test_a_signal_between_checkpoints_loses_nothing(run):
  with pytest.raises(Interrupted, match='saved step 7; start the run again'):
    run(sigterm_at=7, asked_by=signal.SIGINT)
  assert run.steps[-1] == 7
  at = run(values={8: 0.4})
  assert run.batches == [7, 8, 9, 10, 11]
  assert at.best_step == 8
  rows = run.records('train')
  assert [row['step'] for row in rows] == [2, 4, 6, 8, 10, 12]
  np.testing.assert_allclose(rows[3]['loss'], (1 / 7 + 1 / 8) / 2, rtol=1e-6)


@pytest.mark.parametrize(
  'asked', [{'sigterm_at': 8}, {'interrupt_judging_at': 8}]
)
def test_sigterm_before_a_judging_is_done(run, asked):
  with pytest.raises(Preempted):
    run(values={4: 0.1, 8: 0.9}, **asked)
  assert run.judged == [4] and run.steps[-1] == 8
  at = run(values={8: 0.9})
  assert run.judged == [8, 12]
  assert at.best_step == 8
  assert read_meta(run.workdir / 'checkpoints', 8)['best_step'] == 8
  assert [r['step'] for r in run.records('judge')] == [4, 8, 12]


def test_a_judging_that_was_not_saved_is_recorded_once(run):
  with pytest.raises(Preempted):
    run(values={4: 0.9}, sigterm_at=8)
  # It is judged, is not the best, and is lost before a checkpoint tells so.
  with pytest.raises(UserError):
    run(losses={9: math.nan})
  assert run.judged == [8] and run.steps[-1] == 8
  run()
  assert run.judged == [8, 12]
  assert [r['step'] for r in run.records('judge')] == [4, 8, 12]


@pytest.fixture
def averaged_run(tmp_path, mesh):
  """Parameters of step n are n, and their mean is -n."""
  plan = plan_state(Weight, optax.sgd(1.0), mesh, average=EMAConfig(start=4))

  @functools.partial(jax.jit, donate_argnums=0, out_shardings=plan.shardings)
  def advance(state):
    means = jax.tree.map(lambda x: x - 1, state.averages)
    state = jax.tree.map(lambda x: x + 1, state)
    return dataclasses.replace(state, averages=means)

  return Run(tmp_path, mesh, plan, advance)


AVERAGED = dataclasses.replace(CONFIG, average=EMAConfig(start=4))


def test_the_mean_is_judged_beside_and_chosen_by(averaged_run, caplog):
  caplog.set_level(logging.INFO)
  values, means = {4: 0.5, 8: 0.8, 12: 0.1}, {8: 0.25, 12: 0.75}
  at = averaged_run(AVERAGED, values=values, means=means)
  assert (at.best_step, at.best_value, at.misses) == (12, 0.75, 0)
  rows = averaged_run.records('judge')
  found = [
    {name: row[name]['all']['m'] for name in row if name.endswith('metrics')}
    for row in rows
  ]
  assert found == [
    {'metrics': 0.5},  # up to its start the mean is the parameters
    {'metrics': 0.25, 'raw_metrics': 0.8},
    {'metrics': 0.75, 'raw_metrics': 0.1},
  ]
  assert (
    'all/m 0.7500 of averaged weights (0.1000 of raw weights)' in caplog.text
  )
  saved = read_params(averaged_run.workdir / 'checkpoints', 12)
  np.testing.assert_array_equal(saved['w'], -12)


def test_sigterm_before_the_raw_weights_are_judged(averaged_run):
  given = {'values': {4: 0.1, 8: 0.9}, 'means': {8: 0.7, 12: 0.2}}
  with pytest.raises(Preempted):
    averaged_run(AVERAGED, interrupt_judging_at=8, **given)
  at = averaged_run(AVERAGED, **given)
  assert at.best_step == 8
  assert [r['step'] for r in averaged_run.records('judge')] == [4, 8, 12]
