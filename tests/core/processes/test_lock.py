"""A folder that one process at a time may write to."""

import errno
import fcntl
import json
import os
import subprocess
import sys

import pytest

from xjax.core.errors import ConfigError, UserError
from xjax.core.processes.lock import NAME, is_locked, locked

HOLD = """
import sys, time
from xjax.core.processes.lock import locked
with locked(sys.argv[1]):
  print('locked', flush=True)
  time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
  """Another process, which has locked the folder `run`."""
  process = subprocess.Popen(
    [sys.executable, '-c', HOLD, str(tmp_path / 'run')],
    stdout=subprocess.PIPE,
    text=True,
  )
  with process:
    assert process.stdout.readline() == 'locked\n'
    yield process
    process.kill()


def names(folder):
  return sorted(path.name for path in folder.iterdir())


def test_the_second_process_hears_who_is_there(holder, tmp_path):
  says = rf'run: another process is running here: process {holder.pid} on .*, '
  with pytest.raises(ConfigError, match=says + r'since 20.*: -c .*run\. Wait'):
    with locked(tmp_path / 'run', wait=0):
      pass
  assert names(tmp_path / 'run') == [NAME]


def test_the_lock_of_a_killed_process_falls(holder, tmp_path):
  holder.kill()
  holder.wait()
  assert names(tmp_path / 'run') == [NAME]
  with locked(tmp_path / 'run', wait=0):
    pass
  # The folder stays, because another process has made it.
  assert names(tmp_path / 'run') == []


def test_a_reader_tells_a_living_process_from_a_dead_one(holder, tmp_path):
  lock = tmp_path / 'run' / NAME
  assert not is_locked(tmp_path) and is_locked(tmp_path / 'run')
  holder.kill()
  holder.wait()
  assert not is_locked(tmp_path / 'run')
  said = json.loads(lock.read_text())
  lock.write_text(json.dumps(said | {'host': 'another machine'}))
  assert is_locked(tmp_path / 'run')
  for text in ('', '[]', '[' * 10_000):
    lock.write_text(text)
    assert not is_locked(tmp_path / 'run')
  with locked(tmp_path / 'run', wait=0):
    assert is_locked(tmp_path / 'run')


def test_waits_for_a_process_that_is_about_to_end(holder, tmp_path):
  looked = []

  def look(seconds):
    looked.append(seconds)
    holder.kill()
    holder.wait()

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr('xjax.core.processes.lock.time.sleep', look)
    with locked(tmp_path / 'run', wait=60):
      pass
  assert len(looked) == 1


def test_what_stays_empty_leaves_no_folder(tmp_path):
  with pytest.raises(KeyError):
    with locked(tmp_path / 'a'):
      raise KeyError
  assert names(tmp_path) == []
  with locked(tmp_path / 'a'):
    (tmp_path / 'a' / 'file').touch()
  assert names(tmp_path / 'a') == ['file']


def test_a_lock_file_that_was_removed_meanwhile_locks_nobody(
  tmp_path, monkeypatch
):
  """Another process removed the file after this one had opened it."""
  flock, opened = fcntl.flock, []

  def remove_first(lock, how):
    flock(lock, how)
    opened.append(os.fstat(lock).st_ino)
    if len(opened) == 1:
      # A second file, so that the third has not the number of the first.
      (tmp_path / 'other').touch()
      os.replace(tmp_path / 'other', tmp_path / NAME)

  monkeypatch.setattr('xjax.core.processes.lock.fcntl.flock', remove_first)
  monkeypatch.setattr(
    'xjax.core.processes.lock.time.sleep', lambda seconds: None
  )
  with locked(tmp_path, wait=60):
    assert (tmp_path / NAME).stat().st_ino == opened[-1]
  assert len(opened) == 2


def test_a_folder_that_was_deleted_is_an_error(tmp_path):
  with pytest.raises(UserError, match='run: was deleted or moved while'):
    with locked(tmp_path / 'run'):
      os.rename(tmp_path / 'run', tmp_path / 'moved')


def test_a_file_system_without_locks_is_a_warning(
  tmp_path, monkeypatch, caplog
):
  def refuse(lock, how):
    raise OSError(errno.ENOLCK, 'No locks available')

  monkeypatch.setattr('xjax.core.processes.lock.fcntl.flock', refuse)
  with locked(tmp_path):
    assert names(tmp_path) == [NAME]
  assert 'this file system has no locks' in caplog.text


def test_a_lock_that_cannot_be_written_is_one_line(tmp_path):
  folder, broken, astray = (tmp_path / name for name in 'abc')
  (folder / NAME).mkdir(parents=True)
  broken.mkdir()
  (broken / NAME).symlink_to(tmp_path / 'nowhere')
  astray.symlink_to(tmp_path / 'none' / 'deep')
  for path in (folder, broken, astray):
    with pytest.raises(UserError, match=f'{path}/{NAME}: cannot be written: '):
      with locked(path):
        pass
  assert names(folder) == names(broken) == [NAME]
