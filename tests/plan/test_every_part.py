"""Every part has small programs, which compile for TPUs and GPUs."""

import concurrent.futures
import functools

import pytest

from tests.fixtures.chip_cases import (
  choices,
  kinds_and_rows,
  kinds_of,
  kinds_of_steps,
  ranking_choices,
  variations,
)
from tests.fixtures.chip_programs import all_programs, refused, step
from xjax.losses.loss import LabelWeightsConfig, LossConfig
from xjax.models.config_check import check_config
from xjax.networks.encoders.encoder import EncoderConfig, InputConfig
from xjax.networks.heads.head import GraphConfig, HeadConfig
from xjax.networks.pooling import PoolingConfig
from xjax.networks.rows.update import RowUpdateConfig
from xjax.networks.views.hierarchy_views import ViewsConfig
from xjax.plan.chips import CHIPS
from xjax.plan.compiler import Refused, compiled, make_target
from xjax.train.optimizer_config import AverageConfig, OptimizerConfig

# Kinds of these parts are in programs of a chip. The judge has no programs: it
# computes with NumPy and Numba on the host.
PARTS = (
  *(InputConfig, EncoderConfig, PoolingConfig, HeadConfig, GraphConfig),
  *(ViewsConfig, LossConfig, LabelWeightsConfig, RowUpdateConfig),
  *(OptimizerConfig, AverageConfig),
)
# With each target: the devices along the data axis and the label axis, what its
# training steps and what its rankings must have together, and whether some
# programs are in float32, too. All parts are compiled for all targets. So that
# this takes minutes, their other choices are compiled only for TPUs.
TARGETS = {
  'TPU v5e 2x2': (
    make_target(CHIPS['v5e'], 0, '2x2'),
    *((2, 2), choices, ranking_choices, False),
  ),
  'one H100': (
    make_target(CHIPS['h100-80'], 1),
    *((1, 1), kinds_and_rows, kinds_of_steps, True),
  ),
  'eight H100': (
    make_target(CHIPS['h100-80'], 8),
    *((4, 2), kinds_and_rows, kinds_of_steps, False),
  ),
}


@pytest.fixture(scope='module')
def n_devices():
  return 8


@pytest.fixture(scope='module')
def programs():
  return {name: all_programs(*how) for name, (_, *how) in TARGETS.items()}


@pytest.mark.parametrize('target', TARGETS)
@pytest.mark.parametrize('part', PARTS, ids=lambda part: part.__name__)
def test_every_kind_of_a_part_is_in_a_step(programs, part, target):
  found = set()
  for program in programs[target].values():
    if isinstance(program, functools.partial) and program.func is step:
      found |= kinds_of_steps(*program.args)
  assert [kind for kind in kinds_of(part) if kind not in found] == []


def test_the_configs_are_valid():
  for config in variations().values():
    check_config(config)


@pytest.fixture(scope='module')
def results(programs):
  """The programs of each target by name, each Compiled or Refused."""
  # Two processes compile at a time; halves of targets keep both busy.
  jobs, found = [], {name: {} for name in TARGETS}
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for name, (target, *_) in TARGETS.items():
      rows = [*programs[name].items()]
      for half in rows[::2], rows[1::2]:
        jobs.append((name, pool.submit(compiled, target, dict(half))))
    for name, job in jobs:
      found[name] |= job.result()
  return found


def refusals(found):
  return {x: y.reason for x, y in found.items() if isinstance(y, Refused)}


@pytest.mark.chips
@pytest.mark.timeout(1800)
@pytest.mark.parametrize('target', TARGETS)
def test_every_part_compiles(results, target, subtests):
  for name, reason in refusals(results[target]).items():
    with subtests.test(name):
      pytest.fail(reason)


@pytest.mark.chips
@pytest.mark.parametrize(
  ('target', 'reason'),
  [('TPU v5e 2x2', 'Unexpected operand type for FFT'), ('one H100', '')],
)
def test_what_a_chip_lacks_is_refused(target, reason):
  found = refusals(compiled(TARGETS[target][0], {'planted': refused}))
  assert bool(found) == bool(reason)
  assert reason in found.get('planted', '')
