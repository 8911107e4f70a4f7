"""The command `xjax`: its sub-commands, help, names of configs, imports."""

import dataclasses
import enum
import os
import pathlib
import signal
import subprocess
import sys

from absl import flags as absl_flags
import pytest

from tests.commands.conftest import own_flags
from xjax.commands.flags import config, help as help_flags, judging, strategy
from xjax.commands.main import COMMANDS, main
from xjax.config.named import config_file, named_config
from xjax.config.run import shrink
from xjax.core.errors import ConfigError
from xjax.core.types import ScoreKind
from xjax.judge.request import JudgeRequest, Similarity
from xjax.run.fit import fit
from xjax.run.strategy import StrategyKind
from xjax.version import __version__

ROOT = pathlib.Path(__file__).resolve().parents[2]


def call(monkeypatch, capsys, *words: str) -> tuple[int, str, str]:
  """Returns the exit code of `xjax ...` and what it printed."""
  monkeypatch.setattr(sys, 'argv', ['xjax', *words])
  code = 0
  try:
    main()
  except SystemExit as left:
    code = left.code or 0
  out, err = capsys.readouterr()
  return code, out, err


def test_without_a_command_all_commands_are_listed(monkeypatch, capsys):
  code, out, _ = call(monkeypatch, capsys)
  assert code == 0
  assert all(f'\n  {name} ' in out for name in COMMANDS)
  modules = {path.stem for path in (ROOT / 'xjax' / 'commands').glob('*.py')}
  assert set(COMMANDS) == modules - {'__init__', 'main'}


def test_the_version_is_that_of_the_package(monkeypatch, capsys):
  assert call(monkeypatch, capsys, '--version')[1] == f'xjax {__version__}\n'


def test_a_wrong_command_is_one_line(monkeypatch, capsys):
  code, out, err = call(monkeypatch, capsys, 'trian')
  assert (code, out) == (1, '')
  assert err == "error: 'trian' is no command; did you mean train?\n"


def test_a_config_is_named_or_a_file(tmp_path, monkeypatch):
  path = config_file('quickstart:han')
  assert path.endswith('/xjax/configs/quickstart.py:han')
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'mine.py').touch()
  assert config_file('mine.py:x') == 'mine.py:x'
  with pytest.raises(ConfigError, match='did you mean quickstart'):
    config_file('quikstart')
  with pytest.raises(ConfigError, match='none.py: no such file'):
    config_file('none.py')


def test_named_configs_are_those_of_their_files():
  han = named_config('quickstart:han')
  assert type(han.model.encoder).__name__ == 'HANConfig'
  with pytest.raises(ConfigError, match=r"quickstart:lstm: 'lstm' is not one"):
    named_config('quickstart:lstm')
  with pytest.raises(ConfigError, match='xjax has no config of this name'):
    named_config('no_such')


def test_names_are_replaced_wherever_flags_have_them():
  argv = ['xjax train', '--config=quickstart', '-config', 'xc_plt', '--k=1']
  config.replace_config_names(argv)
  assert argv[1].endswith('configs/quickstart.py')
  assert argv[3].endswith('configs/xc_plt.py')
  assert argv[::4] == ['xjax train', '--k=1']


def values(kind: type[enum.Enum]) -> list[str]:
  return [member.value for member in kind]


def test_flags_have_the_defaults_and_choices_of_the_library():
  with own_flags():
    judging.define_judging()
    judging.define_companions()
    strategy.define('5')
    flags = absl_flags.FLAGS
    assert flags['strategy'].parser.enum_values == values(StrategyKind)
    assert flags['similarity'].parser.enum_values == values(Similarity)
    assert flags['score_kind'].parser.enum_values == values(ScoreKind)
    defaults = {
      field.name: field.default for field in dataclasses.fields(JudgeRequest)
    }
    for name in ('ks', 'propensity', 'alphas', 'draws', 'seed'):
      assert flags[name].default == defaults[name], name
    assert flags['protocol'].default == defaults['protocols']
    assert flags['similarity'].default == defaults['similarity'].value


def test_help_has_the_description_and_groups():
  with own_flags():
    judging.define_shared()
    text = help_flags.help_text('xjax none', 'Does this.\n\n  xjax none')
  assert text.startswith('Does this.\n\n  xjax none\n\nJudging:\n  --prop')
  assert max(map(len, text.splitlines())) <= 80


IMPORTED = """
import os, sys
sys.argv = ['xjax', *sys.argv[1:]]
from xjax.commands.main import main
try:
  main()
except SystemExit as left:
  assert not left.code, left.code
libraries = {'jax', 'flax', 'orbax', 'tensorflow_datasets', 'sklearn'}
print('loaded:', *sorted(libraries & set(sys.modules)), file=sys.stderr)
"""


def loaded(*words: object, stdin: str = '') -> set[str]:
  """Returns which heavy libraries a command has loaded."""
  done = subprocess.run(
    [sys.executable, '-c', IMPORTED, *map(str, words)],
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    input=stdin,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return set(done.stderr.splitlines()[-1].removeprefix('loaded:').split())


@pytest.mark.parametrize('command', COMMANDS)
def test_help_loads_no_library(command):
  assert loaded(command, '--help') == set()


def test_a_tree_tags_documents_without_jax(tmp_path):
  run = tmp_path / 'run'
  fit(shrink(named_config('own_linear')), run)
  found = loaded('predict', f'--workdir={run}', stdin='{"text": "a b"}')
  assert found == {'sklearn'}


def test_ctrl_c_while_python_exits_is_no_traceback():
  script = (
    'import atexit, os, signal, sys\n'
    'from xjax.commands.main import main\n'
    'atexit.register(os.kill, os.getpid(), signal.SIGINT)\n'
    'sys.argv = ["xjax", "configs", "quickstart"]\n'
    'main()\n'
  )
  done = subprocess.run(
    [sys.executable, '-c', script], capture_output=True, text=True, cwd=ROOT
  )
  assert 'quickstart' in done.stdout
  assert (done.returncode, done.stderr) == (-signal.SIGINT, '')
