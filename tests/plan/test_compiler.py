"""The process that compiles, and the devices for which it does."""

import functools
import importlib.util
import os
import sys

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import numpy as np
import pytest

from xjax.core.errors import ConfigError, UserError
from xjax.plan import compiler
from xjax.plan.chips import CHIPS
from xjax.plan.compiler import (
  Compiled,
  Refused,
  Target,
  compiled,
  make_target,
)


@pytest.fixture(scope='module')
def n_devices():
  return 8


@pytest.mark.parametrize(
  ('chip', 'arguments', 'count', 'slices'),
  [
    ('laptop', (4,), 4, 1),
    ('h100-80', (8,), 8, 1),
    ('h100-80', (16,), 16, 2),
    ('v5e', (1,), 1, 1),
    ('v5e', (0, '', 1), 1, 1),
    ('v5e', (0, '4x4', 2), 32, 2),
    ('v5p', (0, '2x2x2'), 8, 1),
  ],
)
def test_targets(chip, arguments, count, slices):
  target = make_target(CHIPS[chip], *arguments)
  assert (target.devices, target.slices) == (count, slices)


@pytest.mark.parametrize(
  ('chip', 'arguments', 'message'),
  [
    ('h100-80', (12,), '--devices=12: hosts have 8 GPUs'),
    ('h100-80', (8, '4x4'), '--topology and --slices work only with TPUs'),
    ('v5e', (0, '', 2), '--slices=2: --topology is missing; slices have shap'),
    ('v5e', (0, '4by4'), '--topology=4by4: v5e: slices have shapes such'),
    ('v5e', (0, '2x2x2'), '--topology=2x2x2: v5e: slices have shapes such'),
    ('v5p', (0, '4x4'), '--topology=4x4: v5p: slices have shapes such'),
    ('v5e', (0, '4x0'), '--topology=4x0 .* has 0 devices; slices have shap'),
    ('v5e', (0, '4x²'), 'has 0 devices'),
    ('v5e', (256,), 'topology=1x1 --slices=1 has 1 devices, not 256; slices'),
    ('v5e', (3, '4x4'), 'has 16 devices, not 3'),
  ],
)
def test_targets_that_do_not_exist(chip, arguments, message):
  with pytest.raises(ConfigError, match=message):
    make_target(CHIPS[chip], *arguments)


def total(devices, wrong=''):
  """Traces a sum over all devices, or does something `wrong`."""
  if wrong == 'raises':
    raise ValueError('this is wrong')
  if wrong == 'ends':
    os.write(2, b'the reason\n')
    os._exit(3)
  print('a compiler prints to standard output')
  mesh = Mesh(np.array(devices), 'data')
  x = jax.ShapeDtypeStruct(
    (32, 4), jnp.float32, sharding=NamedSharding(mesh, P('data'))
  )
  with jax.set_mesh(mesh):
    return jax.jit(lambda x: (x @ x.T).sum()).trace(x)


def total_of(own, devices):
  return total(devices, own.wrong)


PROGRAMS = {
  'first': total,
  'raises': functools.partial(total, wrong='raises'),
  'ends': functools.partial(total, wrong='ends'),
  'last': total,
}


def test_a_program_that_fails_does_not_stop_the_others():
  found = compiled(Target(CHIPS['laptop'], 8), PROGRAMS)
  assert [type(x) for x in found.values()] == [
    *(Compiled, Refused, Refused, Compiled)
  ]
  first = found['first']
  assert found['raises'].reason == 'ValueError: this is wrong'
  reason = found['ends'].reason
  assert reason.startswith('the compiler ended with status 3: ')
  assert reason.endswith('the reason')
  assert first.arguments == 4 * 4 * 4
  assert first.operations == 2 * 32 * 32 * 4 / 8
  assert 'all-reduce' in {x.kind for x in first.collectives}


def test_a_process_that_ends_before_it_reads(monkeypatch):
  monkeypatch.setattr(sys, 'executable', '/bin/false')
  large = functools.partial(total, wrong='x' * 10**6)
  found = compiled(Target(CHIPS['laptop'], 1), {'first': large})
  assert found['first'].reason.startswith('the compiler ended with status 1')


def test_a_config_file_may_define_classes(monkeypatch, tmp_path):
  file = tmp_path / 'own config.py'
  file.write_text('class Own:\n  wrong = ""\n')
  name = 'config_config'  # as ml_collections calls it
  spec = importlib.util.spec_from_file_location(name, file)
  module = importlib.util.module_from_spec(spec)
  monkeypatch.setitem(sys.modules, name, module)
  spec.loader.exec_module(module)
  own = functools.partial(total_of, module.Own())
  found = compiled(Target(CHIPS['laptop'], 1), {'own': own})
  assert isinstance(found['own'], Compiled), found


def test_what_a_compiler_needs_is_read_where_it_refuses():
  text = 'temporaries (18.75G) exceeds available HBM (15.75G)'
  assert Refused(text).total == 18.75 * 2**30
  assert Refused('unknown operation').total == float('inf')


def test_how_to_install_a_compiler_is_said(monkeypatch):
  monkeypatch.setattr(
    compiler, '_PACKAGES', dict.fromkeys(compiler.Platform, ())
  )
  with pytest.raises(UserError, match=r"pip install 'xjax\[chips\]'"):
    compiled(make_target(CHIPS['v5e'], 1), PROGRAMS)


@pytest.mark.chips
@pytest.mark.parametrize(
  ('chip', 'arguments', 'nodes'),
  [
    ('h100-80', (8,), 1),
    ('h100-80', (16,), 2),
    ('a100-40', (1,), 1),
    ('l4', (1,), 1),
    ('v5e', (1,), 1),
    ('v5e', (0, '2x2'), 1),
    ('v5e', (0, '2x2', 2), 2),
    ('v4', (0, '2x2x1'), 1),
  ],
)
def test_compilers_of_chips(chip, arguments, nodes):
  target = make_target(CHIPS[chip], *arguments)
  found = compiled(target, {'total': total})['total']
  assert isinstance(found, Compiled), found
  assert max((x.nodes for x in found.collectives), default=1) == nodes


@pytest.mark.chips
def test_a_slice_that_does_not_exist():
  target = make_target(CHIPS['v5e'], 0, '3x5')
  with pytest.raises(
    ConfigError, match='--topology=3x5: INVALID_ARGUMENT.*4x4'
  ):
    compiled(target, {'total': total})
