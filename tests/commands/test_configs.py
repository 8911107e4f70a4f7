"""Every shipped config: says what it is, is valid, and trains two steps."""

import importlib
import json
import re

import pytest

from tests.fixtures.shrink import shrink
from xjax.models.config_check import check_config
from xjax.models.config_json import to_json
from xjax.models.contract import Config
from xjax.run.fit import fit
from xjax.run.named_configs import config_names
from xjax.sweep.config import Range
from xjax.sweep.overrides import override
from xjax.sweep.sweep_check import check_sweep
from xjax.train.neural_train import NeuralTrain

NAMES = config_names()


def module_of(name: str):
  return importlib.import_module(f'xjax.configs.{name}')


def systems_of(name: str):
  """The names that a config file goes by: its own, or one for each system."""
  systems = getattr(module_of(name), 'SYSTEMS', ())
  return [f'{name}:{system}' for system in systems] or [name]


CONFIGS = [config for name in NAMES for config in systems_of(name)]
SWEEPS = [config for config in CONFIGS if config.startswith('sweep_')]

# Sweeps have the configs of other files: of each file one trial is enough.
TRAINED = [config for config in CONFIGS if config not in SWEEPS]
TRAINED += [name for name in NAMES if name.startswith('sweep_')]


def config_of(name: str):
  file, *system = name.split(':')
  return module_of(file).get_config(*system)


def sweep_of(name: str):
  file, *system = name.split(':')
  return module_of(file).get_sweep(*system)


def trial_of(name: str):
  """A config as it stands; of a sweep with the last values of its space."""
  if not name.startswith('sweep_'):
    return config_of(name)
  space = sweep_of(name).search.space
  values = {
    key: values.high if isinstance(values, Range) else values[-1]
    for key, values in space.items()
  }
  return override(config_of(name), values)


@pytest.mark.parametrize('name', NAMES)
def test_docstring_says_what_to_expect(name):
  text = module_of(name).__doc__
  assert f'--config={name}' in text
  for word in ('Hardware:', 'Expected', 'Time:'):
    assert word in text, word
  # A paper, and its year.
  assert re.search(r'\b(et al\.|and \w+)', text)
  assert re.search(r'\b20[0-2]\d\b', text)


@pytest.mark.parametrize('name', CONFIGS)
def test_is_valid(name):
  config = config_of(name)
  assert isinstance(config, Config)
  check_config(config)
  assert config is not config_of(name)


@pytest.mark.parametrize('name', NAMES)
def test_file_alone_is_a_config(name):
  systems = [to_json(config_of(system)) for system in systems_of(name)]
  assert to_json(config_of(name)) in systems


@pytest.mark.parametrize('name', [n for n in CONFIGS if ':' in n])
def test_no_such_system(name):
  file, system = name.split(':')
  with pytest.raises(ValueError, match=system):
    config_of(f'{file}:no_such')


@pytest.mark.parametrize('name', SWEEPS)
def test_every_trial_is_valid(name):
  check_sweep(sweep_of(name), config_of(name), seeds=5)


# Some configs differ only in what is made small: they are one case.
SMALL = {str(to_json(shrink(trial_of(name)))): name for name in TRAINED[::-1]}


@pytest.mark.thorough
@pytest.mark.parametrize('name', sorted(SMALL.values()))
def test_two_steps(name, tmp_path, devices):
  config = shrink(trial_of(name))
  check_config(config)
  with devices(1):
    result = fit(config, tmp_path / 'run')
  trained = isinstance(config.train, NeuralTrain)
  assert result.steps == (2 if trained else 0)
  assert (tmp_path / 'run' / 'metrics.jsonl').exists() == trained
  for path in (tmp_path / 'run').rglob('metrics.jsonl'):  # of stages too
    records = [json.loads(line) for line in path.read_text().splitlines()]
    steps = [r['step'] for r in records if r['kind'] == 'train']
    assert steps == [1, 2]
  metrics = json.loads((tmp_path / 'run/eval/dev/metrics.json').read_text())
  assert 0 <= metrics['xjax']['all']['RP@5'] <= 1
