"""Checks that files and folders are either whole or not there."""

import errno
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from xjax.core.atomic import (
  WriteError,
  atomic_write,
  build_folder,
  remove_temporaries,
  write_json,
  write_npz,
)
from xjax.core.errors import UserError


def names(folder):
  return sorted(path.name for path in folder.iterdir())


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
  path = tmp_path / 'file.txt'
  path.write_text('old')
  with pytest.raises(KeyboardInterrupt), atomic_write(path) as file:
    file.write('half')
    raise KeyboardInterrupt
  assert path.read_text() == 'old'
  assert names(tmp_path) == ['file.txt']


def test_an_error_of_another_file_is_not_an_error_of_writing(tmp_path):
  path, absent = tmp_path / 'file.txt', tmp_path / 'absent'
  with pytest.raises(FileNotFoundError) as caught, atomic_write(path):
    absent.read_text()
  assert not isinstance(caught.value, WriteError)
  assert caught.value.filename == str(absent)
  for name in (None, str(path)):
    error = OSError(errno.ENOSPC, 'No space left', name)
    with pytest.raises(WriteError, match='file.txt: cannot be written: No sp'):
      with atomic_write(path):
        raise error
  assert names(tmp_path) == []


def test_json_refuses_what_json_has_not(tmp_path):
  path = tmp_path / 'new' / 'a.json'
  write_json(path, {'a': [1, 'ü']})
  assert path.read_text('utf-8').startswith('{\n  "a": [')
  assert json.loads(path.read_text('utf-8')) == {'a': [1, 'ü']}
  with pytest.raises(ValueError, match='not JSON compliant'):
    write_json(path.with_name('b.json'), float('nan'))
  assert names(path.parent) == ['a.json']


def test_npz_is_never_pickled(tmp_path):
  write_npz(tmp_path / 'a.npz', {'x/y': np.arange(3)})
  with np.load(tmp_path / 'a.npz', allow_pickle=False) as arrays:
    assert arrays['x/y'].tolist() == [0, 1, 2]
  with pytest.raises(TypeError, match='bad: object'):
    write_npz(tmp_path / 'b.npz', {'bad': np.array([None])})
  assert names(tmp_path) == ['a.npz']


def test_folder_appears_whole_or_not_at_all(tmp_path):
  def fail(folder):
    (folder / 'half').write_text('x')
    raise OSError('disk full')

  with pytest.raises(OSError, match='disk full'):
    build_folder(tmp_path / 'made', fail)
  assert names(tmp_path) == []
  build_folder(tmp_path / 'made', lambda f: (f / 'whole').write_text('x'))
  assert names(tmp_path / 'made') == ['whole']


def test_a_folder_made_meanwhile_stays(tmp_path):
  def late(folder):
    (folder / 'mine').write_text('x')
    (tmp_path / 'made').mkdir()
    (tmp_path / 'made' / 'theirs').write_text('x')

  build_folder(tmp_path / 'made', late)
  assert names(tmp_path / 'made') == ['theirs']
  assert names(tmp_path) == ['made']


def test_what_cannot_be_written_is_named(tmp_path):
  (tmp_path / 'file').write_text('x')
  for path in (tmp_path / 'file' / 'a.json', tmp_path / ('n' * 300)):
    with pytest.raises(UserError, match=f'{path}: cannot be written: '):
      write_json(path, 1)
    with pytest.raises(UserError, match=f'{path}: cannot be written: '):
      build_folder(path, lambda folder: None)
  (tmp_path / 'folder').mkdir()
  with pytest.raises(UserError, match='folder: cannot be written: Is a dir'):
    write_json(tmp_path / 'folder', 1)
  assert names(tmp_path) == ['file', 'folder']


KILL = """
import os, pathlib, signal, sys
from xjax.core.atomic import atomic_write, build_folder
def die(folder):
  (folder / 'half').touch()
  with atomic_write(sys.argv[1] + '/eval/dev/file.npz'):
    os.kill(os.getpid(), signal.SIGKILL)
build_folder(sys.argv[1] + '/folder', die)
"""


def test_only_what_killed_writers_left_is_removed(tmp_path):
  killed = subprocess.run([sys.executable, '-c', KILL, str(tmp_path)])
  assert killed.returncode == -signal.SIGKILL
  (left,) = tmp_path.glob('.folder.xjax-*.tmp')
  (tmp_path / left.name.replace('folder', 'in.a.container')).touch()
  users = [
    '.file.npz.abcd1234',
    '.file.xjax.tmp',
    '.file.xjax-12.tmp',
    'file.xjax-12-abc.tmp',
    '.file.xjax-12-abc.tmp.gz',
    # The first process of the machine is alive.
    f'.file.xjax-{1 if os.getpid() > 1 else os.getppid()}-abc.tmp',
  ]
  for name in users:
    (tmp_path / name).touch()
  (tmp_path / f'.mine.xjax-{os.getpid()}-abc.tmp').touch()
  remove_temporaries(tmp_path)
  assert names(tmp_path) == sorted(['eval', *users])
  assert names(tmp_path / 'eval' / 'dev') == []
