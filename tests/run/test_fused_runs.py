"""Whole runs whose label rows are changed in the pass over them."""

import dataclasses

import numpy as np
import pytest

from tests.run.small_runs import arrays, assert_resumes, records, with_head
from xjax.losses.softmax import SoftmaxConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.rows.kahan import PLACE
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedAdagrad, FusedSGD
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import read_params
from xjax.train.neural_train import Dtype
from xjax.train.parameters import by_path

STEPS, EVERY = 96, 32
RULES = {
  Storage.FLOAT32: FusedSGD(learning_rate=0.5, weight_decay=1e-3),
  Storage.BFLOAT16: FusedSGD(learning_rate=0.5),
  Storage.COMPENSATED: FusedSGD(learning_rate=0.1, momentum=0.8),
  Storage.FLOAT8: FusedAdagrad(learning_rate=0.1),
}


def by_rows(config, storage, **fields):
  """With a model that compiles fast, and documents for frequent labels."""
  bottleneck = 6 if storage is Storage.FLOAT8 else 0
  head = OneVsAllConfig(chunk=8, storage=storage, bottleneck=bottleneck)
  when = {'steps': STEPS, 'judge_every': EVERY, 'checkpoint_every': EVERY}
  data = dataclasses.replace(config.data, n_train=160)
  config = dataclasses.replace(config, data=data)
  return with_head(config, head, rows=RULES[storage], **when | fields)


@pytest.fixture(scope='module')
def runs(config, tmp_path_factory):
  """storage -> what fit returned; workdirs must not be changed: copy them."""
  found = {}

  def run(storage):
    if storage not in found:
      workdir = tmp_path_factory.mktemp('rows') / 'run'
      found[storage] = fit(by_rows(config, storage), workdir)
    return found[storage]

  return run


def losses(workdir):
  return [r['loss'] for r in records(workdir) if r['kind'] == 'train']


@pytest.mark.parametrize(
  'storage',
  [
    *(Storage.FLOAT32, Storage.FLOAT8),
    pytest.param(Storage.BFLOAT16, marks=pytest.mark.thorough),
    pytest.param(Storage.COMPENSATED, marks=pytest.mark.thorough),
  ],
)
def test_learns(runs, storage):
  run = runs(storage)
  loss = losses(run.workdir)
  assert len(loss) == STEPS
  assert np.mean(loss[-4:]) < 0.8 * np.mean(loss[:4])
  prior, found = (
    x['dev']['xjax']['all']['RP@5'] for x in (run.prior, run.metrics)
  )
  assert found > prior
  # The optimizer has no slots of rows, and rows none but those of their rule.
  slots = arrays(run.workdir, STEPS)
  names = {n.rpartition('/')[2] for n in slots if n.startswith('row_slots/')}
  wanted = {
    Storage.FLOAT32: '',
    Storage.BFLOAT16: '',
    Storage.FLOAT8: 'squares',
  }
  wanted[Storage.COMPENSATED] = 'kernel_momentum bias_momentum place left_out'
  assert names == {*wanted[storage].split()}
  of_rows = ('head/kernel', 'head/bias', 'head/exponent')
  assert not [n for n in slots if n.startswith('0/') and n.endswith(of_rows)]
  assert slots['head/kernel'].dtype == storage.dtype


def test_frequent_labels_keep_what_rounding_leaves_out(runs):
  slots = arrays(runs(Storage.COMPENSATED).workdir, STEPS)
  assert (slots[f'row_slots/{PLACE}'] >= 0).any()
  assert (slots['row_slots/left_out'] != 0).any()
  assert not (slots['row_slots/left_out'] != 0).all()


@pytest.mark.parametrize('storage', [Storage.COMPENSATED, Storage.FLOAT8])
def test_resuming_is_bitwise(config, runs, storage, tmp_path):
  assert_resumes(by_rows(config, storage), runs(storage), tmp_path, EVERY)


def test_what_is_loaded_is_what_was_saved(runs):
  run = runs(Storage.FLOAT8)
  predictor = open_run(run.workdir)
  saved = read_params(run.workdir / 'checkpoints', run.best_step)
  found = by_path(predictor.scorer.params)
  assert found.keys() == saved.keys() >= {'head/kernel', 'head/exponent'}
  for name, param in saved.items():
    np.testing.assert_array_equal(found[name], param, err_msg=name)


@pytest.mark.parametrize(('present', 'used'), [(5, 4), (7, 6)])
def test_loading_leaves_devices_out_that_do_not_divide_rows(
  runs, present, used, devices
):
  run = runs(Storage.FLOAT8)
  with devices(present):
    predictor = open_run(run.workdir)
    kernel = by_path(predictor.scorer.params)['head/kernel']
    assert len(kernel.sharding.device_set) == used
    (found,) = predictor.predict(['a text'], k=1)
  assert len(found) == 1


def test_products_in_bfloat16(config, runs, tmp_path):
  given = by_rows(
    config, Storage.BFLOAT16, compute_dtype=Dtype.BFLOAT16, steps=8
  )
  run = fit(given, tmp_path / 'run')
  expected = losses(runs(Storage.BFLOAT16).workdir)[:8]
  found = losses(run.workdir)
  np.testing.assert_allclose(found, expected, rtol=0.03)
  assert found != expected


def test_rows_may_be_all_that_is_trained(config, tmp_path):
  """Frozen vectors of words, and softmax."""
  train = {'freeze': ('embedding/*',), 'loss': SoftmaxConfig(), 'steps': 8}
  given = by_rows(config, Storage.FLOAT32, **train)
  run = fit(given, tmp_path / 'run')
  loss = losses(run.workdir)
  assert loss[-1] < loss[0]
