"""Every shipped config: says what it is, is valid, and trains two steps."""

import dataclasses
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


SMALL = {name: shrink(trial_of(name)) for name in TRAINED}


def choices(part, path=()):
  """Yields every kind of part in a config, and every text and switch."""
  if dataclasses.is_dataclass(part):
    yield path, type(part).__name__
    for field in dataclasses.fields(part):
      yield from choices(getattr(part, field.name), (*path, field.name))
  elif isinstance(part, bool | str):
    yield path, part


def kinds(part):
  """Returns the kinds of all parts of a config, as one combination."""
  if not dataclasses.is_dataclass(part):
    return ()
  inner = (kinds(getattr(part, f.name)) for f in dataclasses.fields(part))
  return type(part).__name__, *filter(None, inner)


def cover(sets, cost=lambda name: 1):
  """Returns few of the named sets, and cheap ones, that have every element."""
  missing, chosen = set().union(*sets.values()), []
  while missing:
    best = max(sets, key=lambda name: len(sets[name] & missing) / cost(name))
    missing -= sets[best]
    chosen.append(best)
  return chosen


@pytest.mark.parametrize('name', TRAINED)
def test_is_valid_when_small(name):
  check_config(SMALL[name])


# Of configs that differ in numbers alone, or whose every choice stands in
# others, one is enough.
COVER = cover({name: {*choices(c), kinds(c)} for name, c in SMALL.items()})


@pytest.mark.thorough
@pytest.mark.parametrize('name', COVER)
def test_two_steps(name, tmp_path, devices):
  config = SMALL[name]
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
