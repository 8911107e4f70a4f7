"""The command `xjax`: its sub-commands, help, names of configs, imports."""

from collections.abc import Sequence
import dataclasses
import enum
import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys

from absl import flags as absl_flags
import pytest

from tests.commands.conftest import ROOT, log_to, own_flags
from tests.fixtures.own_corpus import make_rows, write_csv
from tests.fixtures.shrink import shrink
from xjax.commands.flags import config, judging, program, strategy
from xjax.commands.main import COMMANDS, main, run_command
from xjax.core.errors import ConfigError
from xjax.core.types import ScoreKind
from xjax.judge.request import JudgeRequest, Similarity
from xjax.run.api.fitting import config_of
from xjax.run.api.model import Model
from xjax.run.fit import fit
from xjax.run.named_configs import config_file, named_config
from xjax.run.open_run import OpenRun
from xjax.run.serve import service
from xjax.run.strategies.strategy_request import StrategyKind


def call(monkeypatch, capsys, *words: str) -> tuple[int, str, str]:
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


def test_a_wrong_command_is_one_line(monkeypatch, capsys):
  code, out, err = call(monkeypatch, capsys, 'trian')
  assert (code, out) == (1, '')
  assert err == "error: 'trian' is no command; did you mean train?\n"


def test_a_command_has_one_name_however_it_is_started(monkeypatch, capsys):
  """Model cards and messages have a command that can be pasted."""
  monkeypatch.setattr(program, 'run', lambda *_: None)
  monkeypatch.setattr(sys, 'argv', ['/a b/experiments/train.py', '--plan'])
  with own_flags():
    run_command('train')
  assert sys.argv == ['xjax train', '--plan']
  with own_flags():
    call(monkeypatch, capsys, 'train', '--plan')
  assert sys.argv == ['xjax train', '--plan']


def test_a_config_is_named_or_a_file(tmp_path, monkeypatch):
  path = config_file('quickstart:han')
  assert path.endswith('/xjax/configs/quickstart.py:han')
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'mine.py').touch()
  assert config_file('mine.py:x') == 'mine.py:x'
  assert config_file('xc_plt').endswith('/__init__.py:xc_plt')
  han = named_config('quickstart:han')
  assert type(han.model.encoder).__name__ == 'HANConfig'


MINE = """
import dataclasses
from xjax.models.contract import Config
@dataclasses.dataclass
class Wanted:
  seed: int = 3
def get_config() -> Config:
  return Config(seed=Wanted().seed)
"""


def test_a_file_is_a_config_in_python_too(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'mine.py').write_text(MINE)
  (tmp_path / 'quickstart').touch()  # a file of another kind
  assert named_config('mine.py').seed == named_config('./mine.py').seed == 3
  assert config_of('mine.py') == named_config(str(tmp_path / 'mine.py'))
  assert named_config('quickstart').data.n_train


NEITHER = 'xjax has no config of this name, and there is no such file; '


@pytest.mark.parametrize(
  ('name', 'fault'),
  [
    (
      'quikstart',
      f'{NEITHER}did you mean quickstart? `xjax configs` lists all ',
    ),
    ('none.py', 'no such file'),
    ('quickstart:lstm', "'lstm' is not one"),
    ('mine.py:x', 'there are no variants; leave out :x'),
    ('eurlex57k_bert:x', 'there are no variants; leave out :x'),
    ('eurlex57k_best:tpu', "'tpu' is not one"),
    ('x' * 5000, NEITHER),
    ('empty.py', 'the file has no function get_config()'),
    ('wrong.py', 'ZeroDivisionError: division by zero'),
    ('other.py', 'get_config() must return a Config'),
  ],
)
def test_a_wrong_config_is_one_clear_error(
  name, fault, tmp_path, monkeypatch, capsys
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'mine.py').write_text(MINE)
  (tmp_path / 'empty.py').touch()
  (tmp_path / 'wrong.py').write_text('1 / 0')
  (tmp_path / 'other.py').write_text('get_config = int')
  with pytest.raises(ConfigError) as error:
    config_of(name)
  assert str(error.value).startswith(f'config={name}: {fault}')
  with own_flags():
    code, _, said = call(
      monkeypatch, capsys, 'data', 'check', f'--config={name}'
    )
  assert (code, said) == (1, f'error: --{error.value}\n')


def test_a_file_of_several_configs_is_told_to_be_named():
  says = r'no function get_config\(\); use --config=NAME, such as \w+'
  with pytest.raises(ConfigError, match=says) as error:
    config_of(str(ROOT / 'xjax' / 'configs' / 'linear_models.py'))
  assert named_config(str(error.value).rpartition(' ')[2])


def test_names_are_replaced_wherever_flags_have_them():
  argv = ['xjax train', '-config=quickstart', '--config', 'xc_plt', '--k=1']
  config.replace_config_names(argv)
  assert argv[1].endswith('configs/quickstart.py')
  assert argv[2].endswith('configs/__init__.py:xc_plt')
  assert argv[::3] == ['xjax train', '--k=1']


@pytest.mark.parametrize(
  ('element', 'text', 'items'),
  [
    (str, 'encoder/layers/[0-3]', ('encoder/layers/[0-3]',)),
    (str, "('encoder/layers/[0-3]',)", ('encoder/layers/[0-3]',)),
    (str, "['encoder/layers/[0-3]']", ('encoder/layers/[0-3]',)),
    (str, '[ab]/*=0.1,x/[cd]', ('[ab]/*=0.1', 'x/[cd]')),
    (str, '(a, "b")', ('a', 'b')),
    (str, ' [a,b] ', ('a', 'b')),
    (str, 'a', ('a',)),
    (str, '"text, clean",b', ('text, clean', 'b')),
    (str, '()', ()),
    (str, '', ()),
    (int, '(1, 2,)', (1, 2)),
    (float, '[.5]', (0.5,)),
  ],
)
def test_several_values_keep_the_brackets_of_their_globs(element, text, items):
  assert config.TupleParser(element).parse(text) == items


def test_only_the_word_after_check_is_a_folder():
  with own_flags():
    from xjax.commands.data import with_folder
  del sys.modules['xjax.commands.data']  # others run it as a command
  own = '--config=own_linear'
  for words, flags in (
    ('check d', f'check {own} --config.data.dir=d'),
    ('check d --config=auto', 'check --config=auto --config.data.dir=d'),
    ('check d -config=auto', 'check -config=auto --config.data.dir=d'),
    ('check --config xc_svm', 'check --config xc_svm'),
    (
      'check d --config.data.labels tags',
      f'check {own} --config.data.labels tags --config.data.dir=d',
    ),
    ('chek d', f'chek {own} d'),
  ):
    assert with_folder(words.split()) == flags.split()


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


def test_the_number_of_labels_is_the_same_everywhere():
  with own_flags():
    from xjax.commands import predict

    ks = {predict._K.default, service._USUAL_K}
  del sys.modules['xjax.commands.predict']  # others run it as a command
  for method in (
    Model.predict,
    Model.explain,
    OpenRun.predict,
    OpenRun.explain,
  ):
    ks.add(inspect.signature(method).parameters['k'].default)
  assert ks == {5}


@pytest.mark.parametrize(
  ('words', 'error'), [(['--od\x1b[2Jd'], None), ([], ConfigError('\x1b[2J'))]
)
def test_no_message_of_a_command_controls_the_terminal(
  words, error, monkeypatch, capsys
):
  def main():
    raise error

  monkeypatch.setattr(sys, 'argv', ['xjax none', *words])
  with own_flags(), log_to(sys.stderr), pytest.raises(SystemExit):
    program.run(main)
  _, said = capsys.readouterr()
  assert '\\x1b[2J' in said and '\x1b' not in said


IMPORTED = """
import json, os, sys
from xjax.commands.main import main
libraries = {'jax', 'flax', 'orbax', 'tensorflow_datasets', 'sklearn', 'torch'}
for words in json.loads(sys.argv[1]):
  if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    continue
  sys.argv = ['xjax', *words]
  try:
    main()
  except SystemExit as left:
    assert not left.code, left.code
  print('loaded:', *sorted(libraries & set(sys.modules)), file=sys.stderr)
  break
"""


def loaded(
  *calls: Sequence[str], stdin: str = '', path: pathlib.Path = ROOT
) -> set[str]:
  """Returns which heavy libraries one of several commands has loaded."""
  done = subprocess.run(
    [sys.executable, '-c', IMPORTED, json.dumps(calls)],
    env={**os.environ, 'PYTHONPATH': f'{path}:{ROOT}'},
    input=stdin,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.count('--import=') == str(calls).count('--help')
  said = [x for x in done.stderr.splitlines() if x.startswith('loaded:')]
  assert len(said) == len(calls)
  return {library for line in said for library in line.split()[1:]}


def test_help_loads_no_library():
  assert loaded(*((command, '--help') for command in COMMANDS)) == set()


def test_a_tree_tags_documents_without_jax(tmp_path):
  run = tmp_path / 'run'
  fit(shrink(named_config('own_linear')), run)
  call = 'predict', f'--workdir={run}'
  for more in ((), ('--explain=2', f'--output={tmp_path / "out.jsonl"}')):
    assert loaded((*call, *more), stdin='{"text": "a b"}') == {'sklearn'}


def test_a_linear_model_is_trained_without_large_libraries(tmp_path):
  """PyTorch would be loaded by tensorboardX where it is installed."""
  (tmp_path / 'torch.py').write_text('')
  corpus = tmp_path / 'docs.csv'
  write_csv(corpus, make_rows(60, 5), encoding='utf-8')
  config = '--config=auto', f'--config.data.dir={corpus}'
  train = 'train', *config, f'--workdir={tmp_path / "run"}'
  assert loaded(train, path=tmp_path) == {'jax', 'sklearn'}


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


@pytest.mark.parametrize(
  'words', ['--help', '--version', 'train -h', 'configs']
)
@pytest.mark.parametrize('messages', [subprocess.PIPE, subprocess.STDOUT])
def test_a_command_whose_reader_has_gone_ends_without_a_word(words, messages):
  read, write = os.pipe()
  os.close(read)
  with open(write, 'wb') as gone:
    done = subprocess.run(
      [sys.executable, '-m', 'xjax', *words.split()],
      cwd=ROOT,
      stdout=gone,
      stderr=messages,
    )
  assert (done.returncode, done.stderr or b'') == (0, b'')
