"""Checks that our own log is shown plainly, and only warnings of libraries."""

import pathlib
import subprocess
import sys

import pytest

from xjax.core.atomic import WriteError
from xjax.core.console import show
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


ODD = 'a\x1b[31mb\u202ec\x9b\rd\ud800\u2066'
PLAIN = 'a\\x1b[31mb\\u202ec\\x9b\\rd\\ud800\\u2066'


def test_control_characters_are_escaped(capsys):
  assert printable(ODD) == PLAIN
  assert printable('Größe\t你好\nעברית') == 'Größe\t你好\nעברית'
  for kind in (UserError, DataError, ConfigError, WriteError):
    assert str(kind(f'{ODD}: is wrong')) == f'{PLAIN}: is wrong'
  show(ODD)
  assert capsys.readouterr().out == PLAIN + '\n'


def test_control_characters_in_the_log_are_escaped():
  said = "logging.warning('label %s', chr(27) + '[2J' + chr(0x202e))"
  path = str(ROOT / 'xjax' / 'data' / 'speaker.py')
  program = PROGRAM.replace("logging.warning('it warns')", said)
  done = subprocess.run(
    [sys.executable, '-c', program, path],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  assert 'label \\x1b[2J\\u202e' in done.stderr.splitlines()


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
