"""Checks that our own log is shown plainly, and only warnings of libraries."""

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
