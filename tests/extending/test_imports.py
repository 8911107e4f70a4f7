"""Modules of one's own, as --import and config files import them."""

import os
import subprocess
import sys

import pytest

from tests.extending.page import ROOT
from xjax.commands.flags.imports import import_modules
from xjax.core.errors import ConfigError

# The script `xjax` puts its own folder in front, and not the current folder.
SCRIPT = 'from xjax.commands.main import main; main()'


@pytest.fixture
def folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [path for path in sys.path if path])
  return tmp_path


def test_the_script_imports_from_the_current_folder(tmp_path):
  (tmp_path / 'in_flag.py').write_text('print("in the flag")')
  (tmp_path / 'in_config.py').write_text('print("in the config")')
  (tmp_path / 'mine.py').write_text('import in_config\nget_config = int')
  words = 'train', '--import=in_flag', '--config=mine.py'
  done = subprocess.run(
    [sys.executable, '-P', '-c', SCRIPT, *words],
    cwd=tmp_path,
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
  )
  assert done.stdout == 'in the flag\nin the config\n'
  assert 'get_config() must return a Config' in done.stderr


def test_a_file_of_the_current_folder_hides_no_library(folder):
  (folder / 'shelve.py').write_text('1 / 0')
  import_modules(['xjax train', '--import=shelve'])
  assert sys.path[-1] == str(folder)
  assert sys.path.count(str(folder)) == 1


@pytest.mark.parametrize(
  'name', ['./own_one', 'own_one.py', '.own_one', 'here/own_one', '/a/own_one']
)
def test_a_file_in_place_of_a_module_is_one_error(name, folder):
  (folder / 'own_one.py').write_text('')
  with pytest.raises(ConfigError) as error:
    import_modules(['xjax train', '--import', name])
  assert str(error.value).startswith(
    f"--import={name}: give the module's name, without .py and without a folder"
  )
