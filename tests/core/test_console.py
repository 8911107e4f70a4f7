"""Checks that our own log is shown plainly, and only warnings of libraries."""

import pathlib
import subprocess
import sys

from absl import logging
import pytest

from xjax.core.console import log_in_context

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
  path = ROOT / 'xjax' / 'data' / 'speaker.py'
  done = subprocess.run(
    [sys.executable, '-c', IN_CONTEXT.replace('PATH', repr(str(path)))],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  lines = done.stderr.splitlines()
  assert lines == ['it says 1', 'it warns', 'at work', 'it warns']


def test_a_context_uses_the_handlers_of_the_caller(caplog):
  with log_in_context(verbose=True):
    logging.info('it says')
  with log_in_context(verbose=False):
    logging.info('it whispers')
  assert caplog.messages == ['it says']
