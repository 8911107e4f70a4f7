"""Tests the advice for runs that do not fit, as a user would type it."""

import copy
import dataclasses
import functools
import re

import pytest

from tests.plan import test_plan
from xjax.models.config_check import check_config
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedSGD
from xjax.plan import advice as plan_advice
from xjax.plan.advice import Advice, advice
from xjax.plan.chips import CHIPS
from xjax.plan.plan import Planner
from xjax.plan.sizes import assumed_sizes
from xjax.report.terminal.plan_lines import plan_text
from xjax.train.neural_train import Dtype, NeuralTrain
from xjax.train.optimizer_config import EMAConfig, NoAverage


def one_vs_all(**train):
  return dataclasses.replace(test_plan.one_vs_all(), train=NeuralTrain(**train))


def short_of(config, share, labels=100_000):
  """Returns (plan, planner) on a device with a share of the needed memory."""
  sizes = assumed_sizes(config, labels, 10_000)
  sizes = dataclasses.replace(sizes, vocab_size=min(sizes.vocab_size, 5000))
  chip = CHIPS['h200']
  needed = Planner(sizes, chip).plan(config, 1).held.total
  planner = Planner(sizes, dataclasses.replace(chip, memory=share * needed))
  plan = planner.plan(config, 1)
  assert not plan.fits
  return plan, planner


def test_what_does_not_fit_is_told_what_to_change():
  plan, planner = short_of(one_vs_all(batch_size=64), 0.6)
  advised = advice(plan, planner, 'model.vectors.stage')
  assert advised.fits
  assert 'model.vectors.stage.train.rows=FusedSGD()' in advised.changes[0].text
  totals = [plan.held.total, *(change.total for change in advised.changes)]
  assert totals == sorted(totals, reverse=True)
  assert totals[-1] <= plan.usable
  assert advised.devices.text.startswith('2 devices')
  text = plan_text(plan, advised)
  assert 'DOES NOT FIT' in text and 'to make the plan fit, make these' in text
  assert 'or without changes, use more devices' in text


@pytest.mark.thorough
def test_more_devices_where_no_change_is_enough(monkeypatch):
  plan, planner = short_of(one_vs_all(batch_size=64), 0.005)
  advised = advice(plan, planner)
  assert not advised.fits and 'mesh.label' in advised.devices.text
  assert '\nand use more devices' in plan_text(plan, advised)
  bare = plan_text(plan, Advice((), False, advised.devices))
  assert 'to make the plan fit (GiB per device), use more devices:' in bare
  monkeypatch.setattr(plan_advice, 'MOST_DEVICES', 2)
  advised = advice(plan, planner)
  assert not advised.fits and advised.devices is None
  assert 'these changes are not enough' in plan_text(plan, advised)
  bare = plan_text(plan, Advice((), False, None))
  assert 'neither changes nor more devices make the plan fit' in bare
  assert 'these changes are not enough' not in bare


LABELS = 1536
NAMES = {'FusedSGD': FusedSGD, 'NoAverage': NoAverage, **Storage.__members__}


def typed(text):
  """Returns (path, value) for each field that a line of advice sets."""
  pairs = re.findall(r'([a-z_.0-9]+)=([\w().]+)', text)
  return [(at.removeprefix('config.'), eval(to, NAMES)) for at, to in pairs]


EMA = {'average': EMAConfig(), 'accumulate': 4}
NARROW = {'rows': FusedSGD(momentum=0.9), 'compute_dtype': Dtype.BFLOAT16}


@pytest.mark.thorough
@pytest.mark.parametrize(
  'config',
  [
    one_vs_all(batch_size=64, **EMA),
    one_vs_all(batch_size=64, **NARROW),
  ],
  ids=['averaged', 'narrow'],
)
def test_the_program_takes_all_that_it_advises(config, monkeypatch):
  monkeypatch.setattr(plan_advice, 'MOST_DEVICES', 1)
  check_config(config)
  plan, planner = short_of(config, 0.02, labels=LABELS)
  advised = advice(plan, planner)
  changed, seen = copy.deepcopy(config), []
  for change in advised.changes:
    for path, value in typed(change.text):
      *parents, name = path.split('.')
      holder = functools.reduce(getattr, parents, changed)
      assert getattr(holder, name) != value
      setattr(holder, name, value)
      seen.append(path)
    check_config(changed)
    found = Planner(plan.sizes, plan.chip).plan(changed, 1)
    assert found.held.total == pytest.approx(change.total)
  assert seen and len(seen) == len(set(seen))


def test_rows_that_a_group_names_are_left_to_the_optimizer():
  config = one_vs_all(batch_size=64, rates=('head/*=0.5',))
  advised = advice(*short_of(config, 0.6))
  assert not any('FusedSGD' in change.text for change in advised.changes)
