"""Checks what of the log is shown, and output that cannot be written."""

import os
import pathlib
import subprocess
import sys

from absl import logging
import pytest

from xjax.core.atomic import WriteError
from xjax.core.console import log_in_context, show
from xjax.core.errors import ConfigError, DataError, UserError, printable

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The log tells by file name who speaks, so the speaker is compiled under one.
PROGRAM = """
import sys
from absl import flags
from xjax.core.console import show_log
flags.FLAGS(sys.argv[:1])
show_log()
said = '''
from absl import logging
logging.info('it says %d', 1)
logging.warning('it warns')
logging.debug('it whispers')
'''
exec(compile(said, sys.argv[1], 'exec'))
"""


def run_program(*arguments):
  return subprocess.run(
    [sys.executable, '-c', *map(str, arguments)],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  )


SPEAKER = ROOT / 'xjax' / 'data' / 'speaker.py'
ODD = 'a\x1b[31mb\u202ec\x9b\rd\ud800\u2066'
PLAIN = 'a\\x1b[31mb\\u202ec\\x9b\\rd\\ud800\\u2066'


def test_control_characters_are_escaped(capsys):
  assert printable(ODD) == PLAIN
  assert printable('Größe\t你好\nעברית') == 'Größe\t你好\nעברית'
  for kind in (UserError, DataError, ConfigError, WriteError):
    assert str(kind(f'{ODD}: is wrong')) == f'{PLAIN}: is wrong'
  show(ODD)
  assert capsys.readouterr().out == PLAIN + '\n'


@pytest.mark.parametrize(
  ('path', 'shown'),
  [
    (SPEAKER, ['it says 1', 'it warns']),
    ('/opt/xjax/lib/orbax/save.py', ['it warns']),
  ],
)
def test_who_is_heard(path, shown):
  done = run_program(PROGRAM, path)
  assert done.stderr.splitlines() == shown
  assert not done.stdout


PRINT = """
import sys
from xjax.core.console import writing_output
from xjax.core.errors import UserError
try:
  with writing_output():
    for _ in range(int(sys.argv[1])):
      print('Gr\\u00f6\\u00dfe \\u0939\\u093f \\u2713 \\udcff')
    print('Gr\\u00f6\\u00dfe', file=sys.stderr)
except UserError as error:
  sys.exit(f'error: {error}')
"""


def printed(n, stdout, **environment):
  return subprocess.run(
    [sys.executable, '-c', PRINT, str(n)],
    env={**os.environ, 'PYTHONPATH': str(ROOT), **environment},
    stdout=stdout,
    stderr=subprocess.PIPE,
  )


def test_a_full_disk_behind_the_output_is_one_line():
  with open('/dev/full', 'wb') as full:
    done = printed(10_000, full)
  assert done.returncode == 1
  assert done.stderr == (
    b'error: standard output: cannot be written: No space left on device\n'
  )


def test_a_reader_that_has_gone_is_no_error():
  read, write = os.pipe()
  os.close(read)
  with open(write, 'wb') as gone:
    done = printed(10_000, gone)
  assert (done.returncode, done.stderr) == (0, b'')


@pytest.mark.parametrize('closed', ['>&-', '2>&-', '>&- 2>&-'])
def test_closed_streams_are_no_error(closed):
  for arguments in (['-c', PRINT, '9'], ['-m', 'xjax', '--help']):
    command = ['sh', '-c', f'exec "$@" {closed}', 'sh', sys.executable]
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
    assert not subprocess.run(command + arguments, env=environment).returncode


def test_help_on_a_full_disk_is_one_line():
  for command in (['--help'], ['train', '--help']):
    with open('/dev/full', 'wb') as full:
      done = subprocess.run(
        [sys.executable, '-m', 'xjax', *command],
        env={**os.environ, 'PYTHONPATH': str(ROOT)},
        stdout=full,
        stderr=subprocess.PIPE,
      )
    assert done.returncode == 1 and done.stderr.count(b'\n') == 1


@pytest.mark.parametrize('encoding', ['ascii', 'cp1252:strict', 'koi8-r', ''])
def test_output_is_utf_8_and_messages_are_in_the_encoding(encoding):
  locale = {'LC_ALL': 'C', 'PYTHONIOENCODING': encoding, 'PYTHONUTF8': '0'}
  done = printed(1, subprocess.PIPE, PYTHONCOERCECLOCALE='0', **locale)
  assert done.stdout.decode() == 'Größe हि ✓ \\udcff\n'
  said = 'Größe' if 'cp1252' in encoding else 'Gr\\xf6\\xdfe'
  assert done.stderr.decode('cp1252') == f'{said}\n'


IN_CONTEXT = """
from absl import logging
from xjax.core.console import log_in_context
from xjax.core.progress import Progress
said = '''
logging.info('it says 1')
logging.warning('it warns')
with Progress('work') as work:
  work.say('at work')
'''
for verbose in (True, False):
  with log_in_context(verbose):
    exec(compile(said, PATH, 'exec'))
assert logging.get_absl_logger().propagate
"""


def test_a_context_shows_the_log_or_only_warnings():
  done = run_program(IN_CONTEXT.replace('PATH', repr(str(SPEAKER))))
  lines = done.stderr.splitlines()
  assert lines == ['it says 1', 'it warns', 'at work', 'it warns']


def test_a_context_uses_the_handlers_of_the_caller(caplog):
  with log_in_context(verbose=True):
    logging.info('it says')
  with log_in_context(verbose=False):
    logging.info('it whispers')
  assert caplog.messages == ['it says']


def test_records_of_training_need_no_large_library(tmp_path):
  (tmp_path / 'torch.py').write_text('')
  code = 'import sys, xjax.train.writers; print(*sys.modules)'
  done = subprocess.run(
    [sys.executable, '-c', code],
    env={**os.environ, 'PYTHONPATH': f'{tmp_path}{os.pathsep}{ROOT}'},
    capture_output=True,
    text=True,
    check=True,
  )
  assert {'torch', 'sklearn'}.isdisjoint(done.stdout.split())
