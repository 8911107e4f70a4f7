"""Checks what of the log is shown, and output that cannot be written."""

import os
import pathlib
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize(
  ('path', 'shown'),
  [
    (ROOT / 'xjax' / 'data' / 'speaker.py', ['it says 1', 'it warns']),
    (ROOT / '.venv' / 'site-packages' / 'orbax' / 'save.py', ['it warns']),
    ('/opt/xjax/lib/orbax/save.py', ['it warns']),
  ],
)
def test_who_is_heard(path, shown):
  done = subprocess.run(
    [sys.executable, '-c', PROGRAM, str(path)],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  assert done.stderr.splitlines() == shown
  assert not done.stdout


PRINT = """
import sys
from xjax.core.console import writing_output
from xjax.core.errors import UserError
try:
  with writing_output():
    for _ in range(int(sys.argv[1])):
      print('Gr\\u00f6\\u00dfe')
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


@pytest.mark.parametrize('n', [1, 10_000])
def test_a_full_disk_behind_the_output_is_one_line(n):
  with open('/dev/full', 'wb') as full:
    done = printed(n, full)
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


def test_what_the_terminal_cannot_show_is_escaped():
  ascii_only = {'LC_ALL': 'C', 'PYTHONIOENCODING': 'ascii', 'PYTHONUTF8': '0'}
  done = printed(1, subprocess.PIPE, **ascii_only)
  assert (done.stdout, done.stderr) == (b'Gr\\xf6\\xdfe\n', b'')
