import dataclasses
import runpy

import pytest

from xjax.core.errors import ConfigError
from xjax.models.contract import Config
from xjax.sweep.config import Grid, Sweep
from xjax.sweep.sweep_file import read_sweep, write_config
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer_config import AdamW


def test_a_config_file_makes_the_same_config(tmp_path):
  config = Config(
    seed=3, train=NeuralTrain(learning_rate=0.1 + 0.2, clip_norm=1e-17)
  )
  config = dataclasses.replace(
    config,
    train=dataclasses.replace(config.train, optimizer=AdamW()),
    data=dataclasses.replace(config.data, zones=('a', "it's"), labels='é"'),
  )
  write_config(tmp_path / 'best.py', config, ['One line', '', 'another'])
  text = (tmp_path / 'best.py').read_text()
  assert text.startswith('# One line\n#\n# another\n')
  made = runpy.run_path(str(tmp_path / 'best.py'))['get_config']
  assert made() == config
  assert made() is not made()


def test_reads_a_sweep_by_name(tmp_path):
  file = tmp_path / 'a.py'
  file.write_text(
    'from xjax.sweep.config import Grid, Sweep\n'
    'def get_sweep(name="x"):\n  return Sweep(Grid({name: (1,)}))\n'
  )
  assert read_sweep(str(file)) == Sweep(Grid({'x': (1,)}))
  assert read_sweep(f'{file}:seed') == Sweep(Grid({'seed': (1,)}))


@pytest.mark.parametrize(
  'source, message',
  [
    ('x = 1', r'has no get_sweep\(\)'),
    ('def get_sweep():\n  return {}[3]', 'KeyError: 3'),
    ('def get_sweep(', 'SyntaxError'),
    ('def get_sweep():\n  3', 'must return a Sweep, not NoneType'),
  ],
)
def test_says_what_is_wrong_with_a_file(tmp_path, source, message):
  (tmp_path / 'a.py').write_text(source)
  with pytest.raises(ConfigError, match=message):
    read_sweep(str(tmp_path / 'a.py'))
