"""A plain install does all but a few commands, which name their extra."""

import csv
import json
import runpy
import subprocess
import sys
from unittest import mock

import pytest

from tests.commands.conftest import ROOT
from tests.commands.test_mains import QUICK
from xjax.core.errors import UserError, optional

# Command and arguments, extra, and the libraries that it needs.
COMMANDS = [
  (('sweep', '--config=sweep_quickstart'), 'sweeps', ('optuna',)),
  (('report', 'a', '--output=x.html'), 'report', ('matplotlib',)),
  (('embeddings', '--config=quickstart', '--output=x'), 'vectors', ('gensim',)),
  (
    ('serve',),
    'serve',
    ('h11', 'prometheus_client', 'starlette', 'uvicorn'),
  ),
]
LIBRARIES = [name for _, _, names in COMMANDS for name in names]
# Runs commands, one after the other, without some libraries.
PLAIN = """
import json, sys
from tests.commands.conftest import own_flags
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))  # blocks them
from absl import app
import grain, xjax.models.neural.neural_model
import xjax.report.terminal.run_summary
from xjax.commands.main import run_command
app.define_help_flags()
for name, *arguments in json.loads(sys.argv[2]):
  sys.argv = ['xjax', *arguments]
  with own_flags():
    try:
      run_command(name)
    except SystemExit as left:
      assert not left.code, (name, left.code)
"""


@pytest.mark.thorough
def test_a_plain_install_trains_judges_and_predicts(tmp_path):
  words = 'trade fish coal rail wheat'.split()
  with (tmp_path / 'own.csv').open('w', newline='') as file:
    rows = csv.writer(file)
    rows.writerow(('text', 'labels'))
    rows.writerows(
      (f'{words[i % 5]} of {1000 + i}', words[i % 5]) for i in range(60)
    )
  (tmp_path / 'new.jsonl').write_text('{"text": "much coal"}')
  calls, runs = [], (tmp_path / 'quick', tmp_path / 'own')
  kinds = QUICK, ('--config=auto', f'--config.data.dir={tmp_path}/own.csv')
  for workdir, config in zip(runs, kinds, strict=True):
    at, out = f'--workdir={workdir}', f'--output={workdir}.jsonl'
    calls += [
      ('train', *config, at),
      ('predict', at, f'--input={tmp_path}/new.jsonl', out, '--k=1'),
      ('evaluate', at, '--split=dev'),
    ]
  calls.append(('compare', *[str(runs[1])] * 2, '--names=a,b', '--metrics=P@1'))
  others = 'pyarrow', 'lightgbm', 'huggingface_hub', 'transformers'
  blocked = [*LIBRARIES, *others]
  done = subprocess.run(
    [sys.executable, '-c', PLAIN, json.dumps(blocked), json.dumps(calls)],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert done.returncode == 0, done.stderr
  answer = json.loads((tmp_path / 'own.jsonl').read_text())
  assert answer['labels'][0]['id'] == 'coal'


@pytest.mark.parametrize(
  ('command', 'extra', 'library'),
  [(*two, library) for *two, names in COMMANDS for library in names],
)
def test_a_command_names_the_extra_that_it_needs(
  run_main, monkeypatch, tmp_path, command, extra, library
):
  monkeypatch.setitem(sys.modules, library, None)
  name, *arguments = command
  if name in ('serve', 'sweep'):
    arguments.append(f'--workdir={tmp_path}/run')
  error = run_main(name, *arguments, code=1).stderr
  assert f"needs {library}: pip install 'xjax[{extra}]'" in error
  assert 'Traceback' not in error and not list(tmp_path.iterdir())


def test_extras_bring_what_their_commands_need():
  fake = mock.Mock()
  with mock.patch.dict(sys.modules, setuptools=fake):
    runpy.run_path(str(ROOT / 'setup.py'))
  needs = fake.setup.call_args.kwargs
  extras = needs['extras_require']
  for _, extra, libraries in COMMANDS:
    for library in libraries:
      for wanted in (extra, 'all', 'test'):
        assert any(x.startswith(f'{library}>') for x in extras[wanted])
      assert not any(x.startswith(library) for x in needs['install_requires'])


@pytest.mark.parametrize(
  ('error', 'message'),
  [
    (ModuleNotFoundError("No module named 'b'", name='b'), r"b: .*\[x\]'$"),
    (ImportError('b: undefined symbol'), 'loaded: b: undefined symbol'),
    (OSError('libgomp.so.1: cannot open'), 'libgomp.so.1: cannot .*libgomp1'),
  ],
)
def test_a_library_that_cannot_be_loaded_is_one_error(error, message):
  with mock.patch('importlib.import_module', side_effect=error):
    with pytest.raises(UserError, match=f'^a chart needs .*{message}'):
      optional('a', 'a chart', 'x')
