"""Every shipped config: says what it is, is valid, and trains two steps."""

import dataclasses
import json
import re

import pytest

from tests.fixtures.shrink import shrink
from tests.golden.shipped_configs import config_of, names
from xjax.core.errors import ConfigError
from xjax.models.config_check import check_config
from xjax.models.config_json import to_json
from xjax.run.fit import fit
from xjax.run.named_configs import config_file, named_config, shipped_configs
from xjax.sweep.session import read_sweep
from xjax.sweep.trials import check_sweep
from xjax.train.neural_train import NeuralTrain

SHIPPED = shipped_configs()
VARIANTS = {
  name: [f'{name}:{variant}' for variant in config.variants]
  for name, config in SHIPPED.items()
}
CONFIGS = names()
SWEEPS = [config for config in CONFIGS if config.startswith('sweep_')]

# Sweeps have the configs of other files: of each file one trial is enough.
TRAINED = [config for config in CONFIGS if config not in SWEEPS]
TRAINED += [name for name in SHIPPED if name.startswith('sweep_')]


@pytest.mark.parametrize('name', SHIPPED)
def test_docstring_says_what_to_expect(name):
  text = SHIPPED[name].text
  assert f'--config={name}' in text or '--config=NAME' in text
  for word in ('Data:', 'Hardware:', 'Expected', 'Time:'):
    assert word in text, word
  # A paper, and its year.
  assert re.search(r'\b(et al\.|and \w+)', text)
  assert re.search(r'\b20[0-2]\d\b', text)


@pytest.mark.parametrize('name', CONFIGS)
def test_is_valid(name):
  config = named_config(name)
  check_config(config)
  assert config is not named_config(name)


@pytest.mark.parametrize('name', [n for n in SHIPPED if VARIANTS[n]])
def test_the_first_variant_is_the_default(name):
  assert to_json(named_config(name)) == to_json(named_config(VARIANTS[name][0]))
  with pytest.raises(ConfigError, match=f'config={name}:none: .none. is not'):
    named_config(f'{name}:none')


@pytest.mark.parametrize('name', SWEEPS)
def test_every_trial_is_valid(name):
  check_sweep(read_sweep(config_file(name)), named_config(name), seeds=5)


SMALL = {name: shrink(config_of(name)) for name in TRAINED}


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


# The fewest configs with all combinations of kinds, and all texts and switches.
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
