import gc
import os
import pathlib
import subprocess
import sys

import pytest

from xjax.core.processes.loading import hidden, loading_libraries

ROOT = pathlib.Path(__file__).parents[2]

# Counts the searches for garbage while Python ends.
ENDING = """
import gc
from xjax.core.processes.loading import start_command
start_command()
class Says:
  def __del__(self):
    print('searched')
said = Says()
said.self = said
"""


def words_of(code, *folders):
  """Runs code in a Python of its own; returns the words that it prints."""
  done = subprocess.run(
    [sys.executable, '-c', code],
    env={**os.environ, 'PYTHONPATH': os.pathsep.join(map(str, folders))},
    capture_output=True,
    text=True,
    check=True,
  )
  return done.stdout.split()


def test_no_garbage_is_searched_for_while_libraries_load():
  with loading_libraries():
    assert not gc.isenabled()
    with loading_libraries():
      pass
    assert not gc.isenabled()
  assert gc.isenabled()


def test_the_search_goes_on_after_an_import_that_fails():
  with pytest.raises(ImportError), loading_libraries():
    import no_such_library  # noqa: F401
  assert gc.isenabled()


def test_a_hidden_library_cannot_be_imported(tmp_path, monkeypatch):
  (tmp_path / 'optional.py').write_text('')
  monkeypatch.syspath_prepend(tmp_path)
  with hidden('optional'), pytest.raises(ImportError):
    import optional
  import optional

  with hidden('optional'):
    import optional as again
  assert again is optional


def test_records_of_training_need_no_large_library(tmp_path):
  (tmp_path / 'torch.py').write_text('')
  code = 'import sys, xjax.train.writers; print(*sys.modules)'
  words = words_of(code, tmp_path, ROOT)
  assert {'torch', 'sklearn'}.isdisjoint(words)


def test_commands_leave_libraries_out_of_later_searches():
  code = (
    'import gc\n'
    'from xjax.core.processes.loading import loading_libraries, start_command\n'
    'for call in (lambda: None, start_command):\n'
    '  call()\n'
    '  with loading_libraries():\n'
    '    import xjax.data.text.words\n'
    '  print(gc.get_freeze_count() > 0)\n'
  )
  words = words_of(code, ROOT)
  assert words == ['False', 'True']


def test_python_ends_without_a_search_for_garbage():
  words = words_of(ENDING, ROOT)
  assert words == []
