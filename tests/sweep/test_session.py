import runpy
import shlex

import pytest

from xjax.core.errors import ConfigError
from xjax.sweep.config import Sweep, Tpe


def test_prints_a_command_for_every_run(session_of, stand_in):
  session = session_of([{'train.learning_rate': 0.25}, {'seed': 4}])
  lines = list(session.commands())
  assert len(lines) == 2
  for number, line in enumerate(lines):
    *command, config, workdir = shlex.split(line)
    assert tuple(command) == stand_in
    place = session.folder.place(number, None)
    assert workdir == f'--workdir={place.workdir}'
    made = runpy.run_path(config.removeprefix('--config='))['get_config']()
    assert (
      made
      == session.runs(number, session.sweep.search.trials[number])[0].config
    )
  assert (made.seed, made.train.learning_rate) == (4, 1e-3)


def test_each_seed_has_a_run(session_of):
  session = session_of([{}], seeds=3, seed=2)
  assert len(list(session.commands())) == 3
  assert [run.config.seed for run in session.runs(0, {})] == [2, 3, 4]


def test_cannot_tell_what_tpe_will_choose(session_of):
  space = {'model.encoder.units': (8, 16)}
  session = session_of(Sweep(Tpe(space, 2)))
  with pytest.raises(ConfigError, match='no commands to print beforehand'):
    list(session.commands())
  assert not session.folder.path.exists()


def test_a_sweep_that_is_refused_leaves_nothing(session_of):
  session = session_of([{'train.nope': 1}])
  with pytest.raises(ConfigError, match=r'train\.nope'):
    with session.start():
      pass
  assert not session.folder.path.exists()
